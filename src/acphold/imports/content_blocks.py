"""Content in terms of the protocol, made from texts, pictures, changes and plans.

Some agents keep only the text of a prompt that had more in it. Their adapters write a link as
`[@name](uri)`, and put an embedded file after the text, in `<context ref="uri">`. Text that an
editor or the program added to a prompt is not the person's: it is told as a resource.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Final, NamedTuple

from acphold.imports.values import Object, first_text, obj, objects, text

_LINK: Final = re.compile(r"\[@([^\]]*)\]\((\S+)\)")
_EMBEDDED: Final = re.compile(r'\n?<context ref="([^"]*)">\n')
_EMBEDDED_END: Final = "\n</context>"
_BESIDE: Final = re.compile(r"\s*<(ide_[a-z_]+|system-reminder)>(.*)</\1>\s*", re.DOTALL)
_IN_FRONT: Final = re.compile(r"\s*<(ide_[a-z_]+|system-reminder)>(.*?)</\1>\s*", re.DOTALL)
_REMINDER: Final = ("<system-reminder>", "</system-reminder>")
_IN_EDITOR: Final = re.compile(
    r"\s*(# (?:Context from my IDE setup|Files mentioned by the user):.*?)"
    r"\n## My request for Codex:\n(.*)",
    re.DOTALL,
)
_DATA_URL: Final = re.compile(r"data:([\w./+-]+);base64,(.*)", re.DOTALL)
_BETWEEN_HUNKS: Final = re.compile(r"^(?:@@|\*\*\* End of File).*\n?", re.MULTILINE)
_BOX: Final = re.compile(r"^[ \t]*[-*] \[([ xX~-])\] (.+)$", re.MULTILINE)


def text_block(words: str) -> Object:
    """Return a content block of text."""
    return {"type": "text", "text": words}


def text_blocks(words: str) -> list[Object]:
    """Return a content block of text in a list, which is empty without text."""
    return [text_block(words)] if words else []


def parts_of(said: object) -> list[Object]:
    """Return the parts of a message, of which a text is the only one."""
    return [text_block(said)] if isinstance(said, str) else objects(said)


def content(words: str) -> Object:
    """Return text as a tool call's content."""
    return block_content(text_block(words))


def block_content(block: Object) -> Object:
    """Return a content block as a tool call's content."""
    return {"type": "content", "content": block}


def diff(path: str, old: str | None, new: str) -> Object:
    """Return a change of a file as a tool call's content; `old` is None for a new file."""
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def contents(words: str) -> list[Object]:
    """Return text as a tool call's contents, which are empty without text."""
    return [content(words)] if words else []


def diffs(path: str, old: str, new: str) -> list[Object]:
    """Return a change of a file as a tool call's contents, which are empty without text.

    Without an old text, the file is new.
    """
    return [diff(path, old or None, new)] if old or new else []


def sides(lines: Iterable[str], mark_characters: int = 1) -> tuple[list[str], list[str]]:
    """Return the old and the new lines of those of a hunk, which begin with a mark."""
    old, new = (
        [line[mark_characters:] for line in lines if not line.startswith((other, "\\"))]
        for other in "+-"
    )
    return old, new


def hunk_diffs(path: str, hunks: str, *, is_new: bool = False) -> list[Object]:
    """Return the changes in the hunks of a file as a tool call's contents."""
    found: list[Object] = []
    for hunk in _BETWEEN_HUNKS.split(hunks):
        lines = [line for line in hunk.splitlines() if not line.startswith("***")]
        if lines:
            old, new = ("".join(f"{line}\n" for line in side) for side in sides(lines))
            found.append(diff(path, None if is_new else old, new))
    return found


def unified_diffs(path: str, patch: str) -> list[Object]:
    """Return the changes in a patch of one file, without what is above its hunks."""
    _, mark, hunks = f"\n{patch}".partition("\n@@ ")
    return hunk_diffs(path, f"@@ {hunks}") if mark else []


class EditMarks(NamedTuple):
    """Patterns of the lines around the old and the new text of an edit in an answer.

    Lines like `place`, right below the first mark, are no part of the old text.
    """

    old: re.Pattern[str]
    new: re.Pattern[str]
    end: re.Pattern[str]
    place: re.Pattern[str] | None = None


