"""Agents that break rules on longer work: two sessions side by side, and their histories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from acp_check.errands import ExemplarSession, ExemplarTurn, Memory, Script
from acp_check.exemplar import Exemplar
from acp_check.record import Json, RefusalError
from acp_wire.errors import INTERNAL_ERROR
from acp_wire.rpc.transport import Transport
from tests.faults.register import Faults
from tests.faults.sessions import Opener, bare, is_prompt

FAULTS = Faults()


@FAULTS.breaks("prompt.side-by-side")
class _MixesTurns(Exemplar):
    """Tells the turns of all sessions under the id of the one that was prompted last."""

    last = ""

    async def prompt(self, request: Json, params: Json) -> Json:
        self.last = params["sessionId"]
        return await super().prompt(request, params)

    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        if session_id in self.turns and len(self.turns) > 1 and "content" in update:
            super().update(session_id, update, remembered=remembered)
            self.notify("session/update", {"sessionId": self.last, "update": update})
        else:
            super().update(session_id, update, remembered=remembered)


def _without_blocks(kind: str) -> Callable[[list[Json]], list[Json]]:
    def replayed(history: list[Json]) -> list[Json]:
        return [it for it in history if not (is_prompt(it) and it["content"]["type"] == kind)]

    return replayed


FAULTS.replays("load.links", _without_blocks("resource_link"))
FAULTS.replays("load.images", _without_blocks("image"))
FAULTS.replays("load.audio", _without_blocks("audio"))
FAULTS.replays("load.embedded", _without_blocks("resource"))


class _DropsTurns(Exemplar):
    """Forgets some turns as they end."""

    async def prompt(self, request: Json, params: Json) -> Json:
        kept = self.session(params["sessionId"])
        before = [*kept.history]
        ended = await super().prompt(request, params)
        if self.forgets(params, ended):
            kept.history[:] = self.left(before, kept.history)
        return ended

    def forgets(self, params: Json, ended: Json) -> bool:
        return bool(ended["stopReason"] == "cancelled")

    def left(self, before: list[Json], after: list[Json]) -> list[Json]:
        return before


@FAULTS.breaks("load.cancelled-turn")
class _ForgetsCancelled(_DropsTurns):
    pass


@FAULTS.breaks("load.cancelled-turn:answer")
class _KeepsItsPromptOnly(_DropsTurns):
    def left(self, before: list[Json], after: list[Json]) -> list[Json]:
        return [it for it in after if it in before or is_prompt(it)]


@FAULTS.breaks("load.cancelled-text")
class _LosesTheEnd(_DropsTurns):
    def left(self, before: list[Json], after: list[Json]) -> list[Json]:
        return after[:-1] if after[-1]["sessionUpdate"] == "agent_message_chunk" else after


@FAULTS.breaks("load.refused-turn")
class _ForgetsRefused(_DropsTurns):
    def forgets(self, params: Json, ended: Json) -> bool:
        return "refused.txt" in str(params["prompt"])


@FAULTS.breaks("load.own-session")
class _OneHistory(Exemplar):
    """Records the updates of simultaneous turns in both histories."""

    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        super().update(session_id, update, remembered=remembered)
        for other in self.turns:
            if remembered and other != session_id:
                self.session(other).history.append(update)


@FAULTS.breaks("load.after-resume")
class _ResumesForNow(Opener):
    """Does not record the turns after a resume."""

    async def prompt(self, request: Json, params: Json) -> Json:
        kept = self.session(params["sessionId"])
        before = [*kept.history]
        ended = await super().prompt(request, params)
        if params["sessionId"] in self.resumed:
            kept.history[:] = before
        return ended


@FAULTS.breaks("load.after-resume:answer")
class _KeepsPromptsAfterResume(_ResumesForNow):
    async def prompt(self, request: Json, params: Json) -> Json:
        kept = self.session(params["sessionId"])
        before = [*kept.history]
        ended = await Opener.prompt(self, request, params)
        if params["sessionId"] in self.resumed:
            kept.history[:] = [it for it in kept.history if it in before or is_prompt(it)]
        return ended


@FAULTS.breaks("cancel.tool")
class _CancelledToolFails(Exemplar):
    async def prompt(self, request: Json, params: Json) -> Json:
        ended = await super().prompt(request, params)
        if ended["stopReason"] == "cancelled" and "sleep" in str(params["prompt"]):
            raise RefusalError(INTERNAL_ERROR, "the command was aborted")
        return ended


@FAULTS.scripted("cancel.stops-tools")
class _LetsItRun(Script):
    async def wait_for_exit(self, at: Json) -> None:
        await self.ask("terminal/wait_for_exit", at)


@FAULTS.breaks("delete.same-folder")
class _DeletesTheFolder(Exemplar):
    async def delete_session(self, params: Json) -> Json:
        held = self.memory.sessions
        gone = held.pop(params["sessionId"], None)
        if gone is not None and "birches" in gone.cwd:
            for id in [id for id, kept in held.items() if kept.cwd == gone.cwd]:
                del held[id]
        return {}


@FAULTS.breaks("delete.own-id")
class _GivesIdsAgain(Exemplar):
    freed = ""

    async def delete_session(self, params: Json) -> Json:
        if params["sessionId"] in self.memory.sessions:
            self.freed = params["sessionId"]
        return await super().delete_session(params)

    def new_id(self) -> str:
        again, self.freed = self.freed, ""
        return again or super().new_id()


@FAULTS.breaks("modes.kept")
class _ForgetsTheMode(Exemplar):
    async def load_session(self, params: Json) -> Json:
        self.session(params["sessionId"]).mode = "ask"
        return await super().load_session(params)


FAULTS.passes_over("modes.kept:set", "session/set_mode", lambda _, it: True, {})


@FAULTS.breaks("modes.kept:own")
class _ChangesItForNow(Exemplar):
    """Changes the mode by itself, and does not write it down."""

    def end_of(self, turn: ExemplarTurn) -> Json:
        mode = {"sessionUpdate": "current_mode_update", "currentModeId": "code"}
        self.update(turn.session_id, mode, remembered=False)
        return super().end_of(turn)


FAULTS.answers("modes.kept:none", "session/resume", lambda _, params, found: {})


@FAULTS.breaks("options.kept")
class _ForgetsTheModel(Exemplar):
    async def load_session(self, params: Json) -> Json:
        self.session(params["sessionId"]).model = "small"
        return await super().load_session(params)


@FAULTS.breaks("options.kept:resume")
class _ForgetsWhenResumed(Exemplar):
    async def resume_session(self, params: Json) -> Json:
        self.session(params["sessionId"]).model = "small"
        return await super().resume_session(params)


FAULTS.answers(
    "options.kept:none", "session/load", lambda _, params, found: bare(found, "configOptions")
)


@FAULTS.breaks("options.kept:set")
class _AnswersAsAsked(Exemplar):
    """Does not change the model, but answers as if it had."""

    async def set_option(self, params: Json) -> Json:
        kept = self.session(params["sessionId"])
        model = kept.model
        answer = await super().set_option(params)
        kept.model = model
        return answer


@FAULTS.breaks("options.in-step:after-set")
class _TwoModes(Exemplar):
    """Has the mode twice: `session/set_mode` does not change the option."""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.set: dict[str, str] = {}

    async def set_mode(self, params: Json) -> Json:
        await super().set_mode({**params})
        kept = self.session(params["sessionId"])
        self.set[params["sessionId"]], kept.mode = kept.mode, "ask"
        return {}

    async def prompt(self, request: Json, params: Json) -> Json:
        kept = self.session(params["sessionId"])
        kept.mode = self.set.pop(params["sessionId"], kept.mode)
        return await super().prompt(request, params)


@FAULTS.breaks("new.relative-folder")
class _TakesAnyFolder(Exemplar):
    def is_absolute(self, cwd: str) -> None:
        return None


@FAULTS.breaks("list.last-activity:frozen")
class _FrozenTimes(Exemplar):
    def list_entry(self, session_id: str, kept: ExemplarSession) -> Json:
        self.made = getattr(self, "made", {})
        # Never a whole minute, which is no fault: some agents have no seconds.
        at = self.made.setdefault(session_id, kept.updated_at.replace(":00Z", ":01Z"))
        return {**super().list_entry(session_id, kept), "updatedAt": at}


FAULTS.refuses(
    "prompt.meta:of-a-block",
    "session/prompt",
    lambda it: any("_meta" in block for block in it["prompt"]),
)


@FAULTS.breaks("prompt.side-by-side:asks")
class _AsksForTheOther(Exemplar):
    """Reads files under the id of the session that was prompted last."""

    last = ""

    async def prompt(self, request: Json, params: Json) -> Json:
        self.last = params["sessionId"]
        return await super().prompt(request, params)

    async def ask(self, method: str, params: Json) -> Json:
        if method.startswith("fs/"):
            await asyncio.sleep(0.01)
            params = {**params, "sessionId": self.last}
        return await super().ask(method, params)


@FAULTS.breaks("load.own-session:folder")
class _OneHistoryForAFolder(Exemplar):
    """Replays the sessions of a folder one after the other."""

    def replay(self, kept: ExemplarSession) -> list[Json]:
        if "birches" not in kept.cwd:
            return super().replay(kept)
        sessions = [it for it in self.memory.sessions.values() if it.cwd == kept.cwd]
        return [update for it in sessions for update in it.history]


@FAULTS.breaks("modes.kept:of-all")
class _OneModeForAll(Exemplar):
    async def set_mode(self, params: Json) -> Json:
        answer = await super().set_mode(params)
        for kept in self.memory.sessions.values():
            kept.mode = params["modeId"]
        return answer


@FAULTS.scripted("cancel.only-asked")
class _GivesUp(Script):
    async def plan(self) -> None:
        await super().plan()
        agent = self.agent
        assert isinstance(agent, Exemplar)
        agent.turns[self.session_id].cancelled = True


FAULTS.tells(
    "prompt.message-ids:again", "agent_message_chunk", lambda _: {"messageId": "the answer"}
)
FAULTS.tells(
    "options.complete:updates",
    "config_option_update",
    lambda it: {"configOptions": it["configOptions"][:1]},
)


FAULTS.replays(
    "load.refused-turn:status",
    lambda history: [
        {**it, "status": "completed"} if it.get("status") == "failed" else it for it in history
    ],
)


@FAULTS.breaks("resume.folder")
class _ResumesElsewhere(Opener):
    def script(self, turn: ExemplarTurn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        if turn.session_id in self.resumed:
            made.absolute = lambda what: f"/{what.lstrip('/')}"  # type: ignore[method-assign]
        return made


@FAULTS.breaks("options.own-session:model")
class _OneModelForAll(Exemplar):
    async def set_option(self, params: Json) -> Json:
        answer = await super().set_option(params)
        for kept in self.memory.sessions.values():
            kept.model = self.session(params["sessionId"]).model
        return answer


@FAULTS.breaks("close.load-again:empty")
class _ClosesTheHistory(Exemplar):
    closed: tuple[int, ...] = ()

    async def close_session(self, params: Json) -> Json:
        self.closed = (*self.closed, id(self.session(params["sessionId"])))
        return await super().close_session(params)

    def replay(self, kept: ExemplarSession) -> list[Json]:
        return [] if id(kept) in self.closed else super().replay(kept)


@FAULTS.breaks("close.listed")
class _HidesTheClosed(Exemplar):
    closed: tuple[int, ...] = ()

    async def close_session(self, params: Json) -> Json:
        self.closed = (*self.closed, id(self.session(params["sessionId"])))
        return await super().close_session(params)

    def fits_filter(self, kept: ExemplarSession, cwd: str | None) -> bool:
        return super().fits_filter(kept, cwd) and id(kept) not in self.closed
