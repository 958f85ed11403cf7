"""Queued prompts: kept without their client, begun one after the other, each once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw, to_builtins

from acp_wire.schema import encode
from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.prompt_queue import QueueChange, WaitingPrompt
from acphold.conversation.history.timeline import TurnEnd, turn_end
from acphold.errors import HeldElsewhereError, JournalUnavailableError, RemoteError
from acphold.journal.access import Scope
from acphold.journal.intentions import change_queue
from acphold.journal.rows import ListFilter
from acphold.journal.stores import open_journal
from acphold.live.agents.interface import Notified, Updates
from acphold.live.hub import bounds, usage_limit, waiting_prompts
from acphold.live.hub.forks import fork
from acphold.live.hub.session import HubSession
from acphold.live.server.principals import Principal
from tests.editor import DEADLINE, Refused
from tests.hub.shared import PERMISSION, Onlooker, Person, Shared, shared
from tests.hub.test_turns import prompts
from tests.postgresql import Databases
from tests.queues import QUEUE, told_queues


async def change(client: Onlooker, session: str, do: str, **fields: Any) -> Any:
    """Change the queue; its answer."""
    change = {"do": do, **fields}
    return await client.call(QUEUE, {"sessionId": session, "change": change})


async def add(client: Onlooker, session: str, *texts: str, **fields: Any) -> list[str]:
    """Add prompts; their ids."""
    added = []
    for text in texts:
        prompt = [{"type": "text", "text": text}]
        added.append((await change(client, session, "add", prompt=prompt, **fields))["id"])
    return added


async def state(client: Onlooker, session: str) -> Any:
    return (await client.call(QUEUE, {"sessionId": session}))["queue"]


def waiting(queue: Any) -> list[str]:
    return [prompt["words"] for prompt in queue.get("waiting", [])]


async def test_what_waits_begins_one_after_the_other_in_its_order(house: Shared) -> None:
    client, session, turn = await house.in_turn("first")
    await add(client, session, "second", "third")
    assert prompts(house) == ["first"]
    await house.ended(session, turn)
    for text in ("second", "third"):
        await house.agent.prompted(session)
        assert prompts(house)[-1] == text
        await house.agent.end(session)
    queue = await state(client, session)
    assert [it["state"] for it in queue["ended"]] == ["done", "done"]
    assert prompts(house) == ["first", "second", "third"]


async def test_the_agent_gets_them_without_any_client_and_the_next_one_sees_what_was_done(
    house: Shared,
) -> None:
    client, session, turn = await house.in_turn("first")
    await add(client, session, "second")
    await house.ended(session, turn)
    await house.agent.prompted(session)
    await house.leave(client)
    await house.agent.say(session, "done")
    await house.agent.end(session)
    other = await house.loaded(session)
    await other.until_text("done")
    assert other.text("user_message_chunk") == "firstsecond"
    assert await house.entries(session, "queue") == [
        {"do": "add", "id": added(house, session), "prompt": text("second"), "client": {}},
        {"do": "begin", "id": added(house, session)},
    ]


def added(house: Shared, session: str) -> str:
    """The id of the prompt that ended last."""
    return house.hub.conversation(session).session.queue.ended[-1].id


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


async def test_a_client_that_asks_for_it_is_told_of_each_change_and_of_whose_it_is(
    house: Shared,
) -> None:
    one = await house.client(name="Zed", _meta={"acphold/queue": True})
    other = await house.client()
    session = await one.new()
    await other.load(session)
    await change(other, session, "hold")
    [first] = await add(one, session, "first")
    await change(other, session, "edit", id=first, prompt=text("else"))
    await change(one, session, "go")
    await house.agent.prompted(session)
    await house.agent.end(session)
    await one.until(lambda: queues(one)[-1:] and "ended" in queues(one)[-1])
    assert [waiting(queue) for queue in queues(one)] == [
        [],
        ["first"],
        ["else"],
        ["else"],
        [],
        [],
    ]
    assert queues(one)[1]["waiting"][0]["client"] == "Zed"
    assert QUEUE not in [message.get("method") for message in other.messages]


async def test_a_client_that_lags_far_behind_is_told_how_the_queue_stands_once_it_has_caught_up(
    house: Shared,
) -> None:
    one, session = await house.opened()
    slow = await house.loaded(session, _meta={"acphold/queue": True})
    turn = await house.begun(one, session, "first")
    slow.reads.clear()
    await house.agent.flood(session)
    params = encode({"sessionId": session})
    for _ in range(bounds.DUE):  # as much as is kept for a client that lags
        await house.agent.listener.hear(Notified("_vendor/note", params))
    await add(one, session, "second", "third")
    slow.reads.set()
    await slow.until(lambda: queues(slow))
    assert [waiting(queue) for queue in queues(slow)] == [["second", "third"]]
    assert slow.text().count("x ") == 400, "what was said before it was sent before it"
    await house.ended(session, turn)


def queues(client: Onlooker) -> list[Any]:
    """The states of the queue that this client was told."""
    return told_queues(client.messages)


async def held_by_stop(client: Onlooker) -> None:
    """Wait until this client was told that a stop holds the queue."""
    await client.until(lambda: [it for it in queues(client)[-1:] if it.get("held") == "cancelled"])


async def test_who_opens_a_session_is_told_its_queue_and_then_each_change(house: Shared) -> None:
    client, session = await house.opened(_meta={"acphold/queue": True})
    await change(client, session, "hold")
    ids = await add(client, session, "one", "two", "three")
    await change(client, session, "move", id=ids[-1], before=ids[0])
    now = await state(client, session)
    assert waiting(now) == ["three", "one", "two"]
    await client.until(lambda: queues(client)[-1:] == [now])
    other = await house.loaded(session, _meta={"acphold/queue": True})
    assert queues(other) == queues(client)[-1:]
    await change(client, session, "drop", id=ids[0])
    await other.until(lambda: waiting(queues(other)[-1]) == ["three", "two"])
    await client.until(lambda: queues(client)[-1] == queues(other)[-1])


@pytest.mark.parametrize("end", ["as it was", "other words", "drop", "its client is gone"])
async def test_a_prompt_does_not_begin_while_a_client_edits_it(
    house: Shared, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(bounds, "EDITOR_SECONDS", 0.0)
    client, session, turn = await house.in_turn("first")
    edited, _ = await add(client, session, "edited", "second")
    away, editor = await house.loaded(session), await house.loaded(session)
    for each in (away, editor):  # the one that comes back has it
        take = {"sessionId": session, "change": {"do": "take", "id": edited}, "read": edited}
        taken = await each.call(QUEUE, take)
        assert (taken["prompt"], taken["queue"]["edited"]) == (text("edited"), [edited])
    await house.leave(away)
    await house.ended(session, turn)
    await house.agent.prompted(session)
    await house.agent.end(session)
    assert waiting(await state(client, session)) == ["edited"]
    assert prompts(house) == ["first", "second"]
    match end:
        case "as it was":
            await change(editor, session, "edit", id=edited)
        case "other words":
            await change(editor, session, "edit", id=edited, prompt=text("better"))
        case "drop":
            await change(client, session, "drop", id=edited)
            assert waiting(await state(client, session)) == []
            with pytest.raises(Refused, match="was taken back"):
                await change(editor, session, "edit", id=edited, prompt=text("better"))
            return
        case _:
            await house.leave(editor)
    await house.agent.prompted(session)
    assert prompts(house)[-1] == ("better" if end == "other words" else "edited")
    with pytest.raises(Refused, match="has already begun"):
        await change(client, session, "take", id=edited)
    assert "take" not in [it["do"] for it in await house.entries(session, "queue")]
    await house.agent.end(session)


async def test_nothing_begins_behind_a_turn_that_was_cancelled_until_somebody_says_go(
    house: Shared,
) -> None:
    client, session, turn = await house.in_turn("first")
    await add(client, session, "second")
    client.tell("session/cancel", {"sessionId": session})
    assert await turn == {"stopReason": "cancelled"}
    queue = await state(client, session)
    assert (waiting(queue), queue["held"]) == (["second"], "cancelled")
    [row] = await house.journal.page(ListFilter())
    assert (row.queued, row.held) == (1, "cancelled")
    assert prompts(house) == ["first"]
    await change(client, session, "go")
    await house.agent.prompted(session)
    assert prompts(house) == ["first", "second"]
    assert (await house.journal.session(session)).queued == 0


async def test_a_stop_between_two_turns_holds_what_waits(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    reached, goes_on = asyncio.Event(), asyncio.Event()
    read = waiting_prompts.WaitingQueue._content

    async def slow(queue: waiting_prompts.WaitingQueue, waits: WaitingPrompt) -> QueueChange:
        reached.set()
        await goes_on.wait()
        return await read(queue, waits)

    monkeypatch.setattr(waiting_prompts.WaitingQueue, "_content", slow)
    client, session, turn = await house.in_turn("first", _meta={"acphold/queue": True})
    await add(client, session, "second", "third")
    await house.ended(session, turn)
    await reached.wait()  # the second one is chosen, and not yet a turn
    client.tell("session/cancel", {"sessionId": session})
    await state(client, session)
    goes_on.set()
    await held_by_stop(client)
    assert waiting(await state(client, session)) == ["second", "third"]
    assert prompts(house) == ["first"]
    await change(client, session, "go")
    await house.agent.prompted(session)
    assert prompts(house) == ["first", "second"]


async def test_a_stop_while_the_end_of_a_done_turn_is_written_holds_what_waits(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    reached, goes_on = asyncio.Event(), asyncio.Event()
    client, session, turn = await house.in_turn("first", _meta={"acphold/queue": True})
    await add(client, session, "second")
    live = house.hub.conversation(session).session
    publish = live.publish

    async def slow(kind: str, *rest: Any, **options: Any) -> None:
        if kind == "turn_end":
            reached.set()
            await goes_on.wait()
        await publish(kind, *rest, **options)

    monkeypatch.setattr(live, "publish", slow)
    ending = asyncio.create_task(house.agent.end(session))
    await reached.wait()
    client.tell("session/cancel", {"sessionId": session})
    await state(client, session)
    goes_on.set()
    assert await turn == {"stopReason": "end_turn"}
    await ending
    await held_by_stop(client)
    assert waiting(await state(client, session)) == ["second"]
    assert prompts(house) == ["first"]


async def test_a_stop_holds_what_waits_for_its_moment_and_without_anything_it_holds_nothing(
    house: Shared,
) -> None:
    client, session = await house.opened(_meta={"acphold/queue": True})
    client.tell("session/cancel", {"sessionId": session})
    assert await state(client, session) == {}
    await add(client, session, "late", at=now_ms() + 3_600_000)
    client.tell("session/cancel", {"sessionId": session})
    await held_by_stop(client)
    row = await house.journal.session(session)
    assert (row.queued, row.held) == (1, "cancelled")


async def test_what_waits_begins_once_when_it_can_be_read_again(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    failures = 0
    tried = asyncio.Event()

    async def fails(*_: object, **__: object) -> None:
        nonlocal failures
        failures += 1
        if failures > 2:
            tried.set()
        raise JournalUnavailableError("the disk is gone")

    monkeypatch.setattr(bounds, "QUEUE_RETRY_SECONDS", 0.01)
    client, session, turn = await house.in_turn("first")
    await add(client, session, "second")
    with monkeypatch.context() as gone:
        gone.setattr(house.journal, "read", fails)
        await house.ended(session, turn)
        await tried.wait()
        assert prompts(house) == ["first"]
    await house.agent.prompted(session)
    assert prompts(house) == ["first", "second"]


async def test_a_prompt_whose_beginning_cannot_be_written_is_not_sent_and_holds_the_rest(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    tried = asyncio.Event()
    monkeypatch.setattr(bounds, "QUEUE_RETRY_SECONDS", 0.01)
    client, session, turn = await house.in_turn("first")
    await add(client, session, "second", "third")
    append, failures = house.journal.append, 0

    async def fails(lease: Any, runs: Any, *more: Any) -> Any:
        nonlocal failures
        if not failures and all(kind != "prompt" for kind, _ in runs):
            return await append(lease, runs, *more)
        failures += 1
        if failures > 2:
            tried.set()
        raise JournalUnavailableError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(house.journal, "append", fails)
        await house.ended(session, turn)
        await tried.wait()
    while (queue := await state(client, session)).get("held") != "failed":
        pass
    assert [(it["words"], it["state"]) for it in queue["ended"]] == [("second", "failed")]
    assert waiting(queue) == ["third"]
    assert prompts(house) == ["first"]


async def test_nothing_begins_over_an_open_question(house: Shared) -> None:
    client, session = await house.opened()
    person = Person(client)
    asking = asyncio.create_task(house.agent.ask_client(PERMISSION, **permission(session)))
    await person.asked.wait()
    await add(client, session, "later")
    await state(client, session)
    assert prompts(house) == []
    person.answer.set_result({"outcome": {"outcome": "selected", "optionId": "yes"}})
    await asking
    await house.agent.prompted(session)
    assert prompts(house) == ["later"]


def permission(session: str) -> dict[str, Any]:
    option = {"optionId": "yes", "name": "Yes", "kind": "allow_once"}
    return {"sessionId": session, "toolCall": {"toolCallId": "t"}, "options": [option]}


async def test_a_prompt_that_comes_meanwhile_goes_first_and_its_failure_holds_the_rest(
    house: Shared,
) -> None:
    client, session, turn = await house.in_turn("first")
    await add(client, session, "later")
    direct = client.begin_prompt(session, "now")
    await client.call("session/list", {})
    await house.ended(session, turn)
    await house.agent.prompted(session)
    assert prompts(house) == ["first", "now"]
    await house.agent.end(session, RemoteError(-32000, "no"))
    with pytest.raises(Refused):
        await direct
    queue = await state(client, session)
    assert (waiting(queue), queue["held"]) == (["later"], "failed")


async def test_after_a_restart_it_is_held_unless_it_was_told_to_go_on(journal: Path) -> None:
    async with shared(journal) as house:
        client, held = await house.opened()
        going, cancelled = await client.new(), await client.new()
        for session in (held, going, cancelled):
            await house.begun(client, session, "first")
            await add(client, session, "second")
        await change(client, going, "set", restarts=True)
        await change(client, cancelled, "set", restarts=True)
        client.tell("session/cancel", {"sessionId": cancelled})
        await client.call("session/list", {})
        await house.give_way()
    async with shared(journal) as house:
        house.agent.can("resume")
        client = await house.client()
        for session in (held, cancelled):
            await client.load(session)
            queue = await state(client, session)
            # The turn that ran was cut off, or cancelled by a person: that holds it, too.
            assert (waiting(queue), queue["held"]) == (["second"], "cancelled")
        await client.load(going)
        await house.agent.prompted(going)
        assert prompts(house) == ["second"]
        assert "held" not in await state(client, going)


@pytest.mark.parametrize("leaves", [False, True])
async def test_prompts_that_had_not_begun_go_on_after_a_restart_if_they_were_told_to(
    journal: Path, leaves: bool
) -> None:
    async with shared(journal, keep_prompts=True) as house:
        client, session = await house.opened()
        other = await house.loaded(session)
        await change(client, session, "set", restarts=True)
        await house.begun(client, session, "first")
        for words in ("second", "third"):
            other.begin_prompt(session, words)
        await other.call("session/list", {})
        async with house.hub.conversation(session).session.writing:  # nothing is committed
            if leaves:
                await house.leave(other)
            ending = asyncio.create_task(house.hub.end_turns())
            await asyncio.sleep(0)
        await ending
    async with shared(journal) as house:
        house.agent.can("resume")
        await house.loaded(session)
        for words in ("second", "third"):
            await house.agent.prompted(session)
            assert prompts(house)[-1] == words
            await house.agent.end(session)
        assert prompts(house) == ["second", "third"]


async def test_a_turn_that_a_crash_cuts_off_holds_what_waits(journal: Path, house: Shared) -> None:
    client, session = await house.opened()
    await house.begun(client, session, "first")
    await add(client, session, "second")
    await house.give_way()
    async with shared(journal) as other:
        other.agent.can("resume")
        queue = await state(await other.loaded(session), session)
        assert (waiting(queue), queue["held"]) == (["second"], "interrupted")


async def test_what_was_told_to_go_on_after_a_crash_does_so_for_nobody_who_only_reads(
    journal: Path, house: Shared
) -> None:
    client, session = await house.opened()
    await house.begun(client, session, "first")
    await add(client, session, "second")
    await change(client, session, "set", restarts=True)
    await house.give_way()
    async with shared(journal) as other:
        other.agent.can("resume")
        may: frozenset[Scope] = frozenset({"watch"})
        reader = other.stranger(Principal(name="reader", tenant="", scopes=may))
        await reader.introduce(None, {})
        await reader.load(session)
        assert waiting(await state(reader, session)) == ["second"]
        assert other.hub.is_asleep(session)
        assert not other.desk.is_busy
        assert not other.agent.alive
        await other.loaded(session)
        await other.agent.prompted(session)
        assert other.agent.asked[-1][1]["prompt"][-1]["text"] == "second"
        assert not other.hub.is_asleep(session)
        await reader.until(lambda: "second" in reader.text("user_message_chunk"))


@pytest.mark.parametrize("kept", [QueueChange("go"), QueueChange("hold", why="limited", until=1)])
@pytest.mark.parametrize("restarts", [False, True])
async def test_what_waited_in_a_session_that_was_closed_begins_when_it_was_told_to(
    restarts: bool, kept: QueueChange, house: Shared
) -> None:
    house.agent.can("resume")
    client, session = await house.opened()
    await change(client, session, "hold")
    await add(client, session, "second")
    await change(client, session, "set", restarts=restarts)
    await client.call("session/close", {"sessionId": session})
    await change_queue(house.journal, session, kept)
    await client.load(session)
    queue = await state(client, session)
    if restarts:
        await house.agent.prompted(session)
        assert prompts(house) == ["second"]
    else:
        assert (waiting(queue), queue["held"]) == (["second"], "reopened")
        assert prompts(house) == []


async def test_two_clients_that_change_it_at_once_agree_and_each_change_is_in_the_history(
    house: Shared,
) -> None:
    one, two, session = await house.pair(_meta={"acphold/queue": True})
    await change(one, session, "hold")
    ids = await add(one, session, "a", "b", "c")
    both = [
        change(one, session, "move", id=ids[2], before=ids[0]),
        change(two, session, "edit", id=ids[2], prompt=text("C")),
        change(one, session, "drop", id=ids[1]),
        change(two, session, "drop", id=ids[1]),
    ]
    answers = await asyncio.gather(*both, return_exceptions=True)
    assert sum(isinstance(answer, Refused) for answer in answers) == 1
    assert waiting(await state(one, session)) == waiting(await state(two, session)) == ["C", "a"]
    await one.until(lambda: queues(one)[-1] == queues(two)[-1])
    live, kept = house.hub.conversation(session).session, await house.journal.summary(session)
    assert live.queue.waiting == kept.queue.waiting


async def test_a_clock_that_is_set_forward_and_back_begins_nothing_early_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    clock, start = [10 * HOURS], 10 * HOURS
    looks = Looks(monkeypatch, clock)
    client, session = await house.opened()
    await add(client, session, "in two hours", at=start + 2 * HOURS)
    await add(client, session, "in five hours", at=start + 5 * HOURS)
    await add(client, session, "at once")
    await house.agent.prompted(session)
    await house.agent.end(session)
    for hours in (1, -8, 0):  # set right, wrong by a battery that was empty, and right again
        clock[0] = start + hours * HOURS
        await looks.again()
        assert prompts(house) == ["at once"]
    assert house.desk.is_busy  # a daemon stays for them
    clock[0] = start + 3 * HOURS
    await house.agent.prompted(session)
    clock[0] = start  # behind the moment of the one that runs
    await house.agent.end(session)
    await looks.again()
    assert prompts(house) == ["at once", "in two hours"]
    clock[0] = start + 50 * HOURS  # asleep over a weekend
    await house.agent.prompted(session)
    await house.agent.end(session)
    assert prompts(house) == ["at once", "in two hours", "in five hours"]
    assert waiting(await state(client, session)) == []


@pytest.mark.postgresql
@pytest.mark.parametrize("ahead", [-3600, 3600])
async def test_a_moment_has_come_by_the_clock_of_the_database(
    ahead: int, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + ahead * 10**9)
    with databases.new() as location:
        async with shared(location) as house:
            client, session = await house.opened()
            now = clock() // 10**6
            await add(client, session, "in half an hour", at=now + 1_800_000)
            await add(client, session, "a minute ago", at=now - 60_000)
            await house.agent.prompted(session)
            await house.agent.end(session)
            await change(client, session, "add", prompt=[{"type": "text", "text": "at once"}])
            await house.agent.prompted(session)
            assert prompts(house) == ["a minute ago", "at once"]


class Looks:
    """The looks at a clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: list[int]) -> None:
        self._clock = clock
        self._looked = asyncio.Event()
        monkeypatch.setattr(HubSession, "now_ms", lambda _: self._now())
        monkeypatch.setattr(bounds, "CLOCK_LOOK_SECONDS", 0.01)

    def _now(self) -> int:
        self._looked.set()
        return self._clock[0]

    async def again(self) -> None:
        """Wait until the clock has been looked at twice more."""
        for _ in range(2):
            self._looked.clear()
            await asyncio.wait_for(self._looked.wait(), DEADLINE)


