"""An agent that watches its client: the exemplar, with a record of the whole connection.

It advertises some capabilities and not others, see `OFFERS`, so that a client can use what is not
there. It takes its time to answer, lists two sessions on a page, and answers a prompt without an
errand with a tour, see `client_tour`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence

from acphold.conformance.catalogue import Check, Witness
from acphold.conformance.client_tour import Tour, fence
from acphold.conformance.errands import errand
from acphold.conformance.exemplar import Exemplar, ExemplarError
from acphold.conformance.exemplar_turns import ExemplarSession, ExemplarTurn, Memory, Script
from acphold.conformance.inspection import CheckReport
from acphold.conformance.record import Json, Record
from acphold.conformance.verdicts import Finding, Signal, Verdict
from acphold.errors import INVALID_PARAMS
from acphold.rpc.transport import Transport
from acphold.schema import Implementation

WAIT_SECONDS = 0.2
"""Seconds before an answer: who does not wait for it is found."""

EARLIER = ("What was said before?", "And before that?")
"""Prompts of sessions that are there already, so that there is something to list and to load."""

EARLIER_ID = "earlier-"

NOTHING: Json = {}

OFFERS: dict[str, Json] = {
    "some": {"loadSession": True, "sessionCapabilities": {"list": {}}},
    "others": {
        "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": True},
        "sessionCapabilities": dict.fromkeys(
            ("resume", "close", "delete", "additionalDirectories"), NOTHING
        ),
        "auth": {"logout": NOTHING},
    },
    "none": {},
    "version": {},
}
"""Capabilities of the watcher, by name; `all` has the exemplar's. `version` is an agent of another
version of the protocol."""

OTHER_VERSION = 32_767
"""A version that no client speaks."""


class Watcher(Exemplar):
    """The watching agent. `on_turn` is called when a turn is over."""

    page_size = 2

    def __init__(
        self,
        transport: Transport,
        memory: Memory,
        record: Record,
        on_turn: Callable[[], None],
        offers: str = "some",
    ) -> None:
        super().__init__(transport, memory)
        self.record = record
        self._on_turn = on_turn
        self._offers = offers
        self._cursors: dict[str, int] = {}
        self._shown: set[str] = set()

    async def serve(self) -> None:
        await super().serve()
        self.record.ended = "the client left"

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

    def version(self, asked: int) -> int:
        return OTHER_VERSION if self._offers == "version" else super().version(asked)

    def capabilities(self) -> Json:
        found: Json | None = OFFERS.get(self._offers)
        return super().capabilities() if found is None else found

    async def new_session(self, params: Json) -> Json:
        if self._offers in ("some", "all") and not self.memory.sessions:
            for number, asked in enumerate(EARLIER, 1):
                said = {"user_message_chunk": asked, "agent_message_chunk": "Nothing of note."}
                history = [
                    {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
                    for kind, text in said.items()
                ]
                kept = ExemplarSession(params["cwd"], [], history, title=asked)
                kept.updated_at = self.now()
                self.memory.sessions[f"{EARLIER_ID}{number}"] = kept
        return await super().new_session(params)

    def cursor_at(self, place: int) -> str:
        cursor = secrets.token_urlsafe(9)
        self._cursors[cursor] = place
        return cursor

    def first_of(self, cursor: str | None) -> int:
        if cursor is not None and cursor not in self._cursors:
            raise ExemplarError(INVALID_PARAMS, "the cursor is none of ours")
        return 0 if cursor is None else self._cursors[cursor]

    def listed(self, session_id: str, kept: ExemplarSession) -> Json:
        """Earlier sessions have another folder beside their own each time."""
        found = super().listed(session_id, kept)
        if self._offers == "all" and session_id.startswith(EARLIER_ID):
            found["additionalDirectories"] = [f"{kept.cwd}/checked-{secrets.token_hex(4)}"]
        return found

    async def logout(self, params: Json) -> Json:
        self.sign_in_wanted = True
        return {}

    async def prompt(self, request: Json, params: Json) -> Json:
        session_id = params["sessionId"]
        if self.sign_in_wanted:
            await fence(self, session_id, "")
        self.signed_in()
        found = await super().prompt(request, params)
        if found["stopReason"] == "cancelled" and await fence(self, session_id, ""):
            call = {"toolCallId": f"late-{secrets.token_hex(4)}"}
            told = {"sessionUpdate": "tool_call", **call, "title": "Tidy up", "status": "pending"}
            ended = {"sessionUpdate": "tool_call_update", **call, "status": "failed"}
            for update in (told, ended):
                self.update(session_id, update, remembered=False)
            await fence(self, session_id, "late")
        return found

    def script(self, turn: ExemplarTurn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        if errand(made.words) is not None:
            return made
        return Tour(self, turn.session_id, made.words, made.is_cancelled, self._shown)

    async def answer(self, request: Json) -> None:
        if request["method"] != "session/prompt":
            await asyncio.sleep(WAIT_SECONDS)
        await super().answer(request)
        if request["method"] == "session/prompt":
            if self.sign_in_wanted:
                await fence(self, str(request["params"].get("sessionId")), "signed-out")
            self._on_turn()


def judged(checks: Sequence[Check], record: Record, seconds: float) -> CheckReport:
    """Return a report of the client rules on a record."""
    findings = tuple(_finding(check, record) for check in checks)
    return CheckReport("the client", _introduced(record), findings, seconds, [record])


def _introduced(record: Record) -> Implementation | None:
    """Return the client's name for itself."""
    for exchange in record.exchanges("client", "initialize"):
        info = exchange.request.params.get("clientInfo")
        if isinstance(info, dict) and isinstance(info.get("name"), str):
            return Implementation(name=info["name"], version=str(info.get("version", "")))
    return None


def _finding(check: Check, record: Record) -> Finding:
    if check.overview is None:
        return Finding(check.rule, Verdict.NOT_OBSERVABLE, check.unseen)
    witness = Witness()
    try:
        check.overview([record], witness)
        witness.judge(check.unless)
    except Signal as signal:
        return Finding(check.rule, signal.verdict, signal.why, signal.lines)
    return Finding(check.rule, Verdict.PASS)
