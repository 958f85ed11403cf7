"""The watcher: an agent that takes its client on a tour, and records the whole connection.

It advertises some capabilities and not others, see `OFFERS`, so that a client can use what is not
there. It takes its time to answer, lists two sessions on a page, and answers a prompt without an
errand with a tour: a thought, a plan, requests and updates that no client knows, a permission, and
whatever the client offers: files that are written and read in pieces, terminals that are limited,
killed and released, forms. Each step leaves on the record what `rules.client_answers` looks at.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import uuid4

from acp_check import bounds
from acp_check.checks import Check, CheckReport
from acp_check.errands import (
    SENTENCES,
    ExemplarSession,
    ExemplarTurn,
    InVainError,
    Memory,
    Script,
    Speaker,
    errand,
    write_text,
)
from acp_check.exemplar import Exemplar
from acp_check.record import Json, Record, RefusalError
from acp_check.usage import OFFERS
from acp_check.verdicts import Finding, Signal, Verdict
from acp_wire.errors import INVALID_PARAMS
from acp_wire.rpc.transport import Transport
from acp_wire.schema import Implementation
from acp_wire.schema.updates import has_capability
from acp_wire.tasks import timeout

FENCE = "_acphold.check/fence"
"""A request that no client knows; its `behind` names the message that was sent before."""

FILE = "acphold-check-"
"""The beginning of the names of all files that the tour makes."""

LINES = "one\ntwo\nthree\n"
OWN = "own-"
OWN_LINES = "  J\u00fcrgen\n\ttwo \n\nthree\n"
"""The text of a file that the agent writes itself, whose name has `OWN`, and the client reads."""
WRITTEN = "  J\u00fcrgen\n\tfour\n"
"""The text that the client then writes there: an editor may take white space off a line's end."""
AFTER = "after\n"

# They take a moment, so that a client that does not wait for their end is seen.
SHOWS = f'sleep {bounds.MOMENT_SECONDS:g}; printf "%s|%s|" "$CHECKED_WITH" "$1"; pwd; exit 3'
SET, ARGUMENT, STATUS = "set", "two words", 3

LIMIT = 10
LONG = "é" * 20 + "END"
PRINTS_LONG = f"sleep {bounds.MOMENT_SECONDS:g}; printf '" + "\\303\\251" * 20 + "END'"

RUNS_ON = f"echo started; exec sleep {2 * bounds.TERMINAL_SECONDS:g}"
LATE = f"sleep {bounds.LATE_COMMAND_SECONDS}; echo alive > "
LOOKS = f"cat {FILE}"

