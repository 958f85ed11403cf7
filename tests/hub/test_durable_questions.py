"""Questions of the agent are journalled, wait, and are answered at most once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import (
    AgentExitedError,
    JournalUnavailableError,
    MethodNotFoundError,
    RemoteError,
)
from acphold.journal.rows import RowChange
from acphold.live.agents.interface import AgentRequest, Updates
from tests.editor import Refused
from tests.hub.shared import PERMISSION, Onlooker, Person, Shared, full, methods, shared
from tests.journal.conversations import open_file
from tests.owners import die
from tests.watched_processes import until

FORM = "elicitation/create"
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}

DEADLINE = 30


def permission(session: str, *kinds: str) -> dict[str, Any]:
    """Params of a permission request; the ids of its options are their kinds."""
    return {
        "sessionId": session,
        "toolCall": {"toolCallId": "t", "title": "Run make"},
        "options": [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds],
    }


ALL_KINDS = ("allow_always", "allow_once", "reject_always", "reject_once")


def form(session: str) -> dict[str, Any]:
    return {
        "sessionId": session,
        "mode": "form",
        "message": "Which branch?",
        "requestedSchema": {"type": "object", "properties": {}},
    }


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


def asking(house: Shared, session: str, *kinds: str) -> asyncio.Task[Any]:
    params = permission(session, *(kinds or ALL_KINDS))
    return asyncio.create_task(house.agent.ask_client(PERMISSION, **params))


def notices(client: Onlooker) -> list[str]:
    """The titles of the notices this client was told."""
    return [u["title"] for u in client.updates() if u["sessionUpdate"] == "notice"]


async def journalled(house: Shared, session: str, kind: str) -> None:
    """Wait until there is an entry of this kind."""
    await until(lambda: house.entries(session, kind))


async def test_a_question_is_in_the_journal_before_anybody_is_asked_and_its_answer_with_its_client(
    house: Shared,
) -> None:
    seen: list[int] = []

    async def asked(_: dict[str, Any]) -> Any:
        seen.append(len(await house.entries(session, "question")))
        return selected("allow_once")

    client = await house.client(name="zed")
    client.answers[PERMISSION] = asked
    session = await house.at_work(client)
    assert await asking(house, session) == selected("allow_once")
    assert seen == [1]
    [question] = await house.entries(session, "question")
    [answer] = await house.entries(session, "answer")
    assert question == {
        "id": question["id"],
        "method": PERMISSION,
        "params": permission(session, *ALL_KINDS),
    }
    assert answer == {
        "question": question["id"],
        "outcome": "answered",
        "result": selected("allow_once"),
        "client": {"name": "zed", "version": "1.0"},
    }
    assert (await house.journal.summary(session)).open_questions == ()


async def test_a_question_and_its_end_move_the_session_up_by_which_other_processes_know_of_them(
    house: Shared,
) -> None:
    async def is_new() -> bool:
        """True if the row's time has changed since the last call."""
        found = (await house.journal.session(session)).updated_at
        await house.journal.change(session, RowChange(updated_at=1))
        return found != 1

    client = await house.client()
    person = Person(client)
    session = await house.at_work(client)
    await is_new()
    answer = asking(house, session)
    await person.asked.wait()
    assert await is_new()
    assert not await is_new()
    person.answer.set_result(selected("allow_once"))
    await answer
    assert await is_new()


async def test_questions_are_no_part_of_a_replay(house: Shared) -> None:
    one, two = await house.client(), await house.client()
    one.answers[PERMISSION] = lambda _: selected("allow_once")
    session = await house.at_work(one)
    await asking(house, session)
    await house.agent.say(session, "done")
    await two.load(session)
    # The prompt, the call as it was asked about, and the words.
    assert methods(two) == ["session/update"] * 3


