"""A peer that asks for everything, from every place, of every face that may meet it.

The face is a client that does whatever it is asked, with the files and terminals of this machine;
between it and the peer is the line that an editor, or another process, has. What reaches it is what
the table says, and what has reached it is seen by its effects, not by the answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from acp_wire.rpc import MAX_MESSAGE, Transport
from acp_wire.schema.methods import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_METHODS
from acp_wire.transports.streams import memory_pair
from acphold.client import Options, RemoteAgent, connect_over, connected_to
from acphold.client.far_line import FarClient
from acphold.client.uplink import Endpoint
from acphold.errors import ConnectionLostError, DeclarationError
from acphold.live.agents import air
from acphold.live.agents.capabilities import QUEUE_METHOD
from acphold.live.agents.client_methods import (
    CLIENT_ROWS,
    FAR,
    Place,
    client_row,
    may_ask,
    may_tell,
)
from tests.client.far_agent import DEADLINE, FarAgent

EXTENSIONS: Final = ("_vendor/do", "vendor/do", "fs/delete_file", "terminal/kill_all")
"""What no row names."""

OURS: Final = ("_acphold/presence", "_acphold/stop", "_acphold/relayed", "_acphold/anything")
"""What nobody asks a client."""

METHODS: Final = (*AGENT_METHODS, *CLIENT_ROWS, *EXTENSIONS, *OURS)

SIGN_INS: Final = [
    {
        "id": "plain",
        "name": "p",
        "_meta": {"terminal-auth": {"command": "sh", "args": ["-c", "x"]}},
    },
    {"id": "typed", "name": "t", "type": "agent", "env": {"PATH": "/evil"}},
    {"id": "there", "name": "h", "type": "terminal", "args": ["-c", "x"], "env": {"PATH": "/x"}},
    {"id": "key", "name": "k", "type": "env_var", "vars": [{"name": "LD_PRELOAD"}]},
    {"id": "none", "name": "n", "type": None},
]
"""Ways to sign in, of which the last three, and members of the first two, run something here."""


def test_each_method_of_a_client_has_a_row_and_far_away_only_these_pass() -> None:
    assert CLIENT_METHODS.keys() | PROTOCOL_METHODS.keys() <= CLIENT_ROWS.keys()
    for place in sorted(FAR):
        asked = {it for it in METHODS if may_ask(place, it)}
        assert asked == {"session/request_permission", "elicitation/create", "mcp/message"}
        assert {it for it in METHODS if may_tell(place, it)} == {
            *("session/update", "elicitation/complete", "mcp/message", "$/cancel_request"),
            *(QUEUE_METHOD, air.CHANGES, "opencode/session/child_update"),
        }
    assert not any(may_ask(place, it) for place in get_args(Place) for it in OURS)
    assert not may_tell("agent", QUEUE_METHOD)


class Placed(Endpoint):
    """A far end at this place."""

    is_acphold, is_repeatable, name = True, False, "there"

    def __init__(self, transport: Transport, place: Place) -> None:
        self.transport, self.place = transport, place

    async def open(self) -> Transport:
        return self.transport

    async def how_it_ended(self) -> ConnectionLostError:
        return ConnectionLostError("it has gone")

    async def aclose(self) -> None:
        await self.transport.aclose()


@asynccontextmanager
async def by_line(near: Transport, place: Place, options: Options) -> AsyncIterator[RemoteAgent]:
    """An editor of `acphold connect`, or of a process that has joined an owner."""

    async def dial() -> Transport:
        raise DeclarationError("there is only one connection")

    ours, theirs = memory_pair()
    line = asyncio.create_task(
        FarClient(theirs, dial, "there", MAX_MESSAGE, near, place=place).run()
    )
    try:
        async with connect_over(ours, **options) as agent:
            yield agent
    finally:
        with suppress(DeclarationError):
            await line


@asynccontextmanager
async def by_library(near: Transport, place: Place, options: Options) -> AsyncIterator[RemoteAgent]:
    """A program of the library with a session of another process open."""
    async with connected_to(Placed(near, place), **options) as agent:
        yield agent


FACES: Final = {"line": by_line, "library": by_library}


class Machine:
    """The machine of the client: a secret, and what has happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.happened: list[str] = []
        self.secret, self.written, self.ran = (folder / it for it in ("secret", "written", "ran"))
        self.secret.write_text("the secret")

    def note(self, what: str) -> Callable[[object], Any]:
        return lambda _: self.happened.append(what)

    @property
    def options(self) -> Options:
        return {
            "files": True,
            "terminals": True,
            "on_permission": self.note("session/request_permission"),
            "on_page": self.note("elicitation/create"),
            "on_form": self.note("elicitation/create"),
        }

    def params(self, method: str, session_id: str) -> dict[str, Any]:
        """What a peer says that wants the most."""
        touch = {"command": "touch", "args": [str(self.ran)], "cwd": str(self.folder)}
        option = {"optionId": "yes", "name": "Yes", "kind": "allow_once"}
        special: dict[str, dict[str, Any]] = {
            "fs/read_text_file": {"path": str(self.secret)},
            "fs/write_text_file": {"path": str(self.written), "content": "x"},
            "terminal/create": touch,
            "session/request_permission": {"toolCall": {"toolCallId": "t"}, "options": [option]},
            "elicitation/create": {
                **{"mode": "url", "message": "m", "url": "https://a.example", "elicitationId": "e"}
            },
        }
        return {"sessionId": session_id, **special.get(method, {"terminalId": "t", "path": "/x"})}


