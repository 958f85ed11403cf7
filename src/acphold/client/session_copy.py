"""A copy of a session, perhaps with its files: an acphold at the other end makes it."""

from __future__ import annotations

from msgspec import Struct

from acphold.agents.capabilities import FORK_METHOD
from acphold.client.uplink import Uplink
from acphold.errors import CapabilityError
from acphold.schema import decode, encode


class CopiedFiles(Struct, frozen=True, rename="camel"):
    """Files that were laid out for a copy, in `folder`.

    `why_plain` says why that is no work tree of the repository, "" if it is one; `state` is how the
    snapshot was taken: `whole`, `late` (the next turn may have begun) or `later` (by the next
    turn). `left_out` counts the files that the snapshot left out, `included` the ignored files that
    were copied.
    """

    folder: str
    why_plain: str = ""
    state: str = "whole"
    left_out: int = 0
    included: int = 0


class SessionCopy(Struct, frozen=True, rename="camel"):
    """A new session with `turns` of another one, in the folder `cwd`; `files` are None if they were
    not asked for."""

    session_id: str
    cwd: str
    turns: int
    files: CopiedFiles | None = None


async def copied(
    uplink: Uplink,
    session_id: str,
    *,
    at: int | None,
    before: bool,
    files: bool | str,
    include: bool,
) -> SessionCopy:
    """Ask for a copy; raises CapabilityError, RemoteError."""
    await uplink.ready()
    if not uplink.keeps_queue:
        raise CapabilityError(
            f"{uplink.name} cannot copy sessions; use it with `acphold wrap` in front, or "
            "durable=True"
        )
    asked = {
        "sessionId": session_id,
        "at": at,
        "before": before,
        "files": files,
        "include": include,
    }
    answer = await uplink.ask_raw(FORK_METHOD, encode(asked))
    return decode(SessionCopy, answer).value