async def test_a_question_waits_while_nobody_is_attached_and_is_put_to_who_comes(
    house: Shared,
) -> None:
    house.agent.heeds_cancel = False
    one = await house.client()
    session = await house.at_work(one)
    await house.agent.say(session, "working")
    hub_leaves(house, one)
    question = asking(house, session)
    await journalled(house, session, "question")
    assert (await house.journal.summary(session)).open_questions != ()
    two = await house.client()
    person = Person(two)
    await two.load(session)
    answer = two.place_of_answer(two.last_id)
    await person.asked.wait()
    assert two.messages[answer + 1]["method"] == PERMISSION
    person.answer.set_result(selected("reject_once"))
    assert await question == selected("reject_once")


def hub_leaves(house: Shared, client: Onlooker) -> None:
    """The client's connection is lost; its requests go on."""
    house.hub.detach(client.connection)


async def test_a_form_waits_for_a_client_that_can_show_it_and_the_others_are_told_once(
    house: Shared,
) -> None:
    first = await house.client(**FORMS)
    session = await house.at_work(first)
    hub_leaves(house, first)
    two = await house.loaded(session, session={"notices": {}})
    question = asyncio.create_task(house.agent.ask_client(FORM, **form(session)))
    await two.until(lambda: notices(two))
    three = await house.loaded(session, session={"notices": {}})
    await three.until(lambda: notices(three))
    four = await house.client(**FORMS)
    person = Person(four, FORM)
    await four.load(session)
    await person.asked.wait()
    person.answer.set_result({"action": "accept", "content": {"branch": "main"}})
    assert await question == {"action": "accept", "content": {"branch": "main"}}
    assert notices(two) == notices(three) == ["The agent is waiting for an answer"]
    assert FORM not in methods(two) + methods(three)


async def test_a_form_is_refused_if_the_agent_was_not_told_that_forms_can_be_shown(
    house: Shared,
) -> None:
    session = await house.at_work(await house.client())
    with pytest.raises(MethodNotFoundError):
        await house.agent.ask_client(FORM, **form(session))
    assert await house.entries(session, "question") == []


async def test_a_form_is_put_to_a_client_that_can_show_it_though_the_first_one_could_not(
    house: Shared,
) -> None:
    session = await house.at_work(await house.client())
    two = await house.client(**FORMS)
    two.answers[FORM] = lambda _: {"action": "decline"}
    await two.load(session)
    assert await house.agent.ask_client(FORM, **form(session)) == {"action": "decline"}


async def test_a_cancel_ends_questions_and_forms_as_cancelled(house: Shared) -> None:
    house.agent.heeds_cancel = False
    client = await house.client(**FORMS)
    people = Person(client), Person(client, FORM)
    session = await house.at_work(client)
    question = asking(house, session)
    asked = asyncio.create_task(house.agent.ask_client(FORM, **form(session)))
    for person in people:
        await person.asked.wait()
    client.tell("session/cancel", {"sessionId": session})
    assert await question == {"outcome": {"outcome": "cancelled"}}
    assert await asked == {"action": "cancel"}
    await client.until(lambda: methods(client).count("$/cancel_request") == 2)
    # And questions while it winds down are put to nobody.
    assert await asking(house, session) == {"outcome": {"outcome": "cancelled"}}
    assert await house.agent.ask_client(FORM, **form(session)) == {"action": "cancel"}
    assert [person.times for person in people] == [1, 1]
    answers = await house.entries(session, "answer")
    assert [answer["outcome"] for answer in answers] == ["cancelled", "cancelled"]


async def test_a_question_that_all_refuse_is_refused_with_the_reason(house: Shared) -> None:
    client = await house.client()
    del client.answers[PERMISSION]
    session = await house.at_work(client)
    with pytest.raises(RemoteError, match="not here"):
        await asking(house, session)
    [answer] = await house.entries(session, "answer")
    assert (answer["outcome"], answer["message"]) == ("refused", "not here")


@pytest.mark.of_a_file
async def test_a_late_answer_and_a_client_that_knows_no_cancelled_requests_harm_nothing(
    house: Shared,
) -> None:
    one, two = await house.client(), await house.client()
    late = Person(one)
    two.answers[PERMISSION] = lambda _: selected("reject_once")
    session = await house.at_work(one)
    await two.load(session)
    assert await asking(house, session) == selected("reject_once")
    await late.asked.wait()
    late.answer.set_result(selected("allow_always"))
    await house.told(one, session, "on")
    assert await one.call("session/list", {})
    [answer] = await house.entries(session, "answer")
    assert answer["result"] == selected("reject_once")