async def test_what_is_in_it_can_be_read_whole_with_its_pictures(house: Shared) -> None:
    client, session = await house.opened()
    await change(client, session, "hold")
    blocks = [*text("Look"), {"type": "image", "mimeType": "image/png", "data": "AAAA"}]
    made = await change(client, session, "add", prompt=blocks)
    read = await client.call(QUEUE, {"sessionId": session, "read": made["id"]})
    assert read["prompt"] == blocks
    await change(client, session, "go")
    await house.agent.prompted(session)
    assert house.agent.asked[-1][1]["prompt"] == blocks


async def test_a_fork_has_the_conversation_without_what_waits(house: Shared) -> None:
    client, session = await house.talked("first", "said")
    await change(client, session, "hold")
    await add(client, session, "later")
    forked = await fork(house.journal, await house.journal.session(session))
    assert (await house.journal.summary(forked.session_id)).queue.waiting == ()
    assert (await house.journal.session(forked.session_id)).queued == 0


async def test_one_that_only_the_journal_has_waits_until_the_session_is_opened(
    journal: Path, house: Shared
) -> None:
    client, session = await house.opened()
    change_ = QueueChange("add", "a", Raw(encode(text("later"))))
    other = open_journal(journal)  # as another process has it
    with pytest.raises(HeldElsewhereError):
        await change_queue(other, session, change_)
    await client.call("session/close", {"sessionId": session})
    assert waiting(to_builtins(await change_queue(other, session, change_))) == ["later"]
    assert (await house.journal.session(session)).queued == 1
    await other.aclose()


