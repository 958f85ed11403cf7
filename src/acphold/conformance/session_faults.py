"""Faults of sessions: how they are made, listed, opened again, and how they end."""

from __future__ import annotations

import asyncio

from acphold.conformance.exemplar import Exemplar, Faults, RefusedError
from acphold.conformance.record import Json
from acphold.errors import INVALID_PARAMS

FAULTS = Faults()


@FAULTS.breaks("new.answer")
class _NumberForId(Exemplar):
    async def new_session(self, params: Json) -> Json:
        return {**await super().new_session(params), "sessionId": 17}

    async def tell_commands(self, session_id: str) -> None:
        return None


@FAULTS.breaks("new.unique-ids")
class _OneId(Exemplar):
    made = 0

    def new_id(self) -> str:
        self.made += 1
        self.memory.numbers += 1
        return f"session-{self.memory.numbers - (self.made == 2)}"


@FAULTS.breaks("new.unique-over-restarts")
class _CountsAnew(Exemplar):
    made = 0

    def new_id(self) -> str:
        self.made += 1
        return f"session-{self.made}"


@FAULTS.breaks("new.two-at-once")
class _OneAtATime(Exemplar):
    making = 0

    async def answer(self, request: Json) -> None:
        is_new = request["method"] == "session/new"
        self.making += is_new
        await asyncio.sleep(0.001)
        try:
            if is_new and self.making > 1:
                self.refuse(request, -32603, "busy")
            else:
                await super().answer(request)
        finally:
            self.making -= is_new


@FAULTS.breaks("new.new-members")
class _StrictAboutMembers(Exemplar):
    async def new_session(self, params: Json) -> Json:
        if "weather" in params:
            raise RefusedError(INVALID_PARAMS, "unknown member")
        return await super().new_session(params)


@FAULTS.breaks("new.directories")
class _NoDirectories(Exemplar):
    async def new_session(self, params: Json) -> Json:
        if params.get("additionalDirectories"):
            raise RefusedError(INVALID_PARAMS, "one folder is enough")
        return await super().new_session(params)


@FAULTS.breaks("new.odd-folder")
class _PlainFolders(Exemplar):
    async def new_session(self, params: Json) -> Json:
        if not params["cwd"].isascii():
            raise RefusedError(INVALID_PARAMS, "no such folder")
        return await super().new_session(params)


@FAULTS.breaks("session.known-id")
class _OtherId(Exemplar):
    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        if update["sessionUpdate"] == "usage_update":
            session_id = f"own-{session_id}"
        super().update(session_id, update, remembered=remembered)


@FAULTS.breaks("session.unknown-id")
class _AnySession(Exemplar):
    async def prompt(self, request: Json, params: Json) -> Json:
        if params["sessionId"] not in self.memory.sessions:
            return {"stopReason": "end_turn"}
        return await super().prompt(request, params)