FORM: Json = {
    "type": "object",
    "properties": {
        "bread": {"type": "string", "enum": ["rye", "wheat"]},
        "loaves": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["bread", "loaves"],
}

UNKNOWN_UPDATE: Json = {"sessionUpdate": "_acphold_check", "text": "no client knows this update"}
UNKNOWN_CATEGORY: Json = {
    "id": "acphold-check",
    "name": "An option of an unknown category",
    "category": "_acphold_check",
    "type": "select",
    "currentValue": "on",
    "options": [{"value": "on", "name": "On"}],
}
UNKNOWN_TYPE: Json = {
    "id": "acphold-check",
    "name": "An option of an unknown type",
    "type": "_acphold_check",
    "currentValue": 1,
}


class Tour(Script):
    """See the module. `shown` are the steps that are not shown again on this connection."""

    def __init__(self, agent: Exemplar, turn: ExemplarTurn, words: str, shown: set[str]) -> None:
        super().__init__(agent, turn, words)
        self._watcher = agent
        self._shown = shown
        self._trace = ""
        self._released_at = 0.0
        self._is_allowed = False
        self._has_terminals = False

    async def greet(self) -> None:
        self.think("Let me show what I can do.")
        await self.plan()
        if self.offers("fs", "readTextFile"):
            await self.read("README.md")
        await self._unknown()
        await self.run_command("echo this is a check")
        steps = (
            self._files,
            self._own_file,
            self._terminals,
            self._two_questions,
            self._forms,
            self._look,
        )
        for step in steps:
            if not self.turn.cancelled:
                with suppress(InVainError):  # the rules find it on the record
                    await step()
        self.say(
            f"That was a tour. Now send `{SENTENCES['count']}` and cancel the turn, or cancel a "
            "turn while it asks for permission."
        )

    async def ask_permission(self, call: str) -> bool:
        self._is_allowed = await super().ask_permission(call)
        return self._is_allowed

    async def in_terminal(self, call: str, command: str) -> str:
        printed = await super().in_terminal(call, command)
        self._has_terminals = True
        return printed

    # -- what no client knows -----------------------------------------------------------------

    async def _unknown(self) -> None:
        """Send messages that no client knows, each with a fence, until one is not answered."""
        if not await fence(self.agent, self.session_id, ""):
            return
        tell, options = self._watcher.notify, self._watcher.options(self.session_id)
        steps: dict[str, Callable[[], None]] = {
            "notification": lambda: tell("_acphold.check/note", {"text": "nobody knows this"}),
            "cancel": lambda: tell("$/cancel_request", {"requestId": "acphold-check"}),
            "update": lambda: self._watcher.update(
                self.session_id, UNKNOWN_UPDATE, remembered=False
            ),
            "category": lambda: self._tell_options([*options, UNKNOWN_CATEGORY]),
            "type": lambda: self._tell_options([*options, UNKNOWN_TYPE]),
        }
        if self._can_show("url"):
            steps["completion"] = lambda: tell(
                "elicitation/complete", {"elicitationId": "acphold-check-none"}
            )
        for behind, step in steps.items():
            step()
            if not await fence(self.agent, self.session_id, behind):
                return
        self._tell_options(options)

    def _can_show(self, mode: str) -> bool:
        return has_capability(self._watcher.client, "elicitation", mode)

    def _tell_options(self, options: list[Json]) -> None:
        changed = {"sessionUpdate": "config_option_update", "configOptions": options}
        self._watcher.update(self.session_id, changed, remembered=False)

    # -- files --------------------------------------------------------------------------------

    async def _files(self) -> None:
        reads, writes = (self.offers("fs", it) for it in ("readTextFile", "writeTextFile"))
        if not (self._is_allowed and (reads or writes)):
            return
        # A name of its own: the file of the turn before was removed behind the client's back.
        path = self.absolute(f"{FILE}{uuid4().hex[:8]}.txt")
        try:
            if reads:
                await self._refuses("fs/read_text_file", path=path)
            if writes and await self._refuses("fs/write_text_file", path=path, content=LINES):
                with suppress(InVainError):
                    write_text(path, LINES)  # does it only write where a file is?
                await self._refuses("fs/write_text_file", path=path, content=LINES)
            if writes and reads:
                at: Json
                for at in ({}, {"line": 2, "limit": 1}, {"line": 3}, {"limit": 1}):
                    await self._refuses("fs/read_text_file", path=path, **at)
                await self._refuses("fs/write_text_file", path=path, content=AFTER)
                await self._refuses("fs/read_text_file", path=path)
        finally:
            with suppress(OSError):
                os.remove(path)

    async def _own_file(self) -> None:
        """Write a file, and have the client read it and write it."""
        if not (self._is_allowed and self.offers("fs", "readTextFile")):
            return
        path = self.absolute(f"{FILE}{OWN}{uuid4().hex[:8]}.txt")
        try:
            write_text(path, OWN_LINES)
            await self._refuses("fs/read_text_file", path=path)
            if self.offers("fs", "writeTextFile"):
                await self._refuses("fs/write_text_file", path=path, content=WRITTEN)
                await self._refuses("fs/read_text_file", path=path)
        finally:
            with suppress(OSError):
                os.remove(path)

    async def _refuses(self, method: str, **params: object) -> bool:
        """Ask the client; return True if it refuses."""
        try:
            await self.ask(method, params)
        except InVainError:
            return True
        return False

    # -- terminals ----------------------------------------------------------------------------

    async def _terminals(self) -> None:
        if not self._has_terminals:
            return
        if LATE not in self._shown:
            trace = f"{FILE}{os.getpid()}.late"
            await self._use(await self.terminal(f"{LATE}{trace}"), "release")
            self._trace, self._released_at = trace, asyncio.get_running_loop().time()
        env = [{"name": "CHECKED_WITH", "value": SET}]
        shown = await self.terminal(SHOWS, "sh", ARGUMENT, env=env)
        limited = await self.terminal(PRINTS_LONG, outputByteLimit=LIMIT)
        await self._use(shown, "wait_for_exit", "output", "release", "output")
        await self._use(limited, "wait_for_exit", "output", "release")
        running = await self.terminal(RUNS_ON)
        await self._use(running, "output")
        # The kill comes while a wait is pending, as after a timeout.
        await asyncio.gather(
            self._use(running, "wait_for_exit"),
            self._use(running, "kill", "wait_for_exit", "output"),
        )
        await self._use(running, "release")

    async def _look(self) -> None:
        """Look for a trace of the command whose terminal was released while it ran."""
        if not self._trace:
            return
        await asyncio.sleep(
            self._released_at + bounds.TRACE_SECONDS - asyncio.get_running_loop().time()
        )
        looking = await self.terminal(f"cat {self._trace}; rm -f {self._trace}")
        await self._use(looking, "wait_for_exit", "output", "release")
        self._shown.add(LATE)

    async def _use(self, terminal: Json, *methods: str) -> None:
        for method in methods:
            await self._refuses(f"terminal/{method}", **terminal)

    # -- questions ----------------------------------------------------------------------------

    async def _two_questions(self) -> None:
        """Ask twice at once; each question has options of its own."""
        calls = [self.tool(f"Ask at the same time as another: {n}", "other") for n in (1, 2)]
        asked: list[Json] = [
            {
                "toolCall": {"toolCallId": call},
                "options": [
                    {"optionId": f"{call}-{kind}", "name": kind, "kind": f"{kind}_once"}
                    for kind in ("allow", "reject")
                ],
            }
            for call in calls
        ]
        results = await asyncio.gather(
            *(self._refuses("session/request_permission", **params) for params in asked)
        )
        for call, is_refused in zip(calls, results, strict=True):
            self.change(call, status="failed" if is_refused else "completed")

    async def _forms(self) -> None:
        if self._can_show("form"):
            form = {"mode": "form", "message": "Which bread?", "requestedSchema": FORM}
            await self._refuses("elicitation/create", **form)
        if self._can_show("url"):
            page = {"elicitationId": "acphold-check", "url": "https://example.com/acphold-check"}
            await self._refuses("elicitation/create", mode="url", message="See a page", **page)
            self._watcher.notify("elicitation/complete", {"elicitationId": "acphold-check"})


async def fence(agent: Speaker, session_id: str, behind: str) -> bool:
    """Return True if the client still answers."""
    try:
        async with timeout(bounds.FENCE_SECONDS):
            await agent.ask(FENCE, {"sessionId": session_id, "behind": behind})
    except InVainError:
        return True
    except TimeoutError:
        return False
    return True


EARLIER = ("What was said before?", "And before that?")
"""Prompts of sessions that are there already, so that there is something to list and to load."""

EARLIER_ID = "earlier-"

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
        on_turn: Callable[[], object],
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
            raise RefusalError(INVALID_PARAMS, "the cursor is none of ours")
        return 0 if cursor is None else self._cursors[cursor]

    def list_entry(self, session_id: str, kept: ExemplarSession) -> Json:
        """Earlier sessions have another folder beside their own each time."""
        found = super().list_entry(session_id, kept)
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
        self.require_sign_in()
        found = await super().prompt(request, params)
        if found["stopReason"] == "cancelled" and await fence(self, session_id, ""):
            call = {"toolCallId": f"late-{secrets.token_hex(4)}"}
            begun = {"sessionUpdate": "tool_call", **call, "title": "Tidy up", "status": "pending"}
            ended = {"sessionUpdate": "tool_call_update", **call, "status": "failed"}
            for update in (begun, ended):
                self.update(session_id, update, remembered=False)
            await fence(self, session_id, "late")
        return found

    def script(self, turn: ExemplarTurn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        if errand(made.words) is not None:
            return made
        return Tour(self, turn, made.words, self._shown)

    async def answer(self, request: Json) -> None:
        if request["method"] != "session/prompt":
            await asyncio.sleep(bounds.ANSWER_DELAY_SECONDS)
        await super().answer(request)
        if request["method"] == "session/prompt":
            if self.sign_in_wanted:
                await fence(self, str(request["params"].get("sessionId")), "signed-out")
            self._on_turn()


def report_on(checks: Sequence[Check], record: Record, seconds: float) -> CheckReport:
    """Return a report of the client rules on a record."""
    findings = []
    for check in checks:
        finding = Finding(check.rule, Verdict.PASS)
        if check.unseen:
            finding = Finding(check.rule, Verdict.NOT_OBSERVABLE, check.unseen)
        else:
            try:
                check.observe([record])
            except Signal as signal:
                finding = Finding.of(check.rule, signal)
        findings.append(finding)
    client = None
    for exchange in record.exchanges("client", "initialize"):
        info = exchange.asked.params.get("clientInfo")
        if client is None and isinstance(info, dict) and isinstance(info.get("name"), str):
            client = Implementation(name=info["name"], version=str(info.get("version", "")))
    return CheckReport("the client", client, tuple(findings), seconds, [record])