async def test_a_turn_ends_no_later_than_its_questions_and_those_of_no_turn_stay(
    house: Shared,
) -> None:
    client = await house.client()
    person = Person(client)
    session = await client.new()
    outside = asking(house, session)
    await person.asked.wait()
    await house.begun(client, session, "do it")
    within = asking(house, session)
    await client.until(lambda: methods(client).count(PERMISSION) == 2)
    asked = [m["id"] for m in client.messages if m.get("method") == PERMISSION]
    early = asking(house, session)
    await asyncio.sleep(0)  # it is asked, and nothing of it is in the journal yet
    await house.agent.end(session)
    cancelled = {"outcome": {"outcome": "cancelled"}}
    assert (await within, await early) == (cancelled, cancelled)
    await client.until(lambda: "$/cancel_request" in methods(client))
    over = [m["params"] for m in client.messages if m.get("method") == "$/cancel_request"]
    assert {"requestId": asked[1]} in over
    assert {"requestId": asked[0]} not in over
    answers = [answer["outcome"] for answer in await house.entries(session, "answer")]
    assert answers == ["withdrawn", "withdrawn"]
    assert "stopReason" in (await house.entries(session, "answer", "turn_end"))[-1]
    person.answer.set_result(selected("allow_once"))
    assert await outside == selected("allow_once")


@pytest.mark.parametrize(
    ("kinds", "result"),
    [
        (ALL_KINDS, selected("reject_once")),
        (("allow_once", "reject_always"), {"outcome": {"outcome": "cancelled"}}),
        (("allow_always", "allow_once"), {"outcome": {"outcome": "cancelled"}}),
    ],
)
async def test_reject_waits_for_nobody_and_says_nothing_for_always(
    journal: Path, kinds: tuple[str, ...], result: dict[str, Any]
) -> None:
    async with shared(journal, when_detached="reject") as house, asyncio.timeout(DEADLINE):
        client = await house.client(**FORMS)
        person = Person(client)
        session = await house.at_work(client)
        question = asking(house, session, *kinds)
        await person.asked.wait()  # while somebody is there, it waits
        hub_leaves(house, client)
        assert await question == result
        assert await asking(house, session, *kinds) == result
        assert await house.agent.ask_client(FORM, **form(session)) == {"action": "decline"}
        outcomes = [answer["outcome"] for answer in await house.entries(session, "answer")]
        assert outcomes == ["rejected"] * 3


async def test_a_question_is_rejected_behind_its_limit_though_somebody_is_there(
    journal: Path,
) -> None:
    async with shared(journal, answer_timeout=0.01) as house, asyncio.timeout(DEADLINE):
        client = await house.client(**FORMS)
        Person(client), Person(client, FORM)
        session = await house.at_work(client)
        assert await asking(house, session) == selected("reject_once")
        assert await house.agent.ask_client(FORM, **form(session)) == {"action": "cancel"}

        def asked_and_told() -> bool:
            """On a busy machine the limit may have passed before the client was asked."""
            told = methods(client)
            return told.count("$/cancel_request") == told.count(PERMISSION) + told.count(FORM)

        await client.until(asked_and_told)
        outcomes = [answer["outcome"] for answer in await house.entries(session, "answer")]
        assert outcomes == ["expired"] * 2


