"""Content in the words of the protocol: what readers make of texts, pictures, changes and plans.

Some agents keep only text of a prompt that had more in it. Their adapters write a link as
`[@name](uri)`, and put an embedded file behind the text, in `<context ref="uri">`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from acphold.imports.values import Object, text

_LINK: Final = re.compile(r"\[@([^\]]*)\]\((\S+)\)")
_EMBEDDED: Final = re.compile(r'\n?<context ref="([^"]*)">\n(.*)\n</context>\n?', re.DOTALL)
_DATA_URL: Final = re.compile(r"data:([\w./+-]+);base64,(.*)", re.DOTALL)
_BOX: Final = re.compile(r"^[ \t]*[-*] \[([ xX~-])\] (.+)$", re.MULTILINE)


def text_block(words: str) -> Object:
    """A content block of text."""
    return {"type": "text", "text": words}


def content(words: str) -> Object:
    """Text as what a tool call produced."""
    return {"type": "content", "content": text_block(words)}


def diff(path: str, old: str | None, new: str) -> Object:
    """A change of a file as what a tool call produced; `old` is None for a new file."""
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def image(data: str, mime_type: str) -> Object:
    """A content block with a picture in base64."""
    return {"type": "image", "data": data, "mimeType": mime_type}


def checklist(words: str) -> list[Object]:
    """The entries of a plan that is written as a list of Markdown with boxes."""
    marks = {" ": "pending", "x": "completed", "X": "completed"}
    return [
        {"content": step, "priority": "medium", "status": marks.get(mark, "in_progress")}
        for mark, step in _BOX.findall(words)
    ]


def prompt_blocks(blocks: Iterable[Object]) -> list[Object]:
    """The blocks with links and embedded files as what they had been; empty text is left out."""
    restored: list[Object] = []
    links: dict[str, int] = {}
    for block in blocks:
        words = text(block, "text")
        if text(block, "type") != "text":
            restored.append(block)
        elif embedded := _EMBEDDED.fullmatch(words):
            uri, inner = embedded.groups()
            resource: Object = {"type": "resource", "resource": {"uri": uri, "text": inner}}
            if uri in links:
                restored[links.pop(uri)] = resource
            else:
                restored.append(resource)
        elif link := _LINK.fullmatch(words):
            links[link[2]] = len(restored)
            restored.append({"type": "resource_link", "name": link[1] or link[2], "uri": link[2]})
        elif words:
            restored.append(text_block(words))
    return restored


def picture(url: str) -> Object | None:
    """The content block with the picture in a `data:` URL; None for any other URL."""
    found = _DATA_URL.fullmatch(url)
    return image(found[2], found[1]) if found else None
