"""The base of every reader: calls and their results, plans, tokens, documents.

A telling converts the records of one conversation and passes them to a scribe. With a
SubagentScribe it tells a subagent's conversation, inside the call that started it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from acphold.imports.content_blocks import plan_entry
from acphold.imports.records import document
from acphold.imports.scribe import Scribe
from acphold.imports.values import Missed, Object, number, text


class AgentTelling:
    """Passes one conversation to a scribe; each reader derives its own class from this."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._missed = scribe.missed
        self._calls: dict[str, tuple[str, Object]] = {}
        """The tool and the arguments of each call that has no result yet."""

    def _tool_of(self, call_id: str, result: object) -> tuple[str, Object]:
        """Return the tool and the arguments of the call that this is the result of.

        The tool is empty, and the result counted, if there is no such call.
        """
        name, given = self._calls.pop(call_id, ("", {}))
        if not name:
            self._missed.add("results of unknown calls", result)
        return name, given

    def _ended(
        self, call_id: str, *, failed: bool, produced: Sequence[Object] = (), **more: object
    ) -> None:
        """Tell how a call ended, with what it produced."""
        fields: Object = {"status": "failed" if failed else "completed"}
        if produced:
            fields["content"] = produced
        self._scribe.update(call_id, fields | more)

    def _plan(self, steps: Iterable[Object], words: str = "content") -> None:
        """Tell a plan, unless it is a subagent's; `words` names the text of a step."""
        if not self._scribe.caller:
            self._scribe.plan(
                [plan_entry(text(step, words), text(step, "status")) for step in steps]
            )

    def _absolute(self, path: str) -> str:
        """Return a path in the conversation's folder as an absolute one; empty for none."""
        return os.path.join(self._scribe.facts.cwd, path) if path else ""


def call_fields(title: str, kind: str, given: object, *paths: str) -> Object:
    """Return the fields of a call, with the paths that are not empty as its locations."""
    fields: Object = {"title": title, "kind": kind, "rawInput": given}
    if places := [{"path": path} for path in paths if path]:
        fields["locations"] = places
    return fields


ANTHROPIC_TOKENS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
"""Names of the counts in a reply of Anthropic's API, in the order of `counted`."""


def counted(
    usage: object,
    given: str,
    made: str,
    read: str = "",
    written: str = "",
    thought: str = "",
    *,
    together: bool = False,
) -> dict[str, int | None]:
    """Return an agent's counts of tokens under the protocol's names, for `Scribe.tokens`.

    With `together` the tokens given include those read from a cache.
    """
    names = {
        "inputTokens": given,
        "outputTokens": made,
        "cachedReadTokens": read,
        "cachedWriteTokens": written,
        "thoughtTokens": thought,
    }
    counts = {told: number(usage, name) for told, name in names.items() if name}
    if together:
        counts["inputTokens"] = (counts["inputTokens"] or 0) - (counts["cachedReadTokens"] or 0)
    return counts


def whole_document(path: Path) -> Object:
    """Return the JSON object in a file that has to be whole; raises OSError."""
    missed = Missed()
    found = document(path, missed)
    if missed.counts or not found:
        raise OSError(f"{path} is being written, too large, or no JSON; it is read again later")
    return found
