"""A message that a client repeats, unsure if it arrived, takes effect once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from acphold.client.answers import PermissionQuestion
from acphold.errors import ConnectionLostError
from tests.editor import SCRIPTED
from tests.web.conftest import Served, serving
from tests.web.far_client import POSITIONS, YES, FarClient, asks, far_client, steps
from tests.web.network import network, own_port

pytestmark = pytest.mark.slow


def client_of(served: Served) -> AbstractAsyncContextManager[FarClient]:
    return far_client(served.url, served.token(), POSITIONS)


def position(client: FarClient) -> int:
    """The last one that it was told."""
    metas = (json.loads(told).get("_meta", {}) for told in client.told)
    return max(int(meta.get("acphold/seq", 0)) for meta in metas)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, agent=(sys.executable, SCRIPTED, "{}")) as found:
        yield found


async def test_a_question_is_known_again_and_its_answer_is_told_to_have_been_taken(
    served: Served,
) -> None:
    folder = str(served.folder)
    async with client_of(served) as first:
        made = await first.ask("session/new", cwd=folder, mcpServers=[])
        session, lineage = made["sessionId"], made["_meta"]["acphold/lineage"]
        prompt = first.ask("session/prompt", sessionId=session, prompt=asks(session))
        prompting = asyncio.create_task(prompt)
        asked, _ = await first.asked.get()
        question = asked["_meta"]["acphold/question"]
        last = position(first)
    with pytest.raises(ConnectionLostError):
        await prompting
    behind = {"acphold/after": last, "acphold/lineage": lineage}
    resumed = {"sessionId": session, "cwd": folder, "_meta": behind}
    resumed["_meta"]["acphold/answered"] = ["mine", "another"]
    async with client_of(served) as second:
        told = await second.ask("session/resume", **resumed)
        assert told["_meta"]["acphold/answered"] == []
        again, answer = await second.asked.get()
        assert again["_meta"]["acphold/question"] == question
        answer.set_result(json.dumps({**YES, "_meta": {"acphold/sent": {"id": "mine"}}}).encode())
        await second.until('\\"yes\\"')
        assert "acphold/sent" not in "".join(second.told)  # the agent was not told of it
    served.start_again()
    async with client_of(served) as third:
        told = await third.ask("session/resume", **resumed)
        assert told["_meta"]["acphold/answered"] == ["mine"]
        assert third.asked.empty()


async def test_a_cancellation_that_names_its_prompt_ends_no_other(served: Served) -> None:
    async with client_of(served) as client:
        folder = str(served.folder)
        session = (await client.ask("session/new", cwd=folder, mcpServers=[]))["sessionId"]

        def begin(id_: str, *what: object) -> asyncio.Task[dict[str, Any]]:
            meta = {"acphold/sent": {"id": id_}}
            prompt = steps(*what, {"until": "cancel"}, {"stop": "cancelled"})
            asking = client.ask("session/prompt", sessionId=session, prompt=prompt, _meta=meta)
            return asyncio.create_task(asking)

        def cancel(id_: str) -> None:
            params = {"sessionId": session, "_meta": {"acphold/sent": {"id": id_}}}
            client.peer.tell("session/cancel", json.dumps(params).encode())

        first, second = begin("one", {"say": "begun"}), begin("two", {"say": "second"})
        await client.until("begun")
        cancel("one")
        assert (await first)["stopReason"] == "cancelled"
        cancel("one")  # again, because nobody knew whether it had arrived
        await client.until("second")
        assert not second.done()
        cancel("two")
        assert (await second)["stopReason"] == "cancelled"


async def test_a_cancellation_and_an_answer_that_a_connection_lost_arrive_over_the_next(
    tmp_path: Path,
) -> None:
    async with network() as failing:
        failing.to = own_port()
        url = f"http://localhost:{failing.port}"
        options = ("--listen", f"127.0.0.1:{failing.to}", "--url", url)
        asked = 0

        async def yes(question: PermissionQuestion) -> str:
            nonlocal asked
            asked += 1
            if asked == 1:
                failing.stall()  # the answer is lost, with the connection
                asyncio.get_running_loop().call_later(0.5, failing.go_down)
                asyncio.get_running_loop().call_later(0.6, failing.passes.set)
                asyncio.get_running_loop().call_later(0.7, failing.come_up)
            return "yes"

        with serving(tmp_path, *options, agent=(sys.executable, SCRIPTED, "{}")) as served:
            token = served.token()
            async with served.session(token, cwd=tmp_path, on_permission=yes) as session:
                turn = await session.prompt(asks(session.id)[0]["text"])
                assert "yes" in turn.text
                assert asked == 1
                waits = steps({"say": "begun"}, {"until": "cancel"}, {"stop": "cancelled"})
                running = session.prompt(waits[0]["text"])
                async with asyncio.timeout(30):
                    async for _ in running:
                        break
                failing.go_down()
                session.cancel()
                failing.come_up()
                async with asyncio.timeout(30):
                    assert (await running).stop_reason == "cancelled"