def read_edits(
    lines: Iterable[str], marks: EditMarks
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each edit: the line above it that names its file, and the old and the new lines."""
    above = ""
    old: list[str] | None = None
    new: list[str] | None = None
    for line in lines:
        mark = line.rstrip("\n")
        if marks.old.fullmatch(mark):
            old, new = [], None
        elif old is None:
            if line.strip() and not line.startswith("```"):
                above = line
        elif new is None and marks.new.fullmatch(mark):
            new = []
        elif new is not None and marks.end.fullmatch(mark):
            yield above, old, new
            old = new = None
        elif old or new is not None or not (marks.place and marks.place.fullmatch(mark)):
            (old if new is None else new).append(line)


def image(data: str, mime_type: str) -> Object:
    """Return a content block with a picture in base64."""
    return {"type": "image", "data": data, "mimeType": mime_type}


def picture_of(part: Object) -> Object | None:
    """Return the picture of a part of a message, as any program writes it; None for other parts."""
    if not text(part, "type").startswith(("image", "input_image")):
        return None
    source = obj(part, "source") or part
    if data := text(source, "data"):
        return image(data, first_text(source, ("mimeType", "mediaType", "media_type")))
    return picture(first_text(part, ("url", "image_url")) or text(part, "image_url", "url"))


_STEP: Final = ("content", "step", "title", "description")
"""Names of the text of a step."""


def plan_entries(steps: Iterable[Object]) -> list[Object]:
    """Return the entries of a plan, without steps that were cancelled.

    Unknown statuses and priorities become the default.
    """
    entries: list[Object] = []
    for step in steps:
        status = text(step, "status").removeprefix("TODO_STATUS_").lower().replace("-", "_")
        status = status if status in ("in_progress", "completed", "cancelled") else "pending"
        priority = text(step, "priority")
        priority = priority if priority in ("high", "low") else "medium"
        entry: Object = {"content": first_text(step, _STEP), "priority": priority, "status": status}
        entries += [] if status == "cancelled" else [entry]
    return entries


def checklist(words: str) -> list[Object]:
    """Return the steps of a plan written as a Markdown checklist."""
    marks = {" ": "pending", "x": "completed", "X": "completed"}
    found = _BOX.findall(words)
    return [{"content": step, "status": marks.get(mark, "in_progress")} for mark, step in found]


def link(path: str) -> Object:
    """Return a content block that only names a file."""
    return resource_link(path.rpartition("/")[2], f"file://{path}")


def resource_link(name: str, uri: str) -> Object:
    """Return a content block that only has a name and a URI."""
    return {"type": "resource_link", "name": name or uri, "uri": uri}


def resource(uri: str, words: str) -> Object:
    """Return a content block with an attached text."""
    return {"type": "resource", "resource": {"uri": uri, "text": words}}


def prompt_blocks(blocks: Iterable[Object]) -> list[Object]:
    """Return the blocks with links and embedded files restored, without empty text."""
    restored: list[Object] = []
    links: dict[str, int] = {}
    for block in blocks:
        words = text(block, "text")
        if text(block, "type") != "text":
            restored.append(block)
        elif link := _LINK.fullmatch(words):
            links[link[2]] = len(restored)
            restored.append(resource_link(link[1], link[2]))
        elif (beside := _BESIDE.fullmatch(words)) and not _is_several(*beside.groups()):
            restored.append(resource(f"context:{beside[1]}", beside[2].strip()))
        else:
            while found := _IN_FRONT.match(words):
                restored.append(resource(f"context:{found[1]}", found[2].strip()))
                words = words[found.end() :]
            behind = ""
            if words.rstrip().endswith(_REMINDER[1]) and _REMINDER[0] in words:
                words, _, behind = words.rpartition(_REMINDER[0])
                words, behind = words.rstrip(), behind.rstrip().removesuffix(_REMINDER[1])
            # The person's own text, then each embedded file, and the text in between.
            begun = [*_EMBEDDED.finditer(words)]
            own = words[: begun[0].start()] if begun else words
            embedded: list[Object] = []
            for begin, following in zip_longest(begun, begun[1:]):
                whole = words[begin.start() : following.start() if following else len(words)]
                inside, end, after = whole[len(begin[0]) :].rpartition(_EMBEDDED_END)
                if end:
                    embedded.append(resource(begin[1], inside))
                own += after.removeprefix("\n") if end else whole
            if asked := _IN_EDITOR.fullmatch(own):
                own = asked[2]
                embedded.insert(0, resource("context:editor", asked[1].strip()))
            restored += text_blocks(own)
            if behind:
                embedded.append(resource("context:system-reminder", behind.strip()))
            for attached in embedded:
                if (uri := text(attached, "resource", "uri")) in links:
                    restored[links.pop(uri)] = attached
                else:
                    restored.append(attached)
    return restored


def _is_several(name: str, words: str) -> bool:
    """Return True if words between two tags of a name are also between others: the person's are."""
    return f"<{name}>" in words.partition(f"</{name}>")[2]


def picture(url: str) -> Object | None:
    """Return a content block with the picture in a `data:` URL; None for any other URL."""
    found = _DATA_URL.fullmatch(url)
    return image(found[2], found[1]) if found else None
