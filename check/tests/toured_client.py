"""A client that keeps every rule on a tour, with files and terminals that it only plays.

Its faults are a table: each is this client with one answer made in another way.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from acp_check import bounds
from acp_check.checks import CheckReport
from acp_check.errands import Memory
from acp_check.record import Record
from acp_check.rules.clients import CHECKS
from acp_check.watcher import (
    ARGUMENT,
    LIMIT,
    LOOKS,
    PRINTS_LONG,
    RUNS_ON,
    SHOWS,
    Watcher,
    report_on,
)
from acp_wire.transports.streams import memory_pair
from tests.caller import Guest
from tests.talker import Refused
from tests.virtual_time import play

Json = dict[str, Any]

CAN: Json = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": {}},
}
GONE = Refused({"code": -32002, "message": "there is none"})


def watched(
    conversation: Callable[[Guest], Awaitable[object]], can: Json, offers: str = "some"
) -> tuple[Guest, CheckReport]:
    """A conversation of a client with the watcher: the client, and the report on it."""
    record = Record("the client", {})

    async def meet() -> Guest:
        ours, theirs = memory_pair()
        watcher = Watcher(theirs, Memory(), record, lambda: None, offers)
        client = Guest(ours, asyncio.ensure_future(watcher.serve()))
        reading = asyncio.ensure_future(client.read())
        who = {"name": "editor", "version": "1"}
        params = {"protocolVersion": 1, "clientInfo": who, "clientCapabilities": can}
        await client.call("initialize", params)
        await conversation(client)
        await client.leave()
        await reading
        return client

    return play(meet()), report_on(CHECKS, record, 0.0)


class PlayedTerminal:
    """A terminal in which nothing runs: `printed` and `code` play its output and exit code."""

    def __init__(self, command: str, params: Json) -> None:
        self.params = params
        self.printed, self.code = "", 0
        self.is_over, self.waits = asyncio.Event(), 0
        if command == SHOWS:
            self.printed, self.code = f"set|{ARGUMENT}|{params['cwd']}\n", 3
        elif command == PRINTS_LONG:
            self.printed = "é" * 20 + "END"
        elif command == RUNS_ON:
            self.printed = "started\n"
            return
        asyncio.get_running_loop().call_later(bounds.MOMENT_SECONDS, self.is_over.set)

    def output(self) -> Json:
        kept, limit = self.printed, self.params.get("outputByteLimit", 10_000)
        while len(kept.encode()) > limit:
            kept = kept[1:]
        found: Json = {"output": kept, "truncated": kept != self.printed}
        return found | ({"exitStatus": {"exitCode": self.code}} if self.is_over.is_set() else {})

    def kill(self) -> Json:
        if not self.is_over.is_set():
            self.code = 137
        self.is_over.set()
        return {}


class Toured:
    """The answers of the client, for a `Guest`."""

    def __init__(self, client: Guest) -> None:
        self.client = client
        self.files: dict[str, str] = {}
        self.terminals: dict[str, PlayedTerminal] = {}
        self.made = 0
        client.answers |= {
            "fs/read_text_file": self.read,
            "fs/write_text_file": self.write,
            "terminal/create": self.create,
            "terminal/output": lambda params: self.terminal(params).output(),
            "terminal/wait_for_exit": self.wait,
            "terminal/kill": lambda params: self.terminal(params).kill(),
            "terminal/release": self.release,
            "elicitation/create": self.fill_in,
        }

    def read(self, params: Json) -> Json:
        if params["path"] in self.files:
            text = self.files[params["path"]]
        elif os.path.exists(params["path"]):
            text = Path(params["path"]).read_text(encoding="utf-8")
        else:
            raise GONE
        lines = text.splitlines(keepends=True)[params.get("line", 1) - 1 :]
        return {"content": "".join(lines[: params.get("limit", len(lines))])}

    def write(self, params: Json) -> Json:
        self.files[params["path"]] = params["content"]
        return {}

    def create(self, params: Json) -> Json:
        self.made += 1
        self.terminals[f"t{self.made}"] = PlayedTerminal(params["args"][1], params)
        return {"terminalId": f"t{self.made}"}

    def terminal(self, params: Json) -> PlayedTerminal:
        if params["terminalId"] not in self.terminals:
            raise GONE
        return self.terminals[params["terminalId"]]

    async def wait(self, params: Json) -> Json:
        terminal = self.terminal(params)
        terminal.waits += 1
        await terminal.is_over.wait()
        return {"exitCode": terminal.code}

    def release(self, params: Json) -> Json:
        self.terminal(params).kill()
        del self.terminals[params["terminalId"]]
        return {}

    def fill_in(self, params: Json) -> Json:
        if params["mode"] == "url":
            return {"action": "decline"}
        return {"action": "accept", "content": {"bread": "rye", "loaves": 3}}


Fault = Callable[[Toured], None]

FAULTS: dict[str, Fault] = {}
"""By the id of the rule that is broken; `:` and a word stand behind it where there are several."""


def _answers(name: str, method: str, changed: Callable[[Toured, Json], Any]) -> None:
    """A client that answers a method so; None leaves it to the good client."""

    def apply(toured: Toured) -> None:
        good = toured.client.answers.get(method)

        def answer(params: Json) -> Any:
            found = changed(toured, params)
            if found is None:
                assert good is not None
                return good(params)
            return found

        toured.client.answers[method] = answer

    FAULTS[name] = apply


def _falls_silent(name: str, when: Callable[[Json], bool]) -> None:
    """A client that answers no more behind such a message."""

    def apply(toured: Toured) -> None:
        good = toured.client.take

        def take(message: Json) -> None:
            if when(message):
                toured.client.answers["_acphold.check/fence"] = never
            good(message)

        toured.client.take = take  # type: ignore[method-assign]

    FAULTS[name] = apply


async def never(params: Json) -> None:
    await asyncio.Event().wait()


def _changed(**members: object) -> Callable[[Toured, Json], Json]:
    """The output of terminals with a limit has these members instead."""

    def change(toured: Toured, params: Json) -> Json:
        terminal = toured.terminal(params)
        is_limited = terminal.params.get("outputByteLimit") == LIMIT
        return terminal.output() | (members if is_limited else {})

    return change


FENCE = "_acphold.check/fence"
_answers("client.unknown-request", FENCE, lambda *_: never({}))
_answers("client.unknown-request-error", FENCE, lambda *_: {})
for _rule, _method, _kind in (
    ("client.unknown-notification", "_acphold.check/note", ""),
    ("client.unknown-cancel", "$/cancel_request", ""),
    ("client.unknown-completion", "elicitation/complete", ""),
    ("client.unknown-update", "session/update", "'_acphold_check', 'text'"),
    ("client.unknown-category", "session/update", "'category': '_acphold_check'"),
    ("client.unknown-option-type", "session/update", "'type': '_acphold_check'"),
):
    _falls_silent(
        _rule,
        lambda it, method=_method, kind=_kind: (  # type: ignore[misc]
            it.get("method") == method and kind in str(it)
        ),
    )

_answers(
    "client.file-created",
    "fs/write_text_file",
    lambda it, params: None if params["path"] in it.files else _raise(GONE),
)
_answers(
    "client.file-content:kept",
    "fs/write_text_file",
    lambda it, params: it.files.setdefault(params["path"], params["content"]) and {},
)
_answers("client.file-content:lost", "fs/write_text_file", lambda *_: {})
_answers(
    "client.file-lines:all",
    "fs/read_text_file",
    lambda it, params: (
        {"content": it.files[params["path"]]} if params["path"] in it.files else None
    ),
)
_answers(
    "client.file-lines:from-zero",
    "fs/read_text_file",
    lambda it, params: it.read(params | {"line": params["line"] + 1}) if "line" in params else None,
)
_answers(
    "client.file-missing",
    "fs/read_text_file",
    lambda it, params: None if it.files else {"content": ""},
)


def _raise(error: Exception) -> Any:
    raise error


def _made(name: str, changed: Callable[[PlayedTerminal], object]) -> None:
    """Terminals are made in another way."""

    def create(toured: Toured, params: Json) -> Json:
        made = toured.create(params)
        changed(toured.terminals[made["terminalId"]])
        return made

    _answers(name, "terminal/create", create)


def _shows(name: str, old: str, new: str) -> None:
    _made(name, lambda it: setattr(it, "printed", it.printed.replace(old, new)))


_shows("client.terminal-command:argument", "two words", "two")
_shows("client.terminal-command:variable", "set|", "|")
_shows("client.terminal-command:folder", "|/", "|/elsewhere/")
_made("client.terminal-exit", lambda it: setattr(it, "code", 0))
_answers(
    "client.terminal-exit:beside",
    "terminal/output",
    lambda it, params: {
        name: value for name, value in it.terminal(params).output().items() if name != "exitStatus"
    },
)


_answers(
    "client.terminal-exit:not-waited",
    "terminal/wait_for_exit",
    lambda it, params: it.terminal(params).output().get("exitStatus", {"exitCode": None}),
)


async def _create_late(toured: Toured, params: Json) -> Json:
    made = toured.create(params)
    if params["args"][1] == RUNS_ON:
        await asyncio.sleep(10)
        toured.terminals[made["terminalId"]].is_over.set()
    return made


_answers("client.terminal-at-once", "terminal/create", lambda it, params: _create_late(it, params))
_answers(
    "client.terminal-at-once:status",
    "terminal/output",
    lambda it, params: {"exitStatus": {"exitCode": None}} | it.terminal(params).output(),
)
_answers("client.terminal-limit:more", "terminal/output", _changed(output="é" * 20 + "END"))
_answers("client.terminal-limit:halves", "terminal/output", _changed(output="\ufffdééEND"))
_answers("client.terminal-limit:beginning", "terminal/output", _changed(output="é" * 5))
_answers("client.terminal-limit:not-told", "terminal/output", _changed(truncated=False))


async def _kill_in_vain(toured: Toured, params: Json) -> Json:
    terminal = toured.terminal(params)
    asyncio.get_running_loop().call_later(10, terminal.is_over.set)
    return {}


_answers("client.terminal-kill", "terminal/kill", lambda it, params: _kill_in_vain(it, params))


async def _kill_behind_wait(toured: Toured, params: Json) -> Json:
    terminal = toured.terminal(params)
    if terminal.waits:
        asyncio.get_running_loop().call_later(10, terminal.is_over.set)
        await terminal.is_over.wait()
    return terminal.kill()


_answers(
    "client.terminal-kill:waits",
    "terminal/kill",
    lambda it, params: _kill_behind_wait(it, params),
)
_answers("client.terminal-kill:gone", "terminal/kill", lambda it, params: it.release(params))
_answers("client.terminal-kill:hangs", "terminal/kill", lambda it, params: {})
_answers("client.terminal-released", "terminal/release", lambda *_: {})


def _one_for_all(toured: Toured, params: Json) -> Json:
    toured.terminals["t"] = PlayedTerminal(params["args"][1], params)
    return {"terminalId": "t"}


_answers("client.terminal-ids", "terminal/create", _one_for_all)
_answers(
    "client.file-exact:latin-1",
    "fs/read_text_file",
    lambda it, params: {"content": it.read(params)["content"].encode().decode("latin-1")},
)
_answers(
    "client.file-exact:trimmed",
    "fs/read_text_file",
    lambda it, params: {"content": it.read(params)["content"].strip()},
)
_answers(
    "client.file-exact:stripped",
    "fs/write_text_file",
    lambda it, params: it.files.update({params["path"]: params["content"].strip()}) or {},
)


def _runs_on(terminal: PlayedTerminal) -> None:
    if terminal.params["args"][1].startswith(LOOKS):
        terminal.printed = "alive\n"


_made("client.terminal-release-ends", _runs_on)
_answers(
    "client.form-content",
    "elicitation/create",
    lambda it, params: {"action": "accept", "content": {"bread": "white", "loaves": 3}},
)
_answers(
    "client.permission-options",
    "session/request_permission",
    lambda it, params: (
        {"outcome": {"outcome": "selected", "optionId": "call-3-allow"}}
        if params["options"][0]["name"] == "allow"
        else None
    ),
)
