"""The prompts that wait in a session, read and changed from outside, whether it is live or not."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from acphold.agents.capabilities import QUEUE_METHOD
from acphold.errors import InvalidParamsError
from acphold.history.prompt_queue import NO_QUEUE, PromptQueue, QueueChange, content_in
from acphold.journal import Journal
from acphold.journal.kept_queue import change_queue
from acphold.journal.owners import is_free, other_owner
from acphold.reading.neighbours import asked_as
from acphold.schema import encode

NAME = "acphold"
"""The client that is noted with a change."""


class QueueAnswer(Struct, frozen=True):
    """The queue after a change; `id` is the prompt that was changed, `prompt` the content that was
    asked for. `is_live` says that some process has the session, and begins what waits."""

    queue: PromptQueue = NO_QUEUE
    id: str = ""
    prompt: Raw = Raw(b"[]")
    is_live: bool = True


async def ask_queue(
    journal: Journal, session_id: str, change: QueueChange | None = None, *, read: str = ""
) -> QueueAnswer:
    """Read the queue of a session, after this change of it, if any.

    `read` is the id of a prompt whose content is wanted. Raises UnknownSessionError,
    InvalidParamsError if the change does not fit, ConnectionLostError if the process that has the
    session cannot be reached, and JournalError.
    """
    whose = await journal.owner(session_id)
    if (owner := other_owner(whose)) is not None and not is_free(whose):
        asked = {"sessionId": session_id, "change": change, "read": read}
        params = encode({name: value for name, value in asked.items() if value})
        raw = await asked_as(NAME, owner.addresses, QUEUE_METHOD, params)
        return msgspec.json.decode(raw, type=QueueAnswer)
    if change is not None:
        named = msgspec.structs.replace(change, client=Raw(encode({"name": NAME})))
        queue = await change_queue(journal, session_id, named)
    else:
        queue = (await journal.summary(session_id)).queue
    prompt = b"[]"
    if read:
        if (waits := queue.find(read)) is None:
            raise InvalidParamsError(f"read: {read!r} does not wait", field="read")
        page = await journal.read(session_id, waits.seq - 1)
        prompt = bytes(content_in(page, waits).prompt)
    return QueueAnswer(queue, "" if change is None else change.id, Raw(prompt), is_live=False)
