"""The model's side of a Cline task, `api_conversation_history.json`.

It lies beside the messages of the screen. When a program that wrote those was stopped in the middle
of the file, it has what they lost: what was said, and the calls, as XML in a text or as blocks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from acphold.imports.tools import named_call_fields
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

_SAYING: Final = ("ask_followup_question", "attempt_completion", "plan_mode_respond")
"""Tools that only say something."""

_SAID: Final = ("result", "question", "response")
"""Arguments that are said."""

_TYPED: Final = re.compile(
    r"<(?P<opens>task|feedback|user_message|answer)>|</(?P<closes>task|feedback|user_message|answer)>"
)
_TOOLS: Final = "|".join(
    (*_SAYING, "apply_diff", "browser_action", "execute_command", "insert_content",
     "list_code_definition_names", "list_files", "new_task", "read_file", "replace_in_file",
     "search_files", "switch_mode", "use_mcp_tool", "write_to_file")
)  # fmt: skip
_TOOL: Final = re.compile(rf"<(?P<opens>{_TOOLS})>|</(?P<closes>{_TOOLS})>")
_ARGUMENT: Final = re.compile(r"<(?P<opens>[a-z_]+)>|</(?P<closes>[a-z_]+)>")
_THOUGHT: Final = re.compile(r"<(?P<opens>thinking)>|</(?P<closes>thinking)>\s*")


class TaskStep(NamedTuple):
    """A step of a task: the words of the `user` or the `agent`, or a call with its fields."""

    role: str
    words: str
    call: Object | None = None


def steps(messages: Iterable[Object]) -> Iterator[TaskStep]:
    """Yield the steps in the messages."""
    for message in messages:
        said = message.get("content")
        for block in objects(said) if isinstance(said, list) else [{"type": "text", "text": said}]:
            words = text(block, "text")
            if text(message, "role") == "user":
                for begin, end in tag_pairs(words, _TYPED):
                    yield TaskStep("user", words[begin.end() : end.start()].strip())
            elif text(block, "type") == "tool_use":
                yield _call(text(block, "name"), obj(block, "input"))
            else:
                yield from _answer(words)


def _answer(words: str) -> Iterator[TaskStep]:
    """Yield what was said in a text of the model, and the calls in it."""
    words = without(words, _THOUGHT)
    place = 0
    for begin, end in tag_pairs(words, _TOOL):
        if said := words[place : begin.start()].strip():
            yield TaskStep("agent", said)
        yield _call(begin["opens"], dict(inner(words[begin.end() : end.start()], _ARGUMENT)))
        place = end.end()
    if said := words[place:].strip():
        yield TaskStep("agent", said)


def _call(name: str, arguments: Object) -> TaskStep:
    if name in _SAYING:
        return TaskStep("agent", first_text(arguments, _SAID).strip())
    return TaskStep("call", "", named_call_fields(name, arguments) | {"status": "completed"})


def steps_after(found: Sequence[TaskStep], told: Sequence[tuple[str, str]]) -> Sequence[TaskStep]:
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