@asynccontextmanager
async def hostile(
    face: str, place: Place, folder: Path, **more: Any
) -> AsyncIterator[tuple[FarAgent, Machine, RemoteAgent]]:
    """A hostile peer at this place, the machine of the client, and the client, with a session."""
    machine, peer = Machine(folder), FarAgent(authMethods=SIGN_INS)
    near, far = memory_pair()
    running = asyncio.create_task(peer.run(far))
    options: Options = {**machine.options, **more}  # type: ignore[typeddict-item]
    try:
        async with asyncio.timeout(DEADLINE), FACES[face](near, place, options) as agent:
            yield peer, machine, agent
            await peer.leave()
    finally:
        running.cancel()
        await asyncio.wait([running])
        await peer.end()


@pytest.mark.parametrize("place", sorted(get_args(Place)))
@pytest.mark.parametrize("face", sorted(FACES))
async def test_a_hostile_peer_gets_from_each_face_what_its_place_permits(
    face: str, place: Place, tmp_path: Path
) -> None:
    async with hostile(face, place, tmp_path) as (peer, machine, agent):
        session = await agent.new_session(tmp_path)
        for method in METHODS:
            for session_id in (session.id, "another", ""):
                params = machine.params(method, session_id)
                peer.send(method=method, params=params)  # a notification does nothing of the kind
                reply = await peer.ask(method, **params)
                if not may_ask(place, method):
                    assert reply["error"]["code"] == -32601, method
        read = await peer.ask(
            "fs/read_text_file", **machine.params("fs/read_text_file", session.id)
        )
        is_here = place not in FAR
        assert ("the secret" in json.dumps(read)) is is_here
        made = await peer.ask("terminal/create", **machine.params("terminal/create", session.id))
        if is_here:
            named = {"sessionId": session.id, **made["result"]}
            await peer.ask("terminal/wait_for_exit", **named)
        assert (machine.written.exists(), machine.ran.exists()) == (is_here, is_here)
        asks = {"session/request_permission", "elicitation/create"}
        assert set(machine.happened) == asks


@pytest.mark.parametrize("place", sorted(get_args(Place)))
@pytest.mark.parametrize("face", sorted(FACES))
async def test_another_machine_is_told_of_nothing_that_it_could_use_on_this_one(
    face: str, place: Place, tmp_path: Path
) -> None:
    async with hostile(face, place, tmp_path) as (peer, _, agent):
        can = peer.params("initialize")["clientCapabilities"]
        taken = can["_meta"].get("acphold/elsewhere")
        methods = [it.id for it in agent.auth_methods]
        if place in FAR:
            assert not {"fs", "terminal"} & can.keys()
            assert methods == ["plain", "typed"]
            assert not any(it.meta for it in agent.auth_methods)
        else:
            assert can["fs"] == {"readTextFile": True, "writeTextFile": True}
            assert {"there", "plain"} <= {*methods}
        assert (taken is not None) is (place == "ssh" and face == "line")


async def test_a_program_answers_the_extensions_that_it_names_wherever_they_come_from(
    tmp_path: Path,
) -> None:
    answers = {"_vendor/do": lambda params: "done"}
    async with hostile("library", "network", tmp_path, handlers=answers) as (peer, _, _agent):
        assert (await peer.ask("_vendor/do"))["result"] == "done"
        assert (await peer.ask("_vendor/other"))["error"]["code"] == -32601


def test_what_no_row_names_is_nobodys_but_an_agents_here() -> None:
    for method in (*EXTENSIONS, *AGENT_METHODS):
        assert client_row(method).by == "extension"
        assert [it for it in get_args(Place) if may_ask(it, method)] == ["agent", "process"]
