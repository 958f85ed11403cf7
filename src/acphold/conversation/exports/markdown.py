"""A session as Markdown: prompts quoted, the agent's text unchanged, the rest in folds.

The folds are `<details>`, which forges and editors support, and the speaker is in `<kbd>`. The file
has no other tags: those in texts are escaped, so that nothing in a conversation can close a fold,
run, or pose as another speaker.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from html import escape

from acp_wire.markdown_text import code, code_block, plain
from acp_wire.schema import Content, Diff, TextContent
from acphold.conversation.exports.forms import Head
from acphold.conversation.history.entries import Entry
from acphold.conversation.history.timeline import ContextCompaction, Message, SubAgent, ToolCall
from acphold.conversation.presentation import scenes
from acphold.conversation.presentation.diffs import diff_lines
from acphold.conversation.presentation.visible_text import local, on_one_line, quantity, visible
from acphold.conversation.reports.transcript import Planned, Scene, turns

_TAG = re.compile(r"<(?=[A-Za-z/!?])(?!(?:https?://|mailto:)[^\s<>]*>)")
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")

_END_OF_LIST = "<!-- -->\n\n"
"""Separates two messages in a row: the second one cannot continue a list of the first."""


async def markdown(head: Head, entries: AsyncIterable[Entry]) -> AsyncIterator[str]:
    """Yield the text of a Markdown file, a turn at a time."""
    yield f"# {plain(head.name)}\n\n"
    for name, value in head.facts():
        yield f"- {name}: {code(value)}\n"
    async for turn in turns(entries):
        parts = [f"\n---\n\n*{local(turn.at)}*\n"]
        before: Scene | None = None
        speaking: tuple[str, str] | None = None
        for scene in turn.scenes:
            if (
                isinstance(scene, Message)
                and scene.role != "thought"
                and (who := (scene.role, scenes.speaker(scene))) != speaking
            ):
                speaking = who
                parts.append(f"\n{_label(plain(who[1]))}\n")
            if isinstance(scene, ToolCall):  # its output may be long, and is not copied
                parts += ["\n", *_tool(scene), "\n"]
                before = scene
            elif text := _scene(scene):
                follows = _is_prose(scene) and _is_prose(before)
                parts.append(f"\n{_END_OF_LIST if follows else ''}{text}\n")
                before = scene
        for part in parts:
            yield part
    yield "\n"


def index(heads: Iterable[Head], suffix: str) -> str:
    """Return the index of the files of several sessions, in the same folder."""
    rows = [
        f"- [{plain(head.name)}]({head.file_name}{suffix}) · {local(head.updated_at)}"
        f" · {plain(head.agent_name or head.agent)} · {code(on_one_line(head.cwd))}\n"
        for head in heads
    ]
    return f"# {quantity(len(rows), 'session')}\n\n{''.join(rows)}"


def _is_prose(scene: Scene | None) -> bool:
    return isinstance(scene, Message) and scene.role == "agent"


def _scene(scene: Scene) -> str:
    match scene:
        case Message(role="user"):
            return _quote(_message(scene))
        case Message(role="thought"):
            return _fold("thought", _quote(_message(scene)))
        case Message():
            return _message(scene)
        case ToolCall():
            return "".join(_tool(scene))
        case ContextCompaction(summary=summary) if summary:
            kept = _quote(_message(Message("agent", None, summary)))
            return _fold(on_one_line(f"context {scenes.compaction_text(scene)}"), kept)
        case SubAgent():
            words, status = scenes.sub_agent_stands(scene)
            about = ": ".join(filter(None, ("sub-agent", words)))
            headed = f"{scenes.step_mark(status)} {on_one_line(scene.name)} ({about})"
            its = [
                f"{_label(scenes.speaker_in_child(item))}\n\n{_quote(_message(item))}"
                if isinstance(item, Message)
                else _scene(item)
                for item in scene.timeline
            ]
            return _fold(headed, "\n\n".join(its) or "*no words*")
        case Planned():
            steps = [
                f"- {scenes.plan_mark(step.status)} {plain(step.text)}" for step in scene.steps
            ]
            return f"{_label('Plan')}\n\n" + "\n".join(steps)
        case _:
            if (found := scenes.aside(scene)) is None:
                return ""
            _, what, words = found
            return f"{_label(what)} *{plain(words)}*"


# -- items ------------------------------------------------------------------------------------


def _message(message: Message) -> str:
    parts: list[str] = []
    for block in scenes.blocks_of(message.content):
        if isinstance(block, TextContent):
            parts.append(without_tags(visible(block.text)))
            continue
        parts.append(code(on_one_line(scenes.describe_block(block))))
        if (text := scenes.resource_text(block)) is not None:
            parts.append(code_block(visible(text)))
    return "\n\n".join(part.strip("\n") for part in parts)


def _tool(call: ToolCall) -> Iterator[str]:
    """Yield a tool call in pieces."""
    yield f"<details>\n<summary>{escape(scenes.headline(call))}</summary>"
    parts: list[str] = []
    produced = call.produced
    if (given := call.raw_input) not in (None, b"null", b"{}"):
        parts.append(code_block(visible(scenes.pretty_json(given or b"")), "json"))
    for item in produced:
        match item:
            case Content(content=TextContent(text=text)):
                parts.append(code_block(visible(scenes.without_fence(text))))
            case Content(content=block):
                parts.append(code(on_one_line(scenes.describe_block(block))))
            case Diff():
                patch = code_block("\n".join(diff_lines(item)), "diff")
                parts.append(f"{code(on_one_line(item.path))}\n\n{patch}")
            case _:
                parts.append("*shown in a terminal*")
    if not produced and (output := call.raw_output) not in (None, b"null", b"{}"):
        parts.append(code_block(visible(scenes.pretty_json(output or b""))))
    for part in parts or ["*no output*"]:
        yield "\n\n"
        yield part
    yield "\n\n</details>"


# -- Markdown -----------------------------------------------------------------------------------


def _label(words: str) -> str:
    """Return words as a label, which no text can imitate: its tags are escaped."""
    return f"<kbd>{words}</kbd>"


def _fold(summary: str, inside: str) -> str:
    return f"<details>\n<summary>{escape(summary)}</summary>\n\n{inside}\n\n</details>"


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def without_tags(text: str) -> str:
    """Return Markdown without tags and pictures, except in code; a fence that was left open is
    closed."""
    gentle = _escape_tags(text, keeps_code=True)
    if not _TAG.search(gentle) and "![" not in gentle:
        return gentle
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(gentle)
    inside = (child for token in tokens for child in token.children or ())
    if any(token.type.startswith(("html_", "image")) for token in (*tokens, *inside)):
        # Backticks were placed so that text only looks like code.
        return _escape_tags(text, keeps_code=False)
    return gentle


def _escape_tags(text: str, *, keeps_code: bool) -> str:
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            lines.append(line if keeps_code else _escape(line))
            closes = mark and mark[1].startswith(fence) and not line.strip(" `~")
            fence = "" if closes else fence
        elif mark and line == line.lstrip() and not (mark[1][0] == "`" and "`" in mark[2]):
            # An indented fence may belong to a list, and end with it.
            fence = mark[1]
            lines.append(_escape(line))
        elif keeps_code and ("<" in line or "![" in line):
            done, place = "", 0
            for span in _CODE.finditer(line):
                done += _escape(line[place : span.start()]) + span[0]
                place = span.end()
            lines.append(done + _escape(line[place:]))
        else:
            lines.append(_escape(line))
    return "\n".join([*lines, fence] if fence else lines)


def _escape(text: str) -> str:
    """Escape tags, and pictures: who looks at one fetches it from wherever the agent says."""
    return _TAG.sub("&lt;", text).replace("![", "!\\[")
