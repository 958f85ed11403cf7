"""The model's side of a Cline task, `api_conversation_history.json`.

It lies beside the messages of the screen. When a program that wrote those was stopped in the middle
of the file, it has what they lost: what was said, and the calls, as XML in a text or as blocks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from acphold.imports.values import (
    Object,
    first_text,
    inner,
    obj,
    objects,
    squeeze,
    tag_pairs,
    text,
    without,
)

NAME: Final = "api_conversation_history.json"

KINDS: Final = {
    "apply_diff": "edit",
    "ask_followup_question": "",
    "attempt_completion": "",
    "browser_action": "fetch",
    "execute_command": "execute",
    "insert_content": "edit",
    "list_code_definition_names": "search",
    "list_files": "read",
    "new_task": "think",
    "plan_mode_respond": "",
    "read_file": "read",
    "replace_in_file": "edit",
    "search_files": "search",
    "switch_mode": "switch_mode",
    "use_mcp_tool": "other",
    "write_to_file": "edit",
}
"""Kinds of the tools; those without one only say something."""

_SAID: Final = ("result", "question", "response")
"""Arguments that are said."""

_ABOUT: Final = ("command", "path", "regex", "tool_name")
"""Arguments that a title names."""

_TYPED: Final = re.compile(
    r"<(?P<opens>task|feedback|user_message|answer)>|</(?P<closes>task|feedback|user_message|answer)>"
)
_TOOL: Final = re.compile(rf"<(?P<opens>{'|'.join(KINDS)})>|</(?P<closes>{'|'.join(KINDS)})>")
_ARGUMENT: Final = re.compile(r"<(?P<opens>[a-z_]+)>|</(?P<closes>[a-z_]+)>")
_THOUGHT: Final = re.compile(r"<(?P<opens>thinking)>|</(?P<closes>thinking)>\s*")


class Step(NamedTuple):
    """A step of a task: the words of the `user` or the `agent`, or a call with its fields."""

    role: str
    words: str
    call: Object | None = None


def steps(messages: Iterable[Object]) -> Iterator[Step]:
    """Yield the steps in the messages."""
    for message in messages:
        said = message.get("content")
        for block in objects(said) if isinstance(said, list) else [{"type": "text", "text": said}]:
            words = text(block, "text")
            if text(message, "role") == "user":
                for begin, end in tag_pairs(words, _TYPED):
                    yield Step("user", words[begin.end() : end.start()].strip())
            elif text(block, "type") == "tool_use":
                yield _call(text(block, "name"), obj(block, "input"))
            else:
                yield from _answer(words)


def _answer(words: str) -> Iterator[Step]:
    """Yield what was said in a text of the model, and the calls in it."""
    words = without(words, _THOUGHT)
    place = 0
    for begin, end in tag_pairs(words, _TOOL):
        if said := words[place : begin.start()].strip():
            yield Step("agent", said)
        yield _call(begin["opens"], dict(inner(words[begin.end() : end.start()], _ARGUMENT)))
        place = end.end()
    if said := words[place:].strip():
        yield Step("agent", said)


def _call(name: str, arguments: Object) -> Step:
    kind = KINDS.get(name, "other")
    if not kind:
        return Step("agent", first_text(arguments, _SAID).strip())
    title = f"{name} {first_text(arguments, _ABOUT).strip()}".strip()
    fields: Object = {"title": title, "kind": kind, "status": "completed", "rawInput": arguments}
    return Step("call", "", fields)


def steps_after(found: Sequence[Step], told: Sequence[tuple[str, str]]) -> Sequence[Step]:
    """Return the steps behind the last text that the screen told, a role and words each.

    All if the screen told none; none if no text of it is among the steps.
    """
    if not told:
        return found
    known = [(role, squeeze(words)) for role, words in told]
    while known:
        last, seen = known[-1], Counter(known)[known[-1]]
        for place, step in enumerate(found, 1):
            seen -= (step.role, squeeze(step.words)) == last
            if not seen:
                return found[place:]
        known.pop()
    return []
