"""Several clients on one session: each sees every update exactly once, in order."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.entries import Segment
from acphold.errors import AUTH_REQUIRED, JournalError, RemoteError
from acphold.journal.journal import take_lease
from acphold.journal.postgresql.pipelines import Answer
from acphold.journal.stores import open_journal
from acphold.live.agents.interface import Notified
from acphold.live.hub import bounds
from acphold.live.hub.annotations import notice
from acphold.live.hub.attachment import Attachment, AttachmentState
from acphold.live.hub.session import HubSession
from acphold.live.server.principals import Principal
from tests.editor import Refused, open_params, prompt_params
from tests.hub.shared import Onlooker, Shared, said, shared, small_pages, until
from tests.watched_processes import until as happens


def numbers(client: Onlooker) -> list[int]:
    """The numbers the agent said, as this client was told them."""
    return [int(word) for word in client.text().split()]


@pytest.mark.of_a_file  # of a database, it may still read the prompt then
@pytest.mark.parametrize(
    ("said_at_once", "writes"), [(1, 1), (bounds.APART, bounds.APART), (bounds.APART + 1, 1)]
)
async def test_a_few_updates_are_each_written_by_themselves_and_a_flood_at_once(
    monkeypatch: pytest.MonkeyPatch, said_at_once: int, writes: int, house: Shared
) -> None:
    client, session, turn = await house.in_turn("hi")
    written: list[bytes] = []
    send = client.connection.send

    def noted(lines: bytes) -> None:
        written.append(lines)
        send(lines)

    monkeypatch.setattr(client.connection, "send", noted)
    await house.agent.say(session, *[f"{n} " for n in range(said_at_once)])
    assert len(written) == writes
    await house.ended(session, turn)
    assert numbers(client) == [*range(said_at_once)]


async def test_to_a_client_over_a_network_several_updates_are_one_write(house: Shared) -> None:
    client = house.stranger(Principal(name="far", sees_all=True, is_here=False))
    await client.introduce(None, {})
    session = await client.new()
    turn = await house.begun(client, session, "hi")
    written: list[bytes] = []
    client.connection.send = written.append
    await house.agent.say(session, "one", "two")
    await happens(lambda: written)  # behind the commit
    assert [lines.count(b"\n") for lines in written] == [2]
    await house.ended(session, turn)


async def test_a_second_client_does_not_start_the_agent_again(house: Shared) -> None:
    await house.client()
    await house.client()
    assert house.agent.generation == 1


async def test_a_client_that_attaches_in_a_running_turn_sees_each_update_once(
    house: Shared,
) -> None:
    one, two, three = [await house.client() for _ in range(3)]
    session = await one.new()
    turn = await house.begun(one, session, "count")
    await house.agent.say(session, *[f"{n} " for n in range(10)])
    loading = two.begin("session/load", open_params(session, "/"))
    resuming = three.begin("session/resume", open_params(session, "/"))
    for n in range(10, 200):
        await house.agent.say(session, f"{n} ")
        await asyncio.sleep(0)
    await loading
    await resuming
    await house.agent.say(session, "200 ")
    await house.ended(session, turn)
    await until([one, two, three], "200 ")
    assert numbers(one) == numbers(two) == list(range(201))
    seen = numbers(three)
    assert seen == list(range(seen[0], 201))  # from where it resumed, without a gap
    assert seen[0] >= 10


def compact(session: HubSession) -> None:
    """Compact the session as when it rests, now and in the background."""
    session.rest.end()
    session.rest.settle_now()


async def test_a_client_that_attaches_while_a_turn_is_compacted_sees_each_update_once(
    journal: Path,
) -> None:
    with small_pages():
        async with shared(journal) as house:
            one, session = await house.opened()
            for turn in range(4):
                running = one.begin_prompt(session, "count")
                two = await house.client()
                await house.agent.prompted(session)
                for n in range(turn * 400, (turn + 1) * 400):
                    await house.agent.say(session, f"{n} ")
                await house.ended(session, running)
                compact(house.hub.conversation(session).session)
                await two.load(session)
                assert numbers(two) == list(range((turn + 1) * 400))
                await two.leave()


async def test_a_client_that_reads_nothing_costs_bounded_memory_and_catches_up(
    house: Shared,
) -> None:
    one, slow, session = await house.pair()
    slow.reads.clear()
    turn = await house.begun(one, session, "flood")
    filler = "x" * 10_000
    for n in range(400):  # four megabytes
        await house.agent.say(session, f"{n}{filler} ")
        assert slow.connection.buffered <= bounds.LAG_BYTES + bounds.PAGE_BYTES + 4 * len(filler)
    await house.agent.end(session)
    await turn  # and nobody waited for the slow one
    slow.reads.set()
    await slow.until_text("399x")
    assert slow.text() == one.text()


async def test_a_client_that_lags_gets_no_more_of_a_session_that_it_closes(house: Shared) -> None:
    one, slow, session = await house.pair()
    slow.reads.clear()
    await house.agent.flood(session)
    lagging = house.hub.conversation(session).session.attachments.of(slow.connection)
    closing = slow.begin("session/close", {"sessionId": session})
    await _closed(lagging)
    slow.reads.set()
    await closing
    assert slow.text().count("x ") < 400
    await house.told(one, session, "behind")


@pytest.mark.parametrize("error", [None, RemoteError(5, "no")], ids=["done", "an error"])
async def test_a_slow_client_has_every_update_of_its_turn_before_the_answer(
    error: RemoteError | None, house: Shared
) -> None:
    slow, session, turn = await house.in_turn("flood")
    slow.reads.clear()
    await house.agent.flood(session)
    await house.agent.end(session, *filter(None, [error]))
    assert not turn.done()
    slow.reads.set()
    with pytest.raises(Refused) if error else nullcontext():
        assert await turn == {"stopReason": "end_turn"}
    assert slow.text().count("x ") == 400


BEGUN: dict[str, Any] = {"_meta": {"acphold/begun": True}}


@pytest.mark.parametrize("lags", [False, True])
async def test_a_client_that_asks_is_told_where_its_turn_begins_behind_that_of_another(
    lags: bool, house: Shared
) -> None:
    one, two = await house.client(), await house.client(**BEGUN)
    session = await one.new()
    await two.load(session)
    theirs = await house.begun(one, session, "theirs")
    if lags:
        two.reads.clear()
    for _ in range(400 if lags else 1):
        await house.agent.say(session, f"{'x' * 10_000} ")
    ours = two.begin_prompt(session, "ours")
    await house.ended(session, theirs)
    await house.agent.prompted(session)
    await house.agent.say(session, "our own")
    two.reads.set()
    await house.ended(session, ours)
    updates = [m["params"]["update"] for m in two.messages if "update" in m.get("params", {})]
    marks = [n for n, update in enumerate(updates) if update.get("_meta") == BEGUN["_meta"]]
    own = next(n for n, update in enumerate(updates) if "our own" in str(update))
    last = max(n for n, update in enumerate(updates) if "x " in str(update))
    assert len(marks) == 1
    assert last < marks[0] < own
    assert not any("acphold/begun" in str(message) for message in one.messages)


async def test_a_notice_reaches_a_client_that_lags(house: Shared) -> None:
    slow, session = await house.opened(session={"notices": {}})
    slow.reads.clear()
    await house.agent.flood(session)
    await house.hub.conversation(session).session.publish("update", [notice("Look", "here")])
    slow.reads.set()
    await slow.until(lambda: "notice" in [u["sessionUpdate"] for u in slow.updates()])


async def test_notifications_wait_behind_the_updates_a_client_lags_with(house: Shared) -> None:
    one, slow, session = await house.pair()
    slow.reads.clear()
    await house.agent.flood(session)
    params = json.dumps({"sessionId": session}).encode()
    await house.agent.listener.hear(Notified("_vendor/note", params))
    await house.agent.say(session, "behind")
    slow.reads.set()
    for client in (one, slow):
        await client.until_text("behind")
        told = [message["method"] for message in client.messages if "method" in message]
        assert told[-2:] == ["_vendor/note", "session/update"]


async def test_a_client_that_goes_leaves_its_turn_and_the_session_to_the_others(
    house: Shared,
) -> None:
    one, two, session = await house.pair()
    await house.begun(one, session, "hi")
    await one.leave()
    turn = two.begin_prompt(session, "mine")  # waits for the turn that was left
    await house.agent.say(session, "for one, ")
    await two.until_text("for one")
    await house.agent.end(session)
    await house.agent.prompted(session)
    await house.agent.say(session, "for two")
    await house.agent.end(session)
    assert await turn == {"stopReason": "end_turn"}
    assert two.text() == "for one, for two"
    assert not house.agent.cancelled.is_set()


async def test_a_session_that_another_client_holds_is_not_open_here(house: Shared) -> None:
    one, two = await house.client(), await house.client()
    session = await one.new()
    error = await two.refused("session/prompt", prompt_params(session, "x"))
    assert error.code == -32002
    assert [info["sessionId"] for info in await two.sessions()] == [session]
    await one.leave()
    await happens(lambda: not house.hub.open_ids)


async def test_a_load_that_fails_leaves_nobody_attached(house: Shared) -> None:
    one, two = await house.client(), await house.client()
    session = await one.new()
    try:
        await two.load(session, "/elsewhere")
    except Refused as error:
        assert error.code == -32602  # noqa: PT017
    await house.told(one, session, "1 ")
    assert two.updates() == []


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_client_that_has_a_session_open_has_it_still_when_it_is_refused_to_open_it_anew(
    method: str, house: Shared
) -> None:
    house.agent.has_sign_in = True
    house.agent.can("resume")
    house.agent.results["session/resume"] = RemoteError(AUTH_REQUIRED, "sign in first")
    house.agent.results["logout"] = b"{}"
    client, other, session = await house.pair()
    await house.agent.say(session, "1 ")
    await until([client, other], "1 ")
    await client.call("logout", {})
    house.agent.may_answer.clear()
    opening = [client.begin(method, open_params(session, "/")) for _ in range(2)]
    await house.agent.was_asked("session/resume")
    held = house.hub.conversation(session).session
    await held.publish("update", [said("2 ")])  # the loads may still fail or succeed
    house.agent.may_answer.set()
    for refused in opening:
        with pytest.raises(Refused):
            await refused
    house.agent.results["session/resume"] = b"{}"
    await house.turn(other, session, "go on", "3 ")
    await house.turn(client, session, "go on", "4 ")
    assert numbers(client) == [1, 2, 3, 4]


class LateSource:
    """A session that, like a database, also answers a reader that has gone."""

    def __init__(self, session: HubSession) -> None:
        self.id, self.last_seq, self.queue = session.id, session.last_seq, session.queue
        self.answer: Answer[None] = Answer()
        self._session = session

    async def read(self, after: int, limit_bytes: int) -> list[Segment]:
        page = await self._session.read(after, limit_bytes)
        await self.answer.wait()
        return page


async def reads_late(house: Shared) -> tuple[Onlooker, LateSource, Attachment, asyncio.Task[None]]:
    """A client that was told "1 ", and another place of it that asks the journal."""
    client, session = await house.opened()
    await house.told(client, session, "1 ")
    held = house.hub.conversation(session).session
    [known] = held.attachments
    source = LateSource(held)
    attachment = Attachment(source, known.client, 0, 0, {})
    attachment.open()
    assert attachment.reading is not None
    await asyncio.sleep(0)  # which asks
    return client, source, attachment, attachment.reading


async def test_what_is_read_for_who_has_given_way_meanwhile_does_not_count_as_sent(
    house: Shared,
) -> None:
    client, source, first, reading = await reads_late(house)
    first.hand_over(second := Attachment(source, first.client, 0, 0, {}))
    source.answer.set_result(None)
    await asyncio.wait([reading])
    first.take_back(second)
    await client.until_text("1 1 ")


async def test_who_is_detached_while_the_journal_is_read_gets_nothing_of_it(house: Shared) -> None:
    client, source, detached, reading = await reads_late(house)
    detached.close()
    source.answer.set_result(None)
    await asyncio.wait([reading])
    assert (detached.cursor, detached.is_fed) == (0, False)
    await house.told(client, source.id, "2 ")
    assert numbers(client) == [1, 2]


async def test_reading_for_who_is_detached_ends_where_the_journal_does_not_answer(
    house: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck: asyncio.Future[list[Segment]] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(LateSource, "read", lambda *_: stuck)
    _, _, detached, reading = await reads_late(house)
    detached.close()
    await asyncio.wait([reading])
    assert reading.cancelled()


async def test_a_client_that_is_refused_a_position_has_the_session_open_as_before(
    house: Shared,
) -> None:
    client, session = await house.opened()
    for place in (999, -1):
        params = {**open_params(session, "/"), "_meta": {"acphold/after": place}}
        await client.refused("session/resume", params)
    await house.told(client, session, "1 ")
    assert (await house.turn(client, session, "hi"))["stopReason"] == "end_turn"


@pytest.mark.of_a_file
async def test_the_last_one_of_three_loads_at_once_counts(journal: Path) -> None:
    with small_pages():
        async with shared(journal) as house:
            one, two = await house.client(), await house.client()
            session = await one.new()
            for n in range(100):
                await house.agent.say(session, f"{n} ")
            loads = [two.begin("session/load", open_params(session, "/")) for _ in range(3)]
            await asyncio.wait(loads)
            assert loads[2].result() == {}
            [load.exception() for load in loads]
            assert len(house.hub.conversation(session).session.attachments) == 2
            await house.told(two, session, "100 ")
            assert numbers(two)[-101:] == list(range(101))


@pytest.mark.of_a_file
async def test_a_flood_of_notifications_to_a_client_that_does_not_read_slows_the_agent(
    house: Shared,
) -> None:
    client, session = await house.opened()
    client.reads.clear()
    params = json.dumps({"sessionId": session, "filler": "x" * 10_000}).encode()

    async def flood() -> None:
        for _ in range(1000):
            await house.agent.listener.hear(Notified("_vendor/note", params))

    flooding = asyncio.create_task(flood())
    await client.until(lambda: True)
    done, _ = await asyncio.wait([flooding], timeout=0.3)
    assert not done
    assert client.connection.buffered < bounds.LAG_BYTES + 4 * len(params)
    client.reads.set()
    await flooding
    await client.until(lambda: len(client.messages) == 2 + 1000)


@pytest.mark.parametrize("about_a_session", [True, False])
async def test_a_client_that_does_not_read_is_not_told_on_and_on_while_others_are(
    about_a_session: bool, house: Shared
) -> None:
    _, slow, session = await house.pair()
    slow.reads.clear()
    told = {"sessionId": session} if about_a_session else {}
    params = json.dumps({**told, "filler": "x" * 10_000}).encode()
    for _ in range(500):
        await house.agent.listener.hear(Notified("_vendor/note", params))
    assert slow.connection.buffered < bounds.LAG_BYTES + 4 * len(params)
    slow.reads.set()
    await house.told(slow, session, "behind")


async def test_notifications_that_wait_for_a_client_that_lags_are_bounded_in_bytes(
    house: Shared,
) -> None:
    one, slow, session = await house.pair()
    slow.reads.clear()
    await house.agent.flood(session)
    params = json.dumps({"sessionId": session, "filler": "x" * bounds.DUE_BYTES}).encode()

    def notes(client: Onlooker) -> int:
        return sum(message.get("method") == "_vendor/note" for message in client.messages)

    def told_so_often(times: int) -> bool:
        return notes(one) == times

    for number in range(5):
        await house.agent.listener.hear(Notified("_vendor/note", params))
        await one.until(partial(told_so_often, number + 1))
    slow.reads.set()
    await house.told(slow, session, "behind")
    assert notes(slow) == 1


async def test_a_notification_that_waits_for_a_client_reaches_it_when_it_attaches_anew(
    house: Shared,
) -> None:
    client, session = await house.opened()
    client.reads.clear()
    await house.agent.flood(session)
    params = json.dumps({"sessionId": session}).encode()
    [lagging] = house.hub.conversation(session).session.attachments
    house.hub.conversation(session).session.attachments.tell("_vendor/note", params)
    loading = client.begin("session/load", open_params(session, "/"))
    await _closed(lagging)
    client.reads.set()
    await loading
    await client.until(
        lambda: "_vendor/note" in [message.get("method") for message in client.messages]
    )


async def test_what_is_due_at_an_attachment_that_was_replaced_is_due_at_the_new_one(
    house: Shared,
) -> None:
    client = await house.client()
    session = house.hub.conversation(await client.new()).session
    [old] = session.attachments
    new = session.attachments.attach(client.connection, after=0, live_after=0)
    await house.agent.say(session.id, "1 ")
    done: list[str] = []
    old.when_reached(session.last_seq, lambda: done.append("acted"))
    reached = asyncio.Event()
    old.when_reached(session.last_seq, reached.set)
    assert not done
    new.open()
    await asyncio.wait_for(reached.wait(), 20)
    assert done == ["acted"]


async def test_what_is_in_the_journal_before_it_is_published_is_read_to_nobody(
    house: Shared,
) -> None:
    _client, session_id = await house.talked("one", "ONE")
    session = house.hub.conversation(session_id).session
    # As where the answer to a commit is on its way from a database.
    await house.journal.append(session.lease, [("update", [said("early")])])
    reads = await house.loaded(session_id)
    assert reads.text() == "ONE"


@pytest.mark.of_a_file
async def test_a_client_that_could_not_be_fed_is_told_to_load_the_session_again(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client, session = await house.opened()
    [attachment] = house.hub.conversation(session).session.attachments

    async def fail(*_: object) -> list[Segment]:
        raise JournalError("the disk had a bad moment")

    with monkeypatch.context() as patch:
        patch.setattr(house.journal, "read", fail)
        attachment.cursor -= 1  # it lags
        await house.agent.say(session, "not told")
        await asyncio.wait_for(_closed(attachment), 5)
    await client.until(lambda: "could not be read" in str(client.messages))
    error = await client.refused("session/prompt", prompt_params(session, "hi"))
    assert "call session/load" in error.message
    client.messages.clear()
    await client.load(session)
    assert client.text() == "not told"


@pytest.mark.parametrize("how", ["deleted", "taken"])
async def test_what_is_due_waits_for_the_next_owner_where_a_session_is_lost_as_it_is_read(
    journal: Path, how: str, house: Shared
) -> None:
    client, session = await house.opened()
    await house.told(client, session, "1 ")
    held = house.hub.conversation(session).session
    [attachment] = held.attachments
    other = open_journal(journal)
    await house.give_way()
    if how == "deleted":
        await other.delete(session)
    else:
        await take_lease(other, session)
    moved: list[object] = []
    attachment.on_moved = lambda cursor, due: moved.append((cursor, len(due)))
    answered = asyncio.Event()
    attachment.cursor -= 1  # it lags
    attachment.when_reached(held.last_seq, answered.set)
    house.journal.read = none_left  # type: ignore[method-assign,assignment]
    attachment._catch_up()
    if how == "deleted":
        await answered.wait()
        await client.until(lambda: "deleted" in str(client.messages))
    else:
        await happens(lambda: moved)
        assert moved == [(held.last_seq - 1, 1)]
        assert not answered.is_set()
    await other.aclose()


async def none_left(*_: object) -> list[Segment]:
    """As where another session has its id by now."""
    return []


async def _closed(attachment: Attachment) -> None:
    await happens(lambda: attachment.state is AttachmentState.CLOSED)


async def test_a_load_by_a_client_that_lags_replays_what_it_said_itself(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "LAG_BYTES", 1000)
    client, session = await house.opened()
    client.begin_prompt(session, "first")
    await house.agent.prompted(session)
    client.reads.clear()
    await house.agent.say(session, *["x" * 1000] * 200)
    await house.agent.end(session)
    client.begin_prompt(session, "second")
    await house.agent.prompted(session)
    await house.agent.end(session)
    held = house.hub.conversation(session).session
    before = [*held.attachments]
    opening = client.begin("session/load", open_params(session, "/"))
    await happens(lambda: [*held.attachments] != before)
    client.reads.set()
    await opening
    told = [u for u in client.updates() if u["sessionUpdate"] == "user_message_chunk"]
    assert [update["content"]["text"] for update in told] == ["first", "second"]


async def test_a_client_that_reads_nothing_holds_the_agent_up_only_once(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "STUCK_SECONDS", 0.05)
    deaf, other = await house.client(), await house.client()
    session, others = await deaf.new(), await other.new()
    deaf.reads.clear()
    await house.agent.say(session, "x" * (bounds.LAG_BYTES + 100_000))
    params = json.dumps({"sessionId": session}).encode()
    async with asyncio.timeout(20):
        await house.agent.listener.hear(Notified("_vendor/note", params))
        monkeypatch.setattr(bounds, "STUCK_SECONDS", 3600.0)
        await house.agent.listener.hear(Notified("_vendor/note", params))
        await house.agent.say(others, "goes on")
    await other.until_text("goes on")
    deaf.reads.set()
    await house.told(deaf, session, "read again")
