"""A session is unseen until somebody sees how its last turn ended, on any device."""

from __future__ import annotations

from tests.hub.shared import Shared

DEADLINE = 30


async def test_a_turn_that_ends_before_somebodys_eyes_is_seen(house: Shared) -> None:
    _client, session = await house.talked("hello")
    assert not (await house.journal.session(session)).unseen


async def test_a_turn_that_ends_while_nobody_is_there_is_unseen_until_somebody_comes(
    house: Shared,
) -> None:
    client, session = await house.opened()
    await house.begun(client, session, "hello")
    last = (await house.journal.changes(None)).last
    house.hub.detach(client.connection)  # its connection is lost, and the turn goes on
    await house.agent.end(session)
    assert (await house.journal.session(session)).unseen
    assert session in (await house.journal.changes(last)).session_ids
    assert (await house.journal.outcomes([session]))[session] == "completed"
    await house.loaded(session)
    assert not (await house.journal.session(session)).unseen


async def test_an_outcome_is_of_the_last_turn_and_open_while_that_runs(house: Shared) -> None:
    client, session = await house.opened()
    assert await house.journal.outcomes([session, "none"]) == {}
    await house.turn(client, session, "one")
    await house.begun(client, session, "two")
    for number in range(200):  # far more than is looked through
        await house.agent.say(session, f"word{number} ")
    assert await house.journal.outcomes([session]) == {session: None}
    await house.agent.end(session, b'{"stopReason":"refusal"}')
    assert await house.journal.outcomes([session]) == {session: "refused"}
