"""Agents that break a rule of turns: prompts, their answers, updates, cancelling."""

from __future__ import annotations

import asyncio
from functools import partial

from acp_check.errands import ExemplarTurn, Memory, Script
from acp_check.exemplar import Exemplar
from acp_check.record import Json, RefusalError
from acp_wire.errors import INTERNAL_ERROR
from acp_wire.rpc.transport import Transport
from tests.faults.register import Faults, chunk, tell_later

FAULTS = Faults()


def has_block(kind: str, params: Json) -> bool:
    return kind in [block["type"] for block in params["prompt"]]


@FAULTS.breaks("prompt.answer")
class _NoReason(Exemplar):
    def end_of(self, turn: ExemplarTurn) -> Json:
        return {**super().end_of(turn), "stopReason": "done"}


@FAULTS.breaks("prompt.answer:cancelled")
class _CancelledFirst(Exemplar):
    prompts = 0

    def end_of(self, turn: ExemplarTurn) -> Json:
        self.prompts += 1
        return {"stopReason": "cancelled"} if self.prompts == 1 else super().end_of(turn)


@FAULTS.breaks("json-rpc.in-time")
class _ForgetsPromptsWithLinks(Exemplar):
    async def prompt(self, request: Json, params: Json) -> Json:
        if has_block("resource_link", params):
            await asyncio.Event().wait()
        return await super().prompt(request, params)


@FAULTS.breaks("prompt.next")
class _OneTurnOnly(Exemplar):
    refused = False

    async def prompt(self, request: Json, params: Json) -> Json:
        history = self.session(params["sessionId"]).history
        said = [it for it in history if it["sessionUpdate"] == "user_message_chunk"]
        if len(said) == 1 and not self.refused:
            self.refused = True
            raise RefusalError(INTERNAL_ERROR, "this session is over")
        return await super().prompt(request, params)


for rule, kind in (
    ("prompt.resource-link", "resource_link"),
    ("prompt.image", "image"),
    ("prompt.audio", "audio"),
    ("prompt.embedded", "resource"),
):
    FAULTS.refuses(rule, "session/prompt", partial(has_block, kind))


FAULTS.refuses(
    "prompt.text-blocks",
    "session/prompt",
    lambda it: [block["type"] for block in it["prompt"]].count("text") > 1,
)
FAULTS.refuses("prompt.meta", "session/prompt", lambda it: "_meta" in it)


@FAULTS.breaks("prompt.two-sessions")
class _OneSessionAtATime(Exemplar):
    prompts = 0

    async def prompt(self, request: Json, params: Json) -> Json:
        self.prompts += 1
        await asyncio.sleep(0.001)
        try:
            if self.prompts > 1:
                raise RefusalError(INTERNAL_ERROR, "a turn runs in another session")
            return await super().prompt(request, params)
        finally:
            self.prompts -= 1


@FAULTS.breaks("prompt.alive-meanwhile")
class _DeafInTurns(Exemplar):
    async def answer(self, request: Json) -> None:
        if self.turns and request["method"] == "check/no_such_method":
            return
        await super().answer(request)


@FAULTS.scripted("prompt.updates-first")
class _SpeaksLate(Script):
    async def greet(self) -> None:
        await super().greet()
        agent = self.agent
        assert isinstance(agent, Exemplar)

        async def later() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            self.say("One more thing.")

        agent.start(later())


class LateChunk(Exemplar):
    """Says something some time after its turns."""

    seconds = 0.7

    def end_of(self, turn: ExemplarTurn) -> Json:
        if self.speaks_after(turn):
            by_the_way = chunk("By the way.")
            self.start(tell_later(self, self.seconds, turn.session_id, by_the_way))
        return super().end_of(turn)

    def speaks_after(self, turn: ExemplarTurn) -> bool:
        return not turn.cancelled and not self.offers_files()

    def offers_files(self) -> bool:
        return bool(self.client.get("fs"))


@FAULTS.breaks("prompt.updates-first:late")
class _SpeaksAfterGreetings(LateChunk):
    spoke = False

    def speaks_after(self, turn: ExemplarTurn) -> bool:
        spoke, self.spoke = self.spoke, True
        return not spoke and super().speaks_after(turn)


@FAULTS.breaks("prompt.updates-first:after-tools")
class _SpeaksAfterTools(LateChunk):
    def speaks_after(self, turn: ExemplarTurn) -> bool:
        return not turn.cancelled and self.offers_files()


@FAULTS.scripted("prompt.message-ids")
class _OneIdForAll(Script):
    def think(self, text: str) -> None:
        thought = {"sessionUpdate": "agent_thought_chunk", **self.chunk(text)}
        self.agent.update(self.session_id, thought)

    def chunk(self, text: str) -> Json:
        return {"messageId": "m1", "content": {"type": "text", "text": text}}


@FAULTS.breaks("prompt.own-session")
class _MixesSessions(Exemplar):
    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        newest = next(reversed(self.links), session_id)
        is_unused = not self.memory.sessions[newest].history
        if update["sessionUpdate"] == "agent_thought_chunk" and is_unused:
            session_id = newest
        super().update(session_id, update, remembered=remembered)


