"""A session that became one with another is loaded by both ids, whichever the client knows."""

from __future__ import annotations

import asyncio

from tests.hub.shared import PERMISSION, Person, Shared


async def test_a_client_goes_on_under_the_id_that_it_knows(house: Shared) -> None:
    other, session = await house.talked("Mend the gate", "ONE")
    lease = house.hub.conversation(session).session.lease
    await house.journal.links.link(lease, "puppet", "the double")
    await house.journal.links.link(lease, "puppet", session)
    client = await house.client()
    person = Person(client)
    await client.load("the double")
    turn = client.begin_prompt("the double", "Paint it")
    await house.agent.prompted(session)
    question = asyncio.create_task(house.agent.ask_client(PERMISSION, sessionId=session))
    await person.asked.wait()
    person.answer.set_result({"outcome": "yes"})
    assert await question == {"outcome": "yes"}
    await house.agent.say(session, "TWO")
    client.tell("session/cancel", {"sessionId": "the double"})
    assert (await turn)["stopReason"] == "cancelled"
    named = [
        m["params"]["sessionId"] for m in client.messages if "sessionId" in m.get("params", {})
    ]
    assert client.text() == "ONETWO"
    assert set(named) == {"the double"}
    await other.until_text("TWO")
    assert {
        m["params"]["sessionId"] for m in other.messages if "update" in m.get("params", {})
    } == {session}
    assert (await house.journal.resolve("the double")).session_id == session
