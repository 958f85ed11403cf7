"""Clients get an agent's messages in the agent's order, even while some are still committed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from acphold.live.agents.interface import Notified
from tests.hub.shared import PERMISSION, Onlooker, Shared, methods

ALLOWED = {"outcome": {"outcome": "selected", "optionId": "yes"}}


@contextmanager
def held_up(journal: Path) -> Iterator[None]:
    """Nothing can be committed in the block."""
    if str(journal).startswith("postgresql:"):
        with psycopg.connect(str(journal)) as other:
            other.execute("SELECT 1 FROM acphold.leases FOR UPDATE")
            yield
    else:
        with closing(sqlite3.connect(journal, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield


def notified(house: Shared, method: str, **params: Any) -> Coroutine[Any, Any, None]:
    return house.agent.listener.hear(Notified(method, json.dumps(params).encode()))


async def begun(said: Sequence[Coroutine[Any, Any, Any]]) -> list[asyncio.Task[Any]]:
    """All of this is said, in this order, as far as it goes now."""
    tasks = [asyncio.create_task(each) for each in said]
    await asyncio.sleep(0)
    return tasks


def answers_all(client: Onlooker) -> None:
    """It answers whatever it is asked."""
    for method in ("_ask", "_outside", "_again"):
        client.answers[method] = lambda _: {}
    client.answers[PERMISSION] = lambda _: ALLOWED


async def test_what_is_said_behind_a_question_is_told_behind_it_though_it_is_not_committed_yet(
    journal: Path, house: Shared
) -> None:
    client = await house.client()
    answers_all(client)
    session = await house.at_work(client)
    await house.told(client, session, "1")
    with held_up(journal):
        saying = await begun(
            [
                house.agent.ask_client(PERMISSION, sessionId=session),
                notified(house, "_note", sessionId=session),
                house.agent.ask_client("_ask", sessionId=session),
                notified(house, "_bare"),
                house.agent.ask_client("_outside"),
                house.agent.say(session, "2"),
                house.agent.ask_client("_again", sessionId=session),
            ]
        )
        await client.sessions()  # it is heard all the same
        assert methods(client)[-1] == "session/update"
    await asyncio.gather(*saying)
    await client.until_text("12")
    told = methods(client)
    assert told[told.index(PERMISSION) :] == [
        PERMISSION,
        "_note",
        "_ask",
        "_bare",
        "_outside",
        "session/update",
        "_again",
    ]
    assert client.text() == "12"
    await house.agent.end(session)


async def test_a_question_of_a_turn_that_is_cancelled_before_it_is_committed_is_put_to_nobody(
    journal: Path, house: Shared
) -> None:
    client = await house.client()
    session = await house.at_work(client)
    with held_up(journal):
        [question] = await begun([house.agent.ask_client(PERMISSION, sessionId=session)])
        client.tell("session/cancel", {"sessionId": session})
        await house.agent.cancelled.wait()
        assert not question.done()
    assert await question == {"outcome": {"outcome": "cancelled"}}
    assert PERMISSION not in methods(client)