async def test_when_the_agent_dies_its_question_ends_and_who_comes_next_is_told(
    house: Shared,
) -> None:
    one = await house.client()
    session = await house.at_work(one)
    call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Run make"}
    await house.agent.listener.hear(Updates(session, "update", [json.dumps(call).encode()]))
    hub_leaves(house, one)
    question = asking(house, session)
    await journalled(house, session, "question")
    await house.agent.end(session, AgentExitedError("it crashed", "signal SIGSEGV", ""))
    with pytest.raises(AgentExitedError):
        await question
    two = await house.loaded(session, session={"notices": {}})
    assert PERMISSION not in methods(two)
    await two.until(lambda: notices(two))
    assert notices(two) == ["The agent's question was not answered"]
    [answer] = await house.entries(session, "answer")
    assert (answer["outcome"], answer["message"]) == ("interrupted", "it crashed")
    closed = [u for u in two.updates() if u.get("status") == "failed"]
    assert closed[0]["_meta"]["acphold/failed"] == "it crashed"
    three = await house.loaded(session, session={"notices": {}})
    assert notices(three) == []  # it was for the moment


@pytest.mark.of_a_file
async def test_when_the_owner_died_its_question_ends_and_who_comes_next_is_told(
    journal: Path,
) -> None:
    dead = open_file(journal)
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        client = await house.client()
        Person(client)
        session = await house.at_work(client)
        question = asking(house, session)
        await journalled(house, session, "question")
        # The next owner finds the journal as a process left it that was killed here.
        live = house.hub.conversation(session)
        await dead.acquire(session)
        die(dead)
        async with shared(journal) as next_house:
            client = await next_house.client(session={"notices": {}})
            await client.load(session)
            assert PERMISSION not in methods(client)
            await client.until(lambda: notices(client))
            [answer] = await next_house.entries(session, "answer")
            assert answer["outcome"] == "interrupted"
            assert (await next_house.journal.summary(session)).open_questions == ()
        assert live.questions.waiting  # the old process does not know yet
        question.cancel()
        await asyncio.wait([question])
    await dead.aclose()


async def test_the_end_of_the_process_ends_what_waits_and_journals_it(journal: Path) -> None:
    async with shared(journal) as house:
        client = await house.client()
        Person(client)
        session = await client.new()
        question = asking(house, session)  # outside of any turn
        await journalled(house, session, "question")
    assert await question == {"outcome": {"outcome": "cancelled"}}
    async with shared(journal) as house:
        await house.client()
        [answer] = await house.entries(session, "answer")
        assert answer["outcome"] == "cancelled"


