"""The agent that watches clients: whatever they answer, it ends its turns and reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from acp_check.rules.clients import CHECKS
from acp_check.verdicts import Level, Verdict
from acp_check.watcher import FENCE
from tests import toured_client
from tests.caller import Guest
from tests.talker import Refused

ALL = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
WRITE = "With your tool for writing files, write the text `heron` into the file `note.txt`."
READ = "Read the file `note.txt` with your tool for reading files, and repeat what it says."
SESSION = "session-1"


def watched(
    conversation: Callable[[Guest], Any], offers: str = "some"
) -> tuple[Guest, dict[str, str]]:
    """A conversation in a session: the client, and the rules that it broke."""

    async def in_session(client: Guest) -> None:
        await client.new("/w")
        await conversation(client)

    client, report = toured_client.watched(in_session, ALL, offers)
    return client, {finding.rule.id: finding.why for finding in report.of(Verdict.FAIL)}


def asked(client: Guest, method: str) -> list[dict[str, Any]]:
    return [it["params"] for it in client.messages if it.get("method") == method]


async def never(params: dict[str, Any]) -> None:
    await asyncio.Event().wait()


async def tour(client: Guest) -> None:
    assert await client.begin_prompt(SESSION, "Hello") == {"stopReason": "end_turn"}


def test_a_client_that_refuses_all_is_told_so_and_asked_nothing_impossible() -> None:
    client, broken = watched(tour)
    assert broken.keys() == {"client.offers"}
    assert "terminal/create was refused: not here" in client.text()
    assert "fs/read_text_file was refused: not here" in client.text()
    (made,) = asked(client, "terminal/create")
    assert (made["command"], made["args"]) == ("sh", ["-c", "echo this is a check"])
    assert not any("terminalId" in params for params in asked(client, "terminal/release"))


def test_a_terminal_without_an_id_is_not_used() -> None:
    async def made_without_id(client: Guest) -> None:
        client.answers["terminal/create"] = lambda _: {}
        await tour(client)

    client, _ = watched(made_without_id)
    assert "terminal/create was answered without a terminalId" in client.text()
    assert not asked(client, "terminal/wait_for_exit")


def test_a_question_without_an_answer_ends_and_is_told_to_be_unanswered() -> None:
    async def write(client: Guest) -> None:
        client.answers["fs/write_text_file"] = never
        assert await client.begin_prompt(SESSION, WRITE) == {"stopReason": "end_turn"}
        assert await client.begin_prompt(SESSION, READ) == {"stopReason": "end_turn"}

    client, broken = watched(write)
    assert "the client did not answer fs/write_text_file" in client.text()
    assert broken["client.answers"] == "the request was not answered while its turn ran"


@pytest.mark.parametrize("answered", range(12))
def test_a_client_that_is_closed_at_any_question_breaks_no_must(answered: int) -> None:
    async def close(client: Guest) -> None:
        good, left = client.take, asyncio.Event()

        def take(message: dict[str, Any]) -> None:
            questions = [it for it in client.messages if {"method", "id"} <= it.keys()]
            if {"method", "id"} <= message.keys() and len(questions) >= answered:
                left.set()
                return
            good(message)

        client.take = take  # type: ignore[method-assign]
        turn = asyncio.ensure_future(client.begin_prompt(SESSION, "Hello"))
        await asyncio.wait(
            [turn, asyncio.ensure_future(left.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        turn.cancel()

    _, broken = watched(close)
    musts = {check.rule.id for check in CHECKS if check.rule.level is Level.MUST}
    assert broken.keys() & musts <= {"client.offers"}


def test_a_cancel_reaches_a_question_that_nobody_answers() -> None:
    async def cancel(client: Guest) -> None:
        client.answers["session/request_permission"] = never
        turn = client.begin_prompt(SESSION, WRITE)
        await client.until(lambda: asked(client, "session/request_permission"))
        client.tell("session/cancel", {"sessionId": SESSION})
        assert await turn == {"stopReason": "cancelled"}

    _, broken = watched(cancel)
    assert broken.keys() == {"client.permission-cancelled"}


def test_a_cancel_that_is_sent_as_a_request_is_found() -> None:
    async def cancel(client: Guest) -> None:
        await client.refused("session/cancel", {"sessionId": SESSION})

    _, broken = watched(cancel)
    assert broken == {"client.kinds": "session/cancel is a notification, but has an id"}


COUNT = "Count from 1 to 300, each number on a line of its own. Do not use any tool."


async def cancel_counting(client: Guest) -> None:
    turn = client.begin_prompt(SESSION, COUNT)
    await client.until(lambda: "1" in client.text())
    client.tell("session/cancel", {"sessionId": SESSION})
    assert await turn == {"stopReason": "cancelled"}


def test_a_client_that_answers_no_more_after_late_updates_is_found() -> None:
    async def fall_silent(client: Guest) -> None:
        good = client.take

        def take(message: dict[str, Any]) -> None:
            if "'late-" in str(message):
                client.answers[FENCE] = never
            good(message)

        client.take = take  # type: ignore[method-assign]
        await cancel_counting(client)

    assert watched(cancel_counting)[1] == {}
    assert watched(fall_silent)[1].keys() == {"client.late-updates"}


async def answer_first(params: dict[str, Any]) -> None:
    if params["behind"]:
        await never(params)
    raise Refused({"code": -32601, "message": "not here"})


async def prompt_signed_out(client: Guest) -> None:
    await client.call("logout", {})
    await client.refused("session/prompt", {"sessionId": SESSION, "prompt": []})


def test_a_client_that_leaves_when_it_has_to_sign_in_again_is_found() -> None:
    async def leave_then(client: Guest) -> None:
        client.answers[FENCE] = answer_first
        await prompt_signed_out(client)

    calm, left = (watched(it, "all")[1].keys() for it in (prompt_signed_out, leave_then))
    assert left - calm == {"client.signed-out"}


def test_a_client_that_opens_a_session_with_folders_of_an_older_list_is_found() -> None:
    async def merge(client: Guest) -> None:
        lists = [(await client.call("session/list", {}))["sessions"] for _ in range(2)]
        (old, new) = ({it["sessionId"]: it for it in found}["earlier-2"] for found in lists)
        roots = [*old["additionalDirectories"], *new["additionalDirectories"]]
        opened = {"sessionId": "earlier-2", "cwd": "/w", "mcpServers": []}
        await client.call("session/load", {**opened, "additionalDirectories": roots})

    assert watched(merge, "all")[1].keys() == {"client.listed-roots"}


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
    async def mumble(client: Guest) -> None:
        for line in ODD_LINES:
            client.send_line(line)
        await tour(client)

    _, broken = watched(mumble)
    assert {"client.messages", "client.answers", "client.schema"} <= broken.keys()
