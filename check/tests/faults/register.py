"""Agents with one fault each, by the id of the rule that they break.

A fault is a class of its own, or one line where many faults have one shape: a request refused or
answered in another way, or a list, a replay, an update or a question changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from acp_check.errands import ExemplarSession, Script
from acp_check.exemplar import Exemplar
from acp_check.record import Json, RefusalError
from acp_wire.errors import INVALID_PARAMS
from acp_wire.schema import AGENT_METHODS

Broken = type[Exemplar]


def fitting(agent: Exemplar, method: str, request: Json) -> Json:
    """The params of a request; InvalidParamsError for those that the schema does not allow."""
    params: Json = request.get("params") or {}
    if method in AGENT_METHODS:
        agent.fits(method, params)
    return params


async def tell_later(agent: Exemplar, seconds: float, session_id: str, *updates: Json) -> None:
    """Tell updates that are not remembered, after a while."""
    await asyncio.sleep(seconds)
    for update in updates:
        agent.update(session_id, update, remembered=False)


def chunk(text: str) -> Json:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


class Faults(dict[str, Broken]):
    """Agents with one fault, by rule id; `:` and a word tell variants of one fault apart."""

    def breaks(self, name: str) -> Callable[[Broken], Broken]:
        """The decorated class breaks this rule."""

        def declare(agent: Broken) -> Broken:
            self[name] = agent
            return agent

        return declare

    def scripted(self, name: str) -> Callable[[type[Script]], type[Script]]:
        """The decorated script is that of an agent that breaks this rule."""

        def declare(script: type[Script]) -> type[Script]:
            self[name] = type(script.__name__, (Exemplar,), {"script_type": script})
            return script

        return declare

    # -- by the outcome of a request --------------------------------------------------------

    def refuses(
        self, name: str, method: str, when: Callable[[Json], object], code: int = INVALID_PARAMS
    ) -> None:
        """Requests with such params are refused."""

        @self.breaks(name)
        class Refusing(Exemplar):
            async def result(self, asked: str, request: Json) -> object:
                if asked == method and when(fitting(self, method, request)):
                    raise RefusalError(code, "not with me")
                return await super().result(asked, request)

    def answers(
        self, name: str, method: str, changed: Callable[[Exemplar, Json, Json], object]
    ) -> None:
        """Does the work; `changed` makes the answer, from agent, params and true answer."""

        @self.breaks(name)
        class Answering(Exemplar):
            async def result(self, asked: str, request: Json) -> object:
                found = await super().result(asked, request)
                if asked != method or not isinstance(found, dict):
                    return found
                return changed(self, request.get("params") or {}, found)

    def passes_over(
        self, name: str, method: str, when: Callable[[Exemplar, Json], object], answer: object
    ) -> None:
        """Requests with such params are answered so, and nothing is done."""

        @self.breaks(name)
        class PassingOver(Exemplar):
            async def result(self, asked: str, request: Json) -> object:
                if asked == method and when(self, fitting(self, method, request)):
                    return answer
                return await super().result(asked, request)

    def ignores(self, name: str, when: Callable[[Json], object]) -> None:
        """Such requests are never answered."""

        @self.breaks(name)
        class Ignoring(Exemplar):
            async def answer(self, request: Json) -> None:
                if not when(request):
                    await super().answer(request)

    # -- by the updates and lists -----------------------------------------------------------

    def lists(self, name: str, fits: Callable[[ExemplarSession, str], bool]) -> None:
        """A list for one folder has the sessions that `fits` says."""

        @self.breaks(name)
        class Listing(Exemplar):
            def fits_filter(self, kept: ExemplarSession, cwd: str | None) -> bool:
                return cwd is None or fits(kept, cwd)

    def describes(self, name: str, changes: Callable[[ExemplarSession], Json]) -> None:
        """Changes these members of each session in a list."""

        @self.breaks(name)
        class Describing(Exemplar):
            def list_entry(self, session_id: str, kept: ExemplarSession) -> Json:
                return {**super().list_entry(session_id, kept), **changes(kept)}

    def replays(self, name: str, replayed: Callable[[list[Json]], list[Json]]) -> None:
        """A load replays this of the history."""

        @self.breaks(name)
        class Replaying(Exemplar):
            def replay(self, kept: ExemplarSession) -> list[Json]:
                return replayed(kept.history)

    def tells(self, name: str, kind: str, changed: Callable[[Json], Json]) -> None:
        """Updates of this kind have these members instead."""

        @self.breaks(name)
        class Telling(Exemplar):
            def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
                if update["sessionUpdate"] == kind:
                    update = {**update, **changed(update)}
                super().update(session_id, update, remembered=remembered)

    def offers_modes(self, name: str, edited: Callable[[Json], Json]) -> None:
        """The modes of a session are these."""

        @self.breaks(name)
        class OfferingModes(Exemplar):
            def modes(self, session_id: str) -> Json:
                return edited(super().modes(session_id))

    def offers_options(self, name: str, edited: Callable[[list[Json]], list[Json]]) -> None:
        """The options of a session are these."""

        @self.breaks(name)
        class OfferingOptions(Exemplar):
            def options(self, session_id: str) -> list[Json]:
                return edited(super().options(session_id))

    def asks(self, name: str, method: str, changed: Callable[[Json], Json]) -> None:
        """Changes these params when it sends this request to the client."""

        @self.scripted(name)
        class Asking(Script):
            async def ask(self, asked: str, params: Json) -> Json:
                if asked == method:
                    params = {**params, **changed(params)}
                return await super().ask(asked, params)
