"""Whoever chose what, whoever comes, whatever happened: no prompt leaves by an endpoint or account
that its sender did not choose, and a program knows its terms before a session is opened in it.

    kind        what the first editor has chosen
    who         the client that prompts, which another editor has chosen otherwise
    how         it opens the session after what happened, or has it open before, or opens it in a
                turn of the first
    happened    to the agent, to the daemon, or to the sign-in
    can         what the agent offers
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from acp_wire.surroundings import Surroundings
from acphold.live.agents.wrapped import ProcessAgent, ProcessOptions
from acphold.live.hub.desk import Desk
from acphold.live.server.methods import METHODS
from acphold.live.server.principals import THIS_USER, Principal
from acphold.serve_options import ServeOptions
from tests.editor import DEADLINE, Refused
from tests.hub.shared import Onlooker, Shared, shared
from tests.server.agents_in_memory import KEY, TELLING, Where, World

KINDS: Final = ("nothing", "variable", "authenticate", "providers")
WHO: Final = ("first", "reloaded", "second", "queue", "token", "page", "gone")
HOW: Final = ("opens", "prompts", "opens in a turn")
HAPPENED: Final = ("nothing", "killed idle", "killed in a turn", "daemon killed", "logged out")
CAN: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "load": {"loadSession": True},
    "load, close": {"loadSession": True, "sessionCapabilities": {"close": {}}},
    "resume, close": {"sessionCapabilities": {"resume": {}, "close": {}}},
    "close": {"sessionCapabilities": {"close": {}}},
}

GUEST: Final = Principal(name="a token", tenant="", scopes=frozenset({"watch", "prompt"}))

TAKING: Final = "take a session at rest"
"""The task that has a session come to another desk once nothing runs in it."""

REFUSALS: Final = ("terms of another client", "stood on")


class Case(NamedTuple):
    kind: str
    who: str
    how: str
    happened: str
    can: str

    @property
    def is_played_once(self) -> bool:
        """False if another case is the same: who comes to a new daemon opens the session, a queue
        is filled without opening it anew, only who has chosen otherwise has anything closed, and
        where nothing happened the others have nothing opened."""
        is_lost = self.happened == "daemon killed"
        if self.how != "opens" if is_lost else (self.who, self.how) == ("queue", "opens"):
            return False
        if self.kind != "nothing" and not is_lost and self.who == "second":
            return True
        if self.happened == "nothing" and (self.kind == "nothing" or self.who != "reloaded"):
            return self.can == "load, close"
        return self.can in ("nothing", "load", "resume, close")

    @property
    def is_quick(self) -> bool:
        """True for a third of the cases, in which any two of the five meet that ever do."""
        places = (KINDS, WHO, HOW, HAPPENED, (*CAN,))
        return sum(of.index(it) for it, of in zip(self, places, strict=True)) % 3 == 0

    def own(self, who: str) -> Where:
        """What a client has chosen by the end: only editors choose."""
        if self.kind == "nothing" or who not in ("first", "reloaded", "second"):
            return {}
        if self.kind == "authenticate" and self.happened == "logged out" and who == "first":
            return {}
        return {self.kind: "second" if who == "second" else "first"}


class Houses:
    """The desks of a process: of two editors, and of clients that share an agent."""

    def __init__(self, house: Shared, world: World, kind: str) -> None:
        self.world = world
        self.kind = kind
        self.journal = house.journal
        self.first = self._desk(house, self._place("first"))
        self.second = self._desk(house, self._place("second"))
        self.shared = self._desk(house, None)

    def _place(self, who: str) -> Surroundings:
        return Surroundings({KEY: who} if self.kind == "variable" else {}, "/")

    def _desk(self, house: Shared, place: Surroundings | None) -> Shared:
        options = ProcessOptions(called="claude", name="claude")
        desk = Desk(
            house.hub,
            lambda listener: ProcessAgent(
                ["agent"], listener, place or Surroundings({}, "/"), options
            ),
            ServeOptions(cancel_grace=0.2),
            surroundings=place,
        )
        return Shared(desk, house.agent, house.journal)

    async def come(self, who: str) -> Onlooker:
        """A client, which chooses its terms at once, as editors do."""
        if who in ("first", "reloaded", "second"):
            house = self.second if who == "second" else self.first
            client = await house.client()
            value = "second" if who == "second" else "first"
            if self.kind == "authenticate":
                await client.call("authenticate", {"methodId": "gw", "_meta": {"key": value}})
            elif self.kind == "providers":
                await client.call("providers/set", {"providerId": "main", "baseUrl": value})
            return client
        client = self.shared.stranger(GUEST if who == "token" else THIS_USER)
        await client.introduce(None, {})
        return client

    async def aclose(self) -> None:
        for house in (self.first, self.second, self.shared):
            await house.aclose()


@asynccontextmanager
async def process(journal: Path, world: World, kind: str) -> AsyncIterator[Houses]:
    """A daemon, which ends with the block."""
    async with shared(journal) as house:
        houses = Houses(house, world, kind)
        try:
            yield houses
        finally:
            await houses.aclose()


def content(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


async def try_prompt(client: Onlooker, session: str, text: str) -> str:
    """Prompt; return the refusal, "" if it was answered."""
    try:
        await client.call("session/prompt", {"sessionId": session, "prompt": content(text)})
    except Refused as exc:
        return exc.message
    return ""


async def add_to_queue(client: Onlooker, session: str) -> None:
    for change in ({"do": "set", "restarts": True}, {"do": "add", "prompt": content("last")}):
        await client.call("_acphold/queue", {"sessionId": session, "change": change})


async def happen(case: Case, houses: Houses, first: Onlooker, session: str) -> None:
    """Let it happen to a session that the first client has open, if it may still prompt there."""
    world = houses.world
    if case.happened == "killed idle":
        world.kill()
    elif case.happened == "killed in a turn":
        turn = asyncio.ensure_future(try_prompt(first, session, "long"))
        begun = asyncio.ensure_future(world.until_prompted("long"))
        await asyncio.wait([turn, begun], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        world.kill()
        await turn
    elif case.happened == "logged out":
        await first.call("logout", {})
    for program in world.programs:  # until their ends are seen
        if program.ended.is_set():
            for _ in range(20):
                await asyncio.sleep(0)


async def play(case: Case, journal: Path, world: World) -> None:
    """Play one case, and compare what it came to with what the clients have chosen."""
    before = 0
    comer: Onlooker | None = None
    async with process(journal, world, case.kind) as houses:
        first = await houses.come("first")
        session = await first.new()
        assert await try_prompt(first, session, "one") == ""
        if case.how != "opens" and case.happened != "daemon killed":
            comer = first if case.who in ("first", "queue") else await houses.come(case.who)
            turn = None
            if case.how == "opens in a turn":
                turn = asyncio.ensure_future(try_prompt(first, session, "long"))
                await world.until_prompted("long")
            if comer is not first:
                await comer.load(session)
            if turn is not None:
                first.tell("session/cancel", {"sessionId": session})
                assert await turn == ""
                taking = [it for it in asyncio.all_tasks() if it.get_name() == TAKING]
                await asyncio.gather(*taking)
        if case.happened == "daemon killed":
            if case.who == "queue":
                turn = asyncio.ensure_future(try_prompt(first, session, "long"))
                await world.until_prompted("long")
                await add_to_queue(first, session)
                turn.cancel()
        else:
            await happen(case, houses, first, session)
            before = len(world.programs)
            await arrive(case, houses, first, comer, session)
    if case.happened == "daemon killed":
        before = len(world.programs)
        async with process(journal, world, case.kind) as houses:
            await arrive(case, houses, None, None, session)
    judge(case, world, before)


async def arrive(
    case: Case, houses: Houses, first: Onlooker | None, comer: Onlooker | None, session: str
) -> None:
    """Have the client come, unless it is there, and prompt."""
    if case.who in ("reloaded", "gone") and first is not None and comer is not first:
        await first.leave()
    if case.who == "first" and first is not None:
        comer = first
        if case.how == "opens":
            await comer.load(session)
    if case.who == "queue" and first is not None:
        with suppress(Refused):
            await add_to_queue(first, session)
            await houses.world.until_prompted("last")
        return
    if comer is None:
        comer = await houses.come("page" if case.who in ("queue", "gone") else case.who)
        await comer.load(session)
    if case.who == "queue":
        for _ in range(50):
            await asyncio.sleep(0)
        held = (await houses.journal.summary(session)).queue.held
        assert held == ("" if case.kind == "nothing" else "terms"), case
        return
    refusal = await try_prompt(comer, session, "last")
    got = [where for text, _, where in houses.world.prompts if text == "last"]
    assert bool(got) == (refusal == ""), (case, refusal)
    assert refusal == "" or any(words in refusal for words in REFUSALS), (case, refusal)


def judge(case: Case, world: World, before: int) -> None:
    """Compare where the last prompt was answered with what its sender has chosen."""
    got = [where for text, _, where in world.prompts if text == "last"]
    own, chosen = case.own(case.who), case.own("first")
    is_lost = case.happened == "daemon killed"
    for where in got:
        if own:
            assert where == own, case
        elif is_lost and case.kind != "nothing":
            assert case.kind == "variable", case
            assert case.who != "queue", case
        else:  # it joins on those of the session
            assert where == ({} if is_lost else chosen), case
    logged_out = case.kind == "authenticate" and case.happened == "logged out"
    is_chosen_and_lost = is_lost and case.kind in ("authenticate", "providers")
    must_be_answered = (
        (case.who in ("page", "token", "gone") and not is_chosen_and_lost)
        or (case.who == "reloaded" and not (logged_out and case.how != "opens"))
        or (case.who == "first" and case.how == "opens")
        or (case.who == "second" and case.kind == "nothing")
        or (
            case.who == "second"
            and (case.how == "opens" or (case.how != "prompts" and case.happened == "nothing"))
            and case.can.startswith(("load,", "res"))
        )
        or (case.who == "queue" and not is_lost)
    )
    assert got or not must_be_answered, case
    for program in world.programs[before:]:
        assert program.told_late == [], (case, program.asked)
    # A prompt starts nothing but what had ended.
    if case.how != "opens" and not is_lost:
        assert len(world.programs) - before <= (1 if "killed" in case.happened else 0), case


@pytest.mark.parametrize("is_quick", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("happened", HAPPENED)
@pytest.mark.parametrize("kind", KINDS)
async def test_no_prompt_leaves_on_terms_that_its_sender_has_not_chosen(
    tmp_path: Path, kind: str, happened: str, is_quick: bool
) -> None:
    every = [Case(kind, who, how, happened, can) for who, how, can in product(WHO, HOW, CAN)]
    cases = [it for it in every if it.is_played_once and it.is_quick == is_quick]
    for number, case in enumerate(cases):
        with pytest.MonkeyPatch.context() as patch:
            world = World(patch, CAN[case.can], made=100 * number)
            try:
                async with asyncio.timeout(DEADLINE):
                    await play(case, tmp_path / "journal.db", world)
            except (Refused, TimeoutError) as exc:
                raise AssertionError(case) from exc


def test_every_method_that_changes_terms_is_in_the_matrix() -> None:
    assert {it.name for it in METHODS.values() if it.changes_terms} == {*TELLING}