HIT = "You've hit your 5-hour limit"
LIMIT = RemoteError(
    -32603,
    f"Internal error: {HIT}",
    raw=encode({"code": -32603, "message": f"Internal error: {HIT}"}),
)
HOURS = 3_600_000


def window(resets_at: float) -> bytes:
    """The update by which claude's adapter tells of the reset."""
    told = {"_claude/rateLimit": {"status": "rejected", "resetsAt": resets_at}}
    return encode({"sessionUpdate": "usage_update", "used": 1, "size": 2, "_meta": told})


async def limited(house: Shared, session: str, resets_at: float) -> None:
    """The turn ends at the limit, which lasts until then."""
    await house.agent.listener.hear(Updates(session, "update", [window(resets_at)]))
    await house.agent.end(session, LIMIT)


@pytest.mark.parametrize("waits", [False, True])
async def test_at_the_vendors_limit_it_goes_on_once_after_the_reset_if_it_was_told_to(
    journal: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    clock = [now_ms()]
    looks = Looks(monkeypatch, clock)
    when = "wait" if waits else "hold"
    async with shared(journal, when_limited=when) as house:
        house.agent.key = "claude"
        client, session, turn = await house.in_turn("first")
        await add(client, session, "second")
        reset = clock[0] // 1000 + 3600
        await limited(house, session, reset)
        with pytest.raises(Refused):
            await turn
        queue = await state(client, session)
        assert queue["held"] == "limited"
        if not waits:
            assert (waiting(queue), "until" in queue) == (["second"], False)
            return
        assert waiting(queue) == [usage_limit.GO_ON, "second"]
        assert 60 <= queue["until"] / 1000 - reset <= 300
        assert (await house.journal.session(session)).held_until == queue["until"]
        await looks.again()
        assert prompts(house) == ["first"]
        clock[0] += 12 * HOURS  # the lid was closed; no timer of this process has run on
        await house.agent.prompted(session)
        clock[0] -= 12 * HOURS  # and the clock is set back once more
        await house.agent.end(session)
        await house.agent.prompted(session)
        await house.agent.end(session)
        assert prompts(house) == ["first", usage_limit.GO_ON, "second"]


@asynccontextmanager
async def held_at_limit(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Shared, Onlooker, str, Callable[[], Awaitable[None]]]]:
    """A session that waits for the reset; the last of the four lets that pass."""
    clock = [now_ms()]
    Looks(monkeypatch, clock)
    async with shared(journal, when_limited="wait") as house:
        house.agent.key = "claude"
        client, session, turn = await house.in_turn("first")
        await limited(house, session, clock[0] // 1000 + 3600)
        with pytest.raises(Refused):
            await turn

        async def reset() -> None:
            clock[0] += 2 * HOURS
            await house.begun(client, session, "by hand")
            await house.agent.end(session)  # behind which the next one would begin
            await state(client, session)

        yield house, client, session, reset


async def test_over_an_open_question_a_session_does_not_go_on_at_the_reset(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with held_at_limit(journal, monkeypatch) as (house, client, session, reset):
        person = Person(client)
        asking = asyncio.create_task(house.agent.ask_client(PERMISSION, **permission(session)))
        await person.asked.wait()
        await reset()
        assert waiting(await state(client, session)) == [usage_limit.GO_ON]
        assert prompts(house) == ["first", "by hand"]
        person.answer.set_result({"outcome": {"outcome": "selected", "optionId": "yes"}})
        await asking
        await house.agent.prompted(session)
        assert prompts(house)[-1] == usage_limit.GO_ON


@pytest.mark.parametrize("do", ["hold", "drop"])
async def test_one_change_from_any_client_keeps_a_session_from_going_on_at_the_reset(
    journal: Path, monkeypatch: pytest.MonkeyPatch, do: str
) -> None:
    async with held_at_limit(journal, monkeypatch) as (house, _, session, reset):
        other = await house.loaded(session)
        [prompt] = (await state(other, session))["waiting"]
        await change(other, session, do, **({"id": prompt["id"]} if do == "drop" else {}))
        await reset()
        assert prompts(house) == ["first", "by hand"]


async def test_a_limit_does_not_undo_a_persons_hold(journal: Path) -> None:
    async with shared(journal, when_limited="wait") as house:
        house.agent.key = "claude"
        client, session, turn = await house.in_turn("first")
        await change(client, session, "hold")
        await limited(house, session, now_ms() // 1000 + 3600)
        with pytest.raises(Refused):
            await turn
        assert await state(client, session) == {"held": "person"}


@pytest.mark.parametrize(
    ("own_name", "key", "is_known"),
    [
        ("@agentclientprotocol/claude-agent-acp", "mine", True),
        ("of my own", "claude", True),
        ("", "@zed-industries/claude-code-acp", True),
        ("opencode", "claude", False),  # its own word counts: another agent means other words
        ("", "mine", False),
    ],
)
async def test_a_turn_that_ended_at_the_limit_is_so_in_the_history_whatever_the_agent_is_called(
    own_name: str, key: str, is_known: bool, house: Shared
) -> None:
    house.agent.key, house.agent.own_name = key, own_name
    client, session = await house.opened()
    other = await house.loaded(session)
    turn = await house.begun(client, session, "first")
    reset = now_ms() // 1000 + 3600
    await limited(house, session, reset)
    with pytest.raises(Refused) as refused:
        await turn
    assert refused.value.message == LIMIT.message, "the agent's error comes as it was"
    [end] = await house.entries(session, "turn_end")
    assert end["error"]["message"] == LIMIT.message
    found = turn_end(msgspec.json.encode(end), 0)
    assert await house.journal.outcomes([session]) == {session: found.outcome}
    await other.until(lambda: marks(other))
    [mark] = marks(other)
    if is_known:
        assert found == TurnEnd("limited", 0, None, HIT, reset * 1000)
        assert mark == {"outcome": "limited", "message": HIT, "resetsAt": reset * 1000}
    else:
        assert found == TurnEnd("failed", 0, None, LIMIT.message)
        assert mark == {"outcome": "failed", "message": LIMIT.message}


def marks(client: Onlooker) -> list[Any]:
    """The ends of turns that this client was told."""
    told = [update.get("_meta", {}).get("acphold/turn") for update in client.updates()]
    return [mark for mark in told if mark]


async def test_it_does_not_go_on_by_itself_for_ever_nor_at_a_limit_without_a_moment(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [now_ms()]
    Looks(monkeypatch, clock)
    async with shared(journal, when_limited="wait") as house:
        house.agent.key = "claude"
        client, session, turn = await house.in_turn("first", _meta={"acphold/queue": True})
        await house.agent.end(session, LIMIT)
        with pytest.raises(Refused):
            await turn
        assert await state(client, session) == {}
        turn = await house.begun(client, session, "first")
        for _ in range(bounds.CONTINUED_A_DAY):
            await limited(house, session, clock[0] // 1000 + 3600)
            await client.until(lambda: queues(client) and queues(client)[-1].get("until"))
            clock[0] = queues(client)[-1]["until"]
            await house.agent.prompted(session)
        await limited(house, session, clock[0] // 1000 + 3600)
        with pytest.raises(Refused):
            await turn
        queue = await state(client, session)
        assert waiting(queue) == []
        assert len(prompts(house)) == 2 + bounds.CONTINUED_A_DAY


@pytest.mark.parametrize("fails", [False, True])
async def test_prompts_of_a_client_that_goes_stay_in_the_queue_if_they_are_to(
    journal: Path, fails: bool
) -> None:
    async with shared(journal, keep_prompts=True) as house:
        client, session = await house.opened()
        other = await house.loaded(session)
        await house.begun(client, session, "first")
        for words in ("second", "third"):
            client.begin_prompt(session, words)
        stays = other.begin_prompt(session, "of who stays")
        await other.call("session/list", {})
        await client.call("session/list", {})
        await house.leave(client)
        await house.agent.end(session, RemoteError(-32000, "no") if fails else ANSWER)
        await house.agent.prompted(session)
        await house.ended(session, stays)
        queue = await state(other, session)
        if fails:
            assert (waiting(queue), queue["held"]) == (["second", "third"], "failed")
            assert (await house.journal.session(session)).queued == 2
            return
        for words in ("second", "third"):
            await house.agent.prompted(session)
            assert prompts(house)[-1] == words
            await house.agent.end(session)
        assert prompts(house) == ["first", "of who stays", "second", "third"]


ANSWER = b'{"stopReason":"end_turn"}'


async def test_those_of_a_client_that_sends_them_again_itself_are_left_to_it(
    journal: Path,
) -> None:
    async with shared(journal, keep_prompts=True) as house:
        client, session = await house.opened(_meta={"acphold/positions": True})
        await house.begun(client, session, "first")
        client.begin_prompt(session, "second")
        await client.call("session/list", {})
        await house.leave(client)
        other = await house.loaded(session)
        assert await state(other, session) == {}
        await house.agent.end(session)
        await house.agent.prompted(session)
        assert prompts(house) == ["first", "second"]
