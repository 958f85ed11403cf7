"""A session stands on the terms of the client that opened it; no prompt leaves on others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_wire.surroundings import Surroundings
from acphold.conversation.history.prompt_queue import why_held
from acphold.live.agents.terms import Terms
from tests.hub.shared import Onlooker, Shared, shared
from tests.hub.test_newest_surroundings import editors
from tests.watched_processes import until

ONE = Surroundings({"WHO": "same"}, "/one")
TWO = Surroundings({"WHO": "same"}, "/two")
PROVIDER = {"providerId": "main", "baseUrl": "https://one.example/canary"}
OTHER = {"providerId": "main", "baseUrl": "https://two.example/canary"}
SIGN_IN = {"methodId": "gateway", "_meta": {"key": "canary"}}
ACCEPTED = ("providers/set", "providers/disable", "authenticate", "logout")


def both(journal: Path, **surroundings: Any) -> Any:
    return editors(journal, **{"one": ONE, "two": TWO, **surroundings})


def accept(*houses: Shared) -> None:
    for house in houses:
        house.agent.results |= dict.fromkeys(ACCEPTED, b"{}")


def told(house: Shared) -> list[str]:
    """The methods that the agent was asked, but for what editors do anyhow."""
    return [method for method, _ in house.agent.asked if method in ACCEPTED]


async def test_a_session_moves_to_the_agent_of_a_client_with_other_terms_that_opens_it(
    journal: Path,
) -> None:
    async with both(journal) as (first, second):
        accept(first, second)
        one, session = await first.talked("hello", "hi")
        two = await second.client()
        await two.call("providers/set", PROVIDER)
        await two.load(session)
        await second.turn(two, session, "where?", "here")
        # It is never moved by a prompt; the sentence names both and the way out.
        await one.call("providers/set", OTHER)
        error = await one.refused("session/prompt", {"sessionId": session, "prompt": []})
        assert error.message.count("provider “main”") == 2
        assert "load it here to continue on yours" in error.message
        assert "canary" not in error.message
        assert told(second) == ["providers/set"]
        await one.load(session)
        await first.turn(one, session, "and now?", "back")
        error = await two.refused("session/prompt", {"sessionId": session, "prompt": []})
        assert "load it here" in error.message


async def test_a_client_without_terms_of_its_own_joins_on_those_of_the_session(
    journal: Path,
) -> None:
    async with both(journal) as (first, second):
        accept(first, second)
        one = await first.client()
        await one.call("providers/set", PROVIDER)
        session = await one.new()
        await first.turn(one, session, "hello", "hi")
        two = await second.loaded(session)
        await first.turn(two, session, "me, too", "yes")
        assert "This session works on provider “main”" in json.dumps(
            two.messages, ensure_ascii=False
        )
        assert "This session works" not in json.dumps(one.messages)
        await first.leave(one)
        await two.load(session)  # also once the other has left
        await first.turn(two, session, "still?", "yes")
        assert not second.agent.asked


@pytest.mark.parametrize("how", ["in a turn", "cannot close", "cannot load"])
async def test_it_stays_where_it_would_lose_something_until_that_is_over(
    journal: Path, how: str
) -> None:
    async with both(journal) as (first, second):
        accept(first, second)
        one, session = await first.talked("hello", "hi")
        if how == "in a turn":
            turn = await first.begun(one, session, "long")
        elif how == "cannot close":
            first.agent.can("load")
            await one.new()
        else:
            second.agent.can()
        two = await second.client()
        await two.call("providers/set", PROVIDER)
        # The change would reach the first agent, where it had no say: it has none of its own.
        first.agent.results.pop("providers/set")
        await two.load(session)
        error = await two.refused("session/prompt", {"sessionId": session, "prompt": []})
        if how == "in a turn":
            assert "load it here once its turn has ended" in error.message
            await first.ended(session, turn)
            await until(lambda: first.hub.desk_of(session) is second.desk)  # it comes by itself
            await second.turn(two, session, "now?", "yes")
            assert told(first) == []
        else:
            assert f"acphold continue {session} --from last" in error.message


async def test_a_change_reaches_the_agents_in_which_sessions_of_its_client_live_if_all_agree(
    journal: Path,
) -> None:
    async with both(journal) as (first, second):
        accept(first, second)
        one, session = await first.opened()
        two = await second.loaded(session)
        await two.call("authenticate", SIGN_IN)
        assert told(first) == told(second) == ["authenticate"]
        await first.turn(two, session, "hello", "hi")
        await one.call("providers/set", PROVIDER)  # both agree on that only now
        assert told(second) == ["authenticate"]
        error = await two.refused("session/prompt", {"sessionId": session, "prompt": []})
        assert "load it here" in error.message
        await two.call("providers/set", OTHER)
        assert told(first) == ["authenticate", "providers/set"]  # the first has a say there


async def test_of_several_clients_of_one_agent_none_sends_the_others_elsewhere(
    house: Shared,
) -> None:
    accept(house)
    one, session = await house.opened()
    await one.call("providers/set", PROVIDER)
    two = await house.loaded(session)
    error = await two.refused("providers/set", OTHER)
    assert "once the other client has left" in error.message
    assert told(house) == ["providers/set"]
    await two.call("providers/set", PROVIDER)
    await house.turn(two, session, "hello", "hi")
    await house.leave(one)
    await two.call("providers/set", OTHER)
    await house.turn(two, session, "hello", "hi")


async def test_nothing_else_is_said_to_an_agent_on_other_terms(journal: Path) -> None:
    async with both(journal) as (first, second):
        accept(first, second)
        one, session = await first.opened()
        two = await second.client()
        await two.call("providers/set", PROVIDER)
        turn = await first.begun(one, session, "long")
        await two.load(session)
        first.agent.results.pop("providers/set")
        await two.call("providers/set", OTHER)
        words = {"sessionId": session, "prompt": [{"type": "text", "text": "and this"}]}
        for method, params in (
            ("_session/steering", words),
            (
                "_acphold/queue",
                {"sessionId": session, "change": {"do": "add", "prompt": words["prompt"]}},
            ),
            ("_vendor/unknown", {"sessionId": session}),
        ):
            error = await two.refused(method, params)
            assert "terms of another client" in error.message, method
        two.tell("_session/steering", words)
        await two.call("session/list", {})
        assert not any(method.startswith("_") for method, _ in first.agent.told)
        await first.ended(session, turn)


async def test_an_editor_that_comes_back_goes_on_on_its_terms(journal: Path) -> None:
    async with both(journal) as (first, _):
        accept(first)
        one, session = await first.opened()
        await one.call("providers/set", PROVIDER)
        await first.leave(one)
        again = await first.loaded(session)
        await first.turn(again, session, "hello", "hi")
        assert again.connection.terms == {"puppet": first.agent.terms}


def test_terms_are_compared_as_values_and_show_none_of_them() -> None:
    one, two = json.dumps(PROVIDER).encode(), json.dumps(dict(reversed(PROVIDER.items()))).encode()
    terms = Terms().after("providers/set", one).after("authenticate", json.dumps(SIGN_IN).encode())
    assert terms == Terms().after("authenticate", json.dumps(SIGN_IN).encode()).after(
        "providers/set", two
    )
    assert "canary" not in f"{terms!r} {terms.choices!r} {terms.label}"
    assert terms.label == "provider “main”, sign-in “gateway”"
    assert not Terms()


async def queued(client: Onlooker, session: str, *, do: str = "add", **more: Any) -> Any:
    """Change the queue: by default, queue a prompt."""
    change: dict[str, Any] = {"do": do, **more}
    if do == "add":
        change["prompt"] = [{"type": "text", "text": "next"}]
    return await client.call("_acphold/queue", {"sessionId": session, "change": change})


async def test_a_queue_on_terms_that_are_gone_is_held_until_a_client_with_terms_opens_it(
    journal: Path,
) -> None:
    async with shared(journal) as house:
        accept(house)
        one, session = await house.opened()
        await one.call("providers/set", PROVIDER)
        await queued(one, session, do="set", restarts=True)
        turn = await house.begun(one, session, "long")
        await queued(one, session)
        queue = (await house.journal.summary(session)).queue
        assert [it.terms for it in queue.waiting] == ["provider “main”"]
        del turn  # the process is killed in it
    async with shared(journal) as house:  # it knows nothing of the terms
        accept(house)
        house.agent.can("load")
        house.agent.terms = Terms(variables=(("A_KEY", "canary"),))  # less than was chosen
        one = await house.loaded(session)
        queue = (await house.journal.summary(session)).queue
        assert (queue.held, queue.terms) == ("terms", "provider “main”")
        assert why_held(queue.held, None).startswith("paused: load it in a client that chooses")
        warned = json.dumps(one.messages, ensure_ascii=False)
        assert "This session stood on provider “main”, which its agent has no longer" in warned
        refused = await one.refused(
            "_acphold/queue", {"sessionId": session, "change": {"do": "go"}}
        )
        assert "provider “main”" in refused.message
        assert "session/prompt" not in [method for method, _ in house.agent.asked]
        await one.call("providers/set", PROVIDER)
        await house.agent.prompted(session)
        await house.agent.end(session)
        for entry in await house.entries(session, "queue", "prompt", "update", "settings"):
            assert "canary" not in json.dumps(entry)


async def test_a_queue_that_waits_does_not_go_on_by_another_clients_terms(journal: Path) -> None:
    async with both(journal) as (first, second):
        accept(first, second)
        one, session = await first.opened()
        await one.call("providers/set", PROVIDER)
        await queued(one, session, do="hold", why="paused")
        await queued(one, session)
        [taken] = [it.id for it in (await first.journal.summary(session)).queue.waiting]
        await queued(one, session)
        two = await second.client()
        await two.call("providers/set", OTHER)
        await two.load(session)
        error = await two.refused("session/prompt", {"sessionId": session, "prompt": []})
        assert "once its turn has ended and no prompt waits" in error.message
        error = await two.refused("_acphold/queue", {"sessionId": session, "change": {"do": "go"}})
        assert "provider “main”" in error.message
        await queued(two, session, do="drop", id=taken)  # that sends nothing
        await queued(one, session, do="go")
        await first.agent.prompted(session)
        await first.agent.end(session)
        await until(lambda: first.hub.desk_of(session) is second.desk)  # it comes by itself
        await second.turn(two, session, "now?", "yes")


@pytest.mark.parametrize("on", ["variables", "a sign-in that the agent keeps itself"])
async def test_a_queue_goes_on_after_a_restart_on_what_the_next_process_has_too(
    on: str, journal: Path
) -> None:
    async with shared(journal) as house:
        accept(house)
        house.agent.can("load")
        if on == "variables":
            house.agent.terms = Terms(variables=(("A_KEY", "one"),))
        one, session = await house.opened()
        if on != "variables":
            await one.call("authenticate", {"methodId": "browser"})
        await queued(one, session, do="set", restarts=True)
        await house.begun(one, session, "long")
        await queued(one, session)
    async with shared(journal) as house:
        house.agent.can("load")
        if on == "variables":
            house.agent.terms = Terms(variables=(("A_KEY", "two"),))
        await house.loaded(session)
        await house.agent.prompted(session)
        await house.agent.end(session)


async def test_a_queue_is_not_held_for_terms_once_the_person_has_logged_out(house: Shared) -> None:
    accept(house)
    one, session = await house.opened()
    await one.call("authenticate", SIGN_IN)
    assert (await house.journal.summary(session)).queue.terms == "sign-in “gateway”"
    await one.call("logout", {})
    assert (await house.journal.summary(session)).queue.terms == ""


async def test_no_client_says_what_a_session_stands_on(house: Shared) -> None:
    one, session = await house.opened()
    await queued(one, session, do="set", terms="provider “mine”", restarts=True)
    queue = (await house.journal.summary(session)).queue
    assert (queue.terms, queue.restarts) == ("", True)


async def test_a_sign_in_with_the_agents_own_program_takes_the_place_of_a_clients(
    house: Shared,
) -> None:
    accept(house)
    house.agent.can("load")
    one, session = await house.opened()
    await one.call("providers/set", PROVIDER)
    await one.call("authenticate", SIGN_IN)
    await house.desk.on_sign_in_outside()
    assert house.agent.terms.label == "provider “main”"
    await house.turn(one, session, "hello", "hi")


async def test_an_editor_sends_no_prompt_of_another_that_waits_elsewhere(journal: Path) -> None:
    async with both(journal) as (first, second):
        accept(first, second)
        one, session = await first.opened()
        await one.call("providers/set", PROVIDER)
        two = await second.client()
        await two.call("providers/set", PROVIDER)
        await two.load(session)
        turn = await first.begun(one, session, "long")
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "mine"}]}
        waiting = asyncio.ensure_future(two.call("session/prompt", params))
        await one.call("session/list", {})
        error = await one.refused("providers/set", OTHER)
        assert "once the other client has left" in error.message
        await first.ended(session, turn)
        await first.agent.prompted(session)
        await first.ended(session, waiting)
        assert told(first) == ["providers/set"]


@asynccontextmanager
async def later(journal: Path) -> AsyncIterator[Shared]:
    """A process that comes later."""
    async with shared(journal) as house:
        accept(house)
        house.agent.can("load")
        yield house


@pytest.fixture
async def lost(journal: Path) -> AsyncIterator[tuple[Shared, str]]:
    """A session on a provider that no process knows any more."""
    async with shared(journal) as house:
        accept(house)
        one, session = await house.opened()
        await one.call("providers/set", PROVIDER)
        await house.turn(one, session, "hello", "hi")
    async with later(journal) as house:
        yield house, session


async def test_nothing_is_said_in_a_session_whose_chosen_terms_are_lost_until_they_are_chosen(
    lost: tuple[Shared, str],
) -> None:
    house, session = lost
    page = await house.loaded(session)
    assert "So nothing is sent" in json.dumps(page.messages, ensure_ascii=False)
    words = {"sessionId": session, "prompt": [{"type": "text", "text": "secret"}]}
    for method in ("session/prompt", "_session/steering"):
        error = await page.refused(method, words)
        assert "stood on provider “main”" in error.message
        assert f"acphold continue {session} --from last" in error.message
    page.tell("_session/steering", words)
    await page.call("session/list", {})
    assert "secret" not in json.dumps([house.agent.asked, house.agent.told])
    editor = await house.loaded(session)
    await editor.call("providers/set", OTHER)
    await house.turn(page, session, "hello", "hi")  # it joins on those


@pytest.mark.parametrize("how", ["a copy", "another agent"])
async def test_a_copy_goes_on_on_the_agents_own_terms_and_another_agent_on_its_own(
    how: str, lost: tuple[Shared, str]
) -> None:
    house, session = lost
    page = await house.client()
    if how == "a copy":
        session = (await page.call("_acphold/fork", {"sessionId": session}))["sessionId"]
    else:
        house.agent.key = "another"
    await page.load(session)
    turn = page.begin_prompt(session, "hello")
    await house.agent.until_at_work()
    await house.agent.end(house.agent.at_work[0])
    await turn


async def test_variables_that_are_gone_are_only_told(journal: Path) -> None:
    async with shared(journal) as house:
        house.agent.terms = Terms(variables=(("A_KEY", "one"),))
        one, session = await house.talked("hello", "hi")
    async with later(journal) as house:
        one = await house.loaded(session)
        assert "unless you choose that again" in json.dumps(one.messages)
        await house.turn(one, session, "hello", "hi")
