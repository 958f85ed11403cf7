"""Origins of lines as a trace record of Agent Trace, a format for the authors of code.

Source: https://github.com/cursor/agent-trace, README.md (0.1.0, RFC, January 2026) and
schemas/trace-record.json, whose pattern of a version has two numbers. Only lines that the agent
showed have the contributor `ai`; of all others it is `unknown`. The address of a conversation is
`acphold:ID@SEQ`, which `acphold show ID@SEQ` shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote
from uuid import uuid4

from msgspec import Struct

from acphold.history.raw_update import storable
from acphold.origins.why import Origin, TurnFacts
from acphold.version import __version__

VERSION = "0.1"


class TracedRun(Struct):
    """Lines `first` to `last` of a file that have the same origin."""

    path: str
    first: int
    last: int
    origin: Origin

    @property
    def turn(self) -> tuple[str, int]:
        """The session and the number of the turn that they came from, if it is known."""
        claim = self.origin.claims[0]
        return claim.session_id, claim.turn


def runs(path: str, origins: Mapping[int, Origin]) -> list[TracedRun]:
    """Return the lines of a file in runs of the same origin."""
    found: list[TracedRun] = []
    for line, origin in sorted(origins.items()):
        if found and found[-1].last + 1 == line and found[-1].origin == origin:
            found[-1].last = line
        else:
            found.append(TracedRun(storable(path), line, line, origin))
    return found


def trace_record(
    found: Sequence[TracedRun], facts: Mapping[tuple[str, int], TurnFacts], commit: str | None
) -> dict[str, object]:
    """Return the record; `facts` of the turns by session and number, `commit` is the revision that
    the numbers of lines are of, None for files as they are now."""
    files: dict[str, dict[str, dict[str, object]]] = {}
    for run in found:
        conversations = files.setdefault(run.path, {})
        url = ""
        if run.origin.how != "unknown":
            its = facts[run.turn]
            url = f"acphold:{quote(its.session_id, safe='')}@{its.seq}"
        kind = "ai" if run.origin.how == "shown" else "unknown"
        key = f"{kind} {url}"
        if key not in conversations:
            address = {"url": url} if url else {}
            conversations[key] = {**address, "contributor": {"type": kind}, "ranges": []}
        ranges = conversations[key]["ranges"]
        assert isinstance(ranges, list)
        ranges.append({"start_line": run.first, "end_line": run.last})
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "version": VERSION,
        "id": str(uuid4()),
        "timestamp": now,
        **({"vcs": {"type": "git", "revision": commit}} if commit else {}),
        "tool": {"name": "acphold", "version": __version__},
        "files": [
            {"path": path, "conversations": [*conversations.values()]}
            for path, conversations in files.items()
        ],
    }
