"""The agent that watches clients: whatever they answer, its turns end, and it says what came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from acphold.conformance.exemplar_turns import Memory
from acphold.conformance.record import Record
from acphold.conformance.rules.clients import CHECKS
from acphold.conformance.verdicts import Verdict
from acphold.conformance.watcher import Watcher, judged
from acphold.transports.memory import MemoryTransport, memory_pair
from tests.conformance.virtual_time import play

Json = dict[str, Any]
Answers = Callable[[Json], Json | None]
"""The `result` or `error` for a request of the agent; None answers nothing."""

UPDATE = "session/update"
ALL = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
WRITE = "With your tool for writing files, write the text `heron` into the file `note.txt`."


class Client:
    """Says a line at a time, and answers by `answers`; `said` is all that the agent wrote."""

    def __init__(self, transport: MemoryTransport, answers: Answers) -> None:
        self.said: list[Json] = []
        self._transport = transport
        self._answers = answers
        self._news = asyncio.Event()

    def write(self, raw: bytes) -> None:
        self._transport.send(raw + b"\n")

    def say(self, **message: object) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def ask(self, id: int, method: str, **params: object) -> Json:
        self.say(id=id, method=method, params=params)
        return await self.answered(id)

    async def answered(self, id: int) -> Json:
        return await self.heard(lambda it: it.get("id") == id and "method" not in it)

    async def heard(self, fits: Callable[[Json], bool]) -> Json:
        while not (found := [message for message in self.said if fits(message)]):
            self._news.clear()
            await self._news.wait()
        return found[0]

    async def listen(self) -> None:
        rest = b""
        while chunk := await self._transport.receive():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.said.append(message)
                answer = self._answers(message) if "id" in message and "method" in message else None
                if answer is not None:
                    self.say(id=message["id"], **answer)
            self._news.set()

    def texts(self) -> str:
        """All that the agent said to the person."""
        updates = [it["params"]["update"] for it in self.said if it.get("method") == UPDATE]
        chunks = [it["content"]["text"] for it in updates if "chunk" in it["sessionUpdate"]]
        return "".join(chunks)

    def asked(self, method: str) -> Iterator[Json]:
        return (it["params"] for it in self.said if it.get("method") == method)


def watched(
    conversation: Callable[[Client], Any], answers: Answers = lambda _: None
) -> tuple[Client, dict[str, str]]:
    """A conversation with the watcher: the client, and the rules that it broke."""
    record = Record("the client", {})

    async def meet() -> Client:
        ours, theirs = memory_pair()
        watcher = asyncio.ensure_future(Watcher(theirs, Memory(), record, lambda: None).serve())
        client = Client(ours, answers)
        listening = asyncio.ensure_future(client.listen())
        who = {"name": "editor", "version": "1"}
        params = {"protocolVersion": 1, "clientInfo": who, "clientCapabilities": ALL}
        await client.ask(1, "initialize", **params)
        await client.ask(2, "session/new", cwd="/w", mcpServers=[])
        await conversation(client)
        await ours.aclose()
        await watcher
        await listening
        return client

    client = play(meet())
    failed = judged(CHECKS, record, 0.0).of(Verdict.FAIL)
    return client, {finding.rule.id: finding.why for finding in failed}


def prompt(text: str) -> Json:
    return {"sessionId": "session-1", "prompt": [{"type": "text", "text": text}]}


def yes(request: Json) -> Json:
    options = request["params"]["options"]
    return {"result": {"outcome": {"outcome": "selected", "optionId": options[0]["optionId"]}}}


def refusing(request: Json) -> Json:
    """Permits all, and can do nothing."""
    if request["method"] == "session/request_permission":
        return yes(request)
    return {"error": {"code": -32603, "message": "not today"}}


async def tour(client: Client) -> None:
    ended = await client.ask(3, "session/prompt", **prompt("Hello"))
    assert ended["result"] == {"stopReason": "end_turn"}


def test_a_client_that_refuses_all_is_told_so_and_asked_nothing_impossible() -> None:
    client, broken = watched(tour, refusing)
    assert not broken
    assert "terminal/create was refused: not today" in client.texts()
    assert "fs/read_text_file was refused: not today" in client.texts()
    (made,) = client.asked("terminal/create")
    assert (made["command"], made["args"]) == ("sh", ["-c", "echo this is a check"])
    assert not any("terminalId" in params for params in client.asked("terminal/release"))


def test_a_terminal_without_an_id_is_not_used() -> None:
    def empty(request: Json) -> Json:
        is_made = request["method"] == "terminal/create"
        return {"result": {}} if is_made else refusing(request)

    client, _ = watched(tour, empty)
    assert "terminal/create was answered without a terminalId" in client.texts()
    assert not list(client.asked("terminal/wait_for_exit"))


def test_a_question_without_an_answer_ends_and_is_told_to_be_unanswered() -> None:
    async def write(client: Client) -> None:
        ended = await client.ask(3, "session/prompt", **prompt(WRITE))
        assert ended["result"] == {"stopReason": "end_turn"}

    def only_permits(request: Json) -> Json | None:
        return yes(request) if request["method"] == "session/request_permission" else None

    client, broken = watched(write, only_permits)
    assert "the client did not answer fs/write_text_file" in client.texts()
    assert broken == {"client.answers": "it was not answered while its turn ran"}


def test_a_cancel_reaches_a_question_that_nobody_answers() -> None:
    async def cancel(client: Client) -> None:
        client.say(id=3, method="session/prompt", params=prompt(WRITE))
        await client.heard(lambda it: it.get("method") == "session/request_permission")
        client.say(method="session/cancel", params={"sessionId": "session-1"})
        assert (await client.answered(3))["result"] == {"stopReason": "cancelled"}

    _, broken = watched(cancel)
    assert broken.keys() == {"client.permission-cancelled"}


def test_a_cancel_that_is_sent_as_a_request_is_found() -> None:
    async def cancel(client: Client) -> None:
        assert "error" in await client.ask(3, "session/cancel", sessionId="session-1")

    _, broken = watched(cancel)
    assert broken == {"client.kinds": "session/cancel is a notification, and has an id"}


ODD_LINES = [
    b'{"jsonrpc": "2.0", "method": "_note", "params": {"text": "\xff"}}',
    b'{"jsonrpc": "2.0", "id": 7, "method": ["session/new"]}',
    b'{"jsonrpc": "2.0", "id": {}, "result": {}}',
    b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": {}}}',
    b'{"jsonrpc": "2.0", "method": "session/cancel", "params": []}',
    b"[" * 100_000,
    b"null",
]


def test_no_line_of_a_client_ends_the_watch() -> None:
    async def mumble(client: Client) -> None:
        for line in ODD_LINES:
            client.write(line)
        await tour(client)

    _, broken = watched(mumble, refusing)
    assert {"client.messages", "client.answers", "client.schema"} <= broken.keys()