async def test_a_question_that_cannot_be_journalled_is_asked_of_nobody(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client, session = await house.opened()
    monkeypatch.setattr(house.journal, "append", full)
    with pytest.raises(JournalUnavailableError):
        await asking(house, session)
    assert PERMISSION not in methods(client)


async def test_a_question_whose_answer_cannot_be_journalled_is_closed_before_the_next_prompt(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client, session = await house.opened()
    person = Person(client)
    turn = await house.begun(client, session, "first")
    question = asking(house, session)
    await person.asked.wait()
    with monkeypatch.context() as patch:
        patch.setattr(house.journal, "append", full)
        person.answer.set_result(selected("allow_once"))
        with pytest.raises(JournalUnavailableError):
            await question
        with pytest.raises(Refused):
            await turn
    assert (await house.journal.summary(session)).open_questions
    await house.begun(client, session, "second")
    assert not (await house.journal.summary(session)).open_questions
    assert len(await house.entries(session, "answer")) == 1


async def test_many_questions_to_a_client_that_reads_nothing_take_bounded_memory(
    house: Shared,
) -> None:
    one, two = await house.client(), await house.client()
    two.answers[PERMISSION] = lambda _: selected("reject_once")
    session = await house.at_work(one)
    await two.load(session)
    one.reads.clear()
    filler = "x" * 100_000
    for number in range(40):  # twice as much as is allowed
        params = {**permission(session, "reject_once"), "n": number, "filler": filler}
        asked = AgentRequest(PERMISSION, json.dumps(params).encode())
        assert json.loads(await house.agent.listener.answer(asked)) == selected("reject_once")
        await house.agent.say(session, filler)
        assert one.connection.buffered < 4_000_000
    [attachment] = [
        item
        for item in house.hub.conversation(session).session.attachments
        if item.client is one.connection
    ]
    assert not attachment._due
    one.reads.set()
    await house.told(one, session, "behind")
    assert methods(one).count(PERMISSION) < 40, "what was over before it caught up is not put to it"


WATCHES: dict[str, Any] = {"_meta": {"acphold/watches": True}}


async def test_a_watcher_is_asked_nothing_and_a_question_waits_though_it_is_there(
    house: Shared,
) -> None:
    one = await house.client(**FORMS)
    watcher = await house.client(session={"notices": {}}, **FORMS, **WATCHES)
    session = await house.at_work(one)
    await watcher.load(session)
    await house.leave(one)
    question = asking(house, session)
    await watcher.until(lambda: "The agent is waiting for an answer" in notices(watcher))
    other = await house.client()
    other.answers[PERMISSION] = lambda _: selected("reject_once")
    await other.load(session)
    assert await question == selected("reject_once")
    asked = asyncio.create_task(house.agent.ask_client(FORM, **form(session)))
    await journalled(house, session, "question")
    assert not {PERMISSION, FORM} & {*methods(watcher)}
    asked.cancel()


async def test_a_notice_names_the_tool_call_of_which_the_question_has_only_the_id(
    house: Shared,
) -> None:
    one = await house.client()
    watcher = await house.client(session={"notices": {}}, **WATCHES)
    session = await house.at_work(one)
    await watcher.load(session)
    call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Edit main.py\nand more"}
    await house.agent.listener.hear(Updates(session, "update", [json.dumps(call).encode()]))
    params = permission(session, *ALL_KINDS) | {"toolCall": {"toolCallId": "t"}}
    question = asyncio.create_task(house.agent.ask_client(PERMISSION, **params))
    await watcher.until(lambda: notices(watcher))
    [told] = [u for u in watcher.updates() if u["sessionUpdate"] == "notice"]
    assert "The question: Edit main.py" in json.dumps(told)
    question.cancel()


async def test_a_watcher_counts_as_nobody_with_reject(journal: Path) -> None:
    async with shared(journal, when_detached="reject") as house, asyncio.timeout(DEADLINE):
        one, watcher = await house.client(), await house.client(**WATCHES)
        session = await house.at_work(one)
        await watcher.load(session)
        await house.leave(one)
        assert await asking(house, session) == selected("reject_once")
        assert PERMISSION not in methods(watcher)


@pytest.mark.parametrize("method", ["authenticate", "session/new"])
async def test_a_form_of_a_request_is_for_the_client_that_made_it_under_the_id_that_it_gave(
    method: str, house: Shared
) -> None:
    one, two = await house.client(**FORMS), await house.client(**FORMS)
    house.agent.may_answer.clear()
    house.agent.results["authenticate"] = b"{}"
    person = Person(two, FORM)
    person.answer.set_result({"action": "decline"})
    asking = two.begin(method, {"cwd": "/", "mcpServers": [], "methodId": "m"})
    await house.agent.was_asked(method)
    wanted = {**form(""), "requestId": len(house.agent.calls) - 1}
    del wanted["sessionId"]
    assert await house.agent.ask_client(FORM, **wanted) == {"action": "decline"}
    [asked] = [m["params"] for m in two.messages if m.get("method") == FORM]
    assert asked["requestId"] == two.last_id
    assert FORM not in methods(one)
    house.agent.may_answer.set()
    await asking


async def test_a_form_outside_of_sessions_is_cancelled_when_its_client_goes(house: Shared) -> None:
    one = await house.client(**FORMS)
    other = await house.client(**FORMS)
    person = Person(one, FORM)
    house.agent.may_answer.clear()
    one.begin("session/new", {"cwd": "/", "mcpServers": []})
    await house.agent.was_asked("session/new")
    params = {**form(""), "requestId": len(house.agent.calls) - 1}
    del params["sessionId"]
    asked = asyncio.create_task(house.agent.ask_client(FORM, **params))
    await person.asked.wait()
    await one.leave()
    assert await asked == {"action": "cancel"}
    await house.gone(one)
    # So is one that comes only then.
    assert await house.agent.ask_client(FORM, **params) == {"action": "cancel"}
    assert FORM not in methods(other)
