"""Agents that break the rules on what few prompts show: failing tools, long or odd content."""

from __future__ import annotations

from acp_check.errands import ExemplarTurn, Script
from acp_check.exemplar import Exemplar
from acp_check.record import Json, RefusalError, objects
from acp_wire.errors import INTERNAL_ERROR
from tests.faults.register import Faults
from tests.faults.turns import LateChunk

FAULTS = Faults()


def _is_blob(block: Json) -> bool:
    return block["type"] == "resource" and "blob" in block["resource"]


FAULTS.refuses("prompt.blob", "session/prompt", lambda it: any(map(_is_blob, it["prompt"])))
FAULTS.refuses(
    "prompt.annotations",
    "session/prompt",
    lambda it: any("annotations" in block for block in it["prompt"]),
)


class _Busy(Exemplar):
    method = ""

    async def result(self, method: str, request: Json) -> object:
        if method == self.method and request["params"]["sessionId"] in self.turns:
            raise RefusalError(INTERNAL_ERROR, "a turn is running")
        return await super().result(method, request)


@FAULTS.breaks("modes.in-turn")
class _BusyForModes(_Busy):
    method = "session/set_mode"


@FAULTS.breaks("options.in-turn")
class _BusyForOptions(_Busy):
    method = "session/set_config_option"


@FAULTS.scripted("permission.rejected-ends")
class _FailsWhenRejected(Script):
    async def ask_permission(self, call: str) -> bool:
        allowed = await super().ask_permission(call)
        if not allowed and not self.turn.cancelled:
            self.change(call, status="failed")
            raise RefusalError(INTERNAL_ERROR, "the person said no")
        return allowed


@FAULTS.breaks("cancel.tool-updates-first")
class _SpeaksAfterCancelledTools(LateChunk):
    seconds = 1.2

    def speaks_after(self, turn: ExemplarTurn) -> bool:
        kept = self.session(turn.session_id).history
        asked = [it for it in kept if it["sessionUpdate"] == "user_message_chunk"][-1:]
        return turn.cancelled and "Run the command" in str(asked)


@FAULTS.scripted("cancel.file")
class _GoesOnWithItsFile(Script):
    async def ask(self, method: str, params: Json) -> Json:
        found = await super().ask(method, params)
        if method == "fs/read_text_file":
            self.turn.cancelled = False
        return found


@FAULTS.scripted("tool.old-text")
class _ShowsEveryFileAsNew(Script):
    def old_text(self, path: str) -> str | None:
        return None


@FAULTS.scripted("tool.new-text")
class _ShowsNoneOfTheNewText(Script):
    def change(self, call: str, **fields: object) -> None:
        for shown in objects(fields.get("content")):
            if "newText" in shown:
                shown["newText"] = "(one line)"
        super().change(call, **fields)


@FAULTS.scripted("tool.failed")
class _CompletesWhatFails(Script):
    def change(self, call: str, **fields: object) -> None:
        kinds = {it.get("toolCallId"): it["kind"] for it in self.kept.history if "kind" in it}
        if fields.get("status") == "failed" and kinds.get(call) == "read":
            fields["status"] = "completed"
        super().change(call, **fields)


def _cut(update: Json) -> Json:
    content = update.get("content")
    if not isinstance(content, dict) or "text" not in content:
        return update
    return {**update, "content": {**content, "text": content["text"][:4000]}}


FAULTS.replays("load.long-texts", lambda history: [_cut(it) for it in history])


def _other_data(kind: str, update: Json) -> Json:
    content = update.get("content")
    if not isinstance(content, dict) or content.get("type") != kind:
        return update
    return {**update, "content": {**content, "data": content["data"][:-8] + "AAAAAAA="}}


FAULTS.replays("load.images:data", lambda history: [_other_data("image", it) for it in history])
FAULTS.replays("load.audio:data", lambda history: [_other_data("audio", it) for it in history])


@FAULTS.breaks("load.relative-folder")
class _LoadsAnywhere(Exemplar):
    async def load_session(self, params: Json) -> Json:
        return await super().load_session({**params, "cwd": "/"})


@FAULTS.breaks("list.pages:filtered")
class _EndsFilteredLists(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        return {"sessions": []} if params.get("cwd") and params.get("cursor") else found


@FAULTS.scripted("schema.base64")
class _ShowsDataUri(Script):
    async def greet(self) -> None:
        await super().greet()
        image = {"type": "image", "mimeType": "image/png", "data": "data:image/png;base64,AAAA"}
        self.agent.update(
            self.session_id, {"sessionUpdate": "agent_message_chunk", "content": image}
        )
