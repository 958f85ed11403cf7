"""The import of what agents left on the server's disk, for the page.

    GET /import    {"found": {AGENT: NUMBER…}, "isAll", "left": {AGENT: {WHY: NUMBER…}…},
                    "isRunning", "problem"}
    POST /import   begin it → 202

`found` has the conversations on disk by agent, if nothing was imported yet; unless `isAll`, there
may be more. `left` has those that are not current here, by agent and reason, once something was
imported. `problem` is why the last import failed, null if it did not. It reads what the person
who runs the server keeps, so it is for whoever sees all sessions and may manage them: others are
told of nothing, and a POST of theirs is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from acp_wire.tasks import TaskSet, finish
from acphold.live.reading.requests import NoQuery
from acphold.web.exchange import HttpExchange, RefusedError
from acphold.web.gate import Admitted

IMPORT: Final = "/import"


class Importing(Protocol):
    """Finds what agents left on disk, and imports it."""

    async def find(self) -> tuple[Mapping[str, int], bool]:
        """Return the number of conversations to offer, by agent, none once something was imported;
        and False if there may be more."""

    async def left(self) -> Mapping[str, Mapping[str, int]]:
        """Return the number of conversations that are not current here, by agent and reason; none
        until something was imported."""

    async def run(self) -> str:
        """Import them; return why that failed, "" if it did not."""


class ImportRequests:
    """Answers requests about the import; see the module. At most one runs."""

    def __init__(self, importing: Importing) -> None:
        self._importing = importing
        self._tasks = TaskSet()
        self._problem = ""

    async def answer(self, exchange: HttpExchange, admitted: Admitted) -> None:
        """Answer a request; raises RefusedError."""
        who = admitted.principal
        may_import = who.sees_all and "manage" in who.scopes
        if exchange.method == "POST":
            if not may_import:
                who.refused("import", None)
                raise RefusedError(
                    403,
                    "this needs a token for all sessions with the scope manage; this one is not",
                )
            if not self._tasks:
                who.note("import", None)
                self._tasks.start(self._run(), "import")
            await exchange.answer(202, {})
            return
        exchange.require("GET", "HEAD")
        exchange.query(NoQuery)
        found: Mapping[str, int] = {}
        left: Mapping[str, Mapping[str, int]] = {}
        is_all, is_running, problem = True, False, ""
        if may_import:
            is_running, problem = bool(self._tasks), self._problem
            if not is_running:
                found, is_all = await self._importing.find()
                left = await self._importing.left()
        told = {"found": found, "isAll": is_all, "left": left, "isRunning": is_running}
        await exchange.answer(200, {**told, "problem": problem or None})

    async def _run(self) -> None:
        try:
            self._problem = await self._importing.run()
        except OSError as error:
            self._problem = f"the import could not be started: {error.strerror}"

    async def aclose(self) -> None:
        """End an import that runs."""
        await finish(self._tasks.aclose)
