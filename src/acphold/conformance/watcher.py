"""An agent that watches its client: the exemplar, with a record of the whole connection.

It advertises some capabilities and not others, so that a client can break its word. A prompt
without an errand is answered with a tour of what an agent may do: a thought, a plan, a tool call, a
permission, and a file and a terminal if the client offers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from acphold.conformance.catalogue import Check, Witness
from acphold.conformance.errands import errand
from acphold.conformance.exemplar import Exemplar
from acphold.conformance.exemplar_turns import Memory, Script, Turn
from acphold.conformance.inspection import Report
from acphold.conformance.record import Json, Record
from acphold.conformance.verdicts import Finding, Signal, Verdict, excerpt
from acphold.rpc.transport import Transport
from acphold.schema import Implementation


class Tour(Script):
    """Demonstrates one of everything."""

    async def greet(self) -> None:
        self.think("Let me show what I can do.")
        await self.plan()
        if self.offers("fs", "readTextFile"):
            await self.read("README.md")
        await self.run_command("echo this is a check")
        self.say(
            "That was a tour. Say `Count from 1 to 300, each number on a line of its own. Do not "
            "use any tool.` and cancel it, or cancel while a permission is asked for."
        )


class Watcher(Exemplar):
    """The watching agent. `on_turn` is called when a turn is over."""

    def __init__(
        self, transport: Transport, memory: Memory, record: Record, on_turn: Callable[[], None]
    ) -> None:
        super().__init__(transport, memory)
        self.record = record
        self._on_turn = on_turn

    async def take(self, raw: bytes) -> None:
        self.record.add(asyncio.get_running_loop().time(), "client", raw)
        await super().take(raw)

    def write(self, line: bytes) -> None:
        self.record.add(asyncio.get_running_loop().time(), "agent", line)
        super().write(line)

    async def initialize(self, params: Json) -> Json:
        found = await super().initialize(params)
        self.record.offers = self.client
        return found

    def info(self) -> Json:
        return {"name": "acphold-check", "title": "acphold check --client", "version": "1"}

    def capabilities(self) -> Json:
        nothing: Json = {}
        return {
            "loadSession": True,
            "promptCapabilities": {"embeddedContext": True},
            "mcpCapabilities": {"http": True},
            "sessionCapabilities": dict.fromkeys(("list", "resume", "close"), nothing),
        }

    def script(self, turn: Turn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        if errand(made.words) is not None:
            return made
        return Tour(self, turn.session_id, made.words, made.is_cancelled)

    async def answer(self, request: Json) -> None:
        await super().answer(request)
        if request["method"] == "session/prompt":
            self._on_turn()


def judged(checks: Sequence[Check], record: Record, seconds: float) -> Report:
    """Return a report of the client rules on a record."""
    findings = tuple(_finding(check, record) for check in checks)
    return Report("the client", _introduced(record), findings, seconds)


def _introduced(record: Record) -> Implementation | None:
    """Return the client's name for itself."""
    for exchange in record.exchanges("client", "initialize"):
        info = exchange.request.params.get("clientInfo")
        if isinstance(info, dict) and isinstance(info.get("name"), str):
            return Implementation(name=info["name"], version=str(info.get("version", "")))
    return None


def _finding(check: Check, record: Record) -> Finding:
    if check.observer is None:
        return Finding(check.rule, Verdict.NOT_OBSERVABLE, check.unseen)
    witness = Witness()
    check.observer([record], witness)
    try:
        witness.judge(check.unless)
    except Signal as signal:
        return Finding(check.rule, signal.verdict, signal.why, excerpt(signal.lines))
    return Finding(check.rule, Verdict.PASS)