@FAULTS.scripted("prompt.usage")
class _PaysInSigns(Script):
    def usage(self) -> Json:
        return {**super().usage(), "cost": {"amount": 1, "currency": "€"}}


# -- cancelling -------------------------------------------------------------------------------


@FAULTS.breaks("cancel.stop-reason")
class _EndsAsEver(Exemplar):
    def end_of(self, turn: ExemplarTurn) -> Json:
        return {"stopReason": "end_turn"}


@FAULTS.breaks("cancel.stop-reason:silent")
class _ForgetsCancelled(Exemplar):
    def reply(self, request: Json, result: object) -> None:
        if result != {"stopReason": "cancelled"}:
            super().reply(request, result)


@FAULTS.breaks("cancel.stop-reason:error")
class _CancelIsAnError(Exemplar):
    cancelled = ""

    def cancel(self, session_id: str) -> None:
        self.cancelled = session_id
        super().cancel(session_id)

    def cancel_request(self, request_id: object) -> None:
        super().cancel_request(request_id)
        self.cancelled = ""

    def end_of(self, turn: ExemplarTurn) -> Json:
        if turn.cancelled and self.cancelled:
            raise RefusalError(INTERNAL_ERROR, "AbortError: the operation was aborted")
        return super().end_of(turn)


@FAULTS.breaks("cancel.updates-first")
class _GoesOnSpeaking(Exemplar):
    def end_of(self, turn: ExemplarTurn) -> Json:
        if turn.cancelled:
            self.start(tell_later(self, 0.05, turn.session_id, chunk("I was not ready.")))
        return super().end_of(turn)


@FAULTS.breaks("cancel.updates-first:late")
class _SpeaksAfterCancels(LateChunk):
    seconds = 1.2

    def speaks_after(self, turn: ExemplarTurn) -> bool:
        return turn.cancelled and not self.offers_files()


@FAULTS.breaks("cancel.at-once")
class _HearsCancelsLater(Exemplar):
    """Knows of a turn only some time after it was asked for."""

    def cancel(self, session_id: str) -> None:
        turn = self.turns.get(session_id)
        if turn is not None and self.begun.get(session_id, 0.0) < self.clock() - 0.01:
            turn.cancel()

    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.begun: dict[str, float] = {}

    def clock(self) -> float:
        return asyncio.get_running_loop().time()

    async def prompt(self, request: Json, params: Json) -> Json:
        self.begun[params["sessionId"]] = self.clock()
        return await super().prompt(request, params)


@FAULTS.breaks("cancel.soon")
class _Slow(Exemplar):
    async def prompt(self, request: Json, params: Json) -> Json:
        ended = await super().prompt(request, params)
        if ended["stopReason"] == "cancelled":
            await asyncio.sleep(6)
        return ended


@FAULTS.breaks("cancel.next-prompt")
class _StaysCancelled(Exemplar):
    was_cancelled = False

    def end_of(self, turn: ExemplarTurn) -> Json:
        found = super().end_of(turn)
        if self.was_cancelled and not turn.cancelled:
            found = {"stopReason": "cancelled"}
        self.was_cancelled = turn.cancelled
        return found


@FAULTS.breaks("cancel.idle")
class _KeepsTheCancel(Exemplar):
    kept_cancel = ""

    def cancel(self, session_id: str) -> None:
        if session_id not in self.turns:
            self.kept_cancel = session_id
        super().cancel(session_id)

    def end_of(self, turn: ExemplarTurn) -> Json:
        if self.kept_cancel == turn.session_id:
            self.kept_cancel = ""
            return {"stopReason": "cancelled"}
        return super().end_of(turn)


@FAULTS.breaks("cancel.other-session")
class _CancelsAll(Exemplar):
    def cancel(self, session_id: str) -> None:
        for turn in self.turns.values():
            super().cancel(turn.session_id)


@FAULTS.breaks("cancel-request.answered")
class _StrangeCode(Exemplar):
    def cancel_request(self, request_id: object) -> None:
        for turn in self.turns.values():
            if turn.request["id"] == request_id:
                self.odd = turn
                self.cancel(turn.session_id)

    odd: ExemplarTurn | None = None

    def end_of(self, turn: ExemplarTurn) -> Json:
        if self.odd is turn:
            raise RefusalError(INTERNAL_ERROR, "aborted")
        return super().end_of(turn)


@FAULTS.breaks("cancel-request.unknown")
class _AnswersCancelRequests(Exemplar):
    def cancel_request(self, request_id: object) -> None:
        if request_id not in [turn.request["id"] for turn in self.turns.values()]:
            self.send({"id": None, "error": {"code": -32602, "message": "no such request"}})
        super().cancel_request(request_id)


FAULTS.replays("pressure.long-replay", lambda history: history[:200])
FAULTS.replays("pressure.long-replay:end", lambda history: history[-200:])


@FAULTS.scripted("pressure.slow-client")
class _DropsForTheSlow(Script):
    def say(self, text: str) -> None:
        if text != "17\n":
            super().say(text)
