"""`_acphold/fork`: a client has a session copied, perhaps with the files of a moment.

The copy is not opened. A client on this machine may name the folder of the files; for any other it
is one beside the project.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acphold.errors import InvalidParamsError
from acphold.hub import Hub
from acphold.hub.listed_sessions import WantedCopy
from acphold.schema import encode
from acphold.server.principals import Principal


class _CopyRequest(Struct, rename="camel"):
    """The params: `files` is true, false, or a folder."""

    session_id: str
    at: int | None = None
    before: bool = False
    files: bool | str = False
    include: bool = False


class _CopiedFiles(Struct, rename="camel", omit_defaults=True):
    folder: str
    why_plain: str = ""
    state: str = "whole"
    left_out: int = 0
    included: int = 0


class _Copied(Struct, rename="camel"):
    session_id: str
    cwd: str
    turns: int
    files: _CopiedFiles | UnsetType = UNSET


async def answered(hub: Hub, principal: Principal, params: bytes) -> bytes:
    """Copy a session; return the answer. Raises InvalidParamsError, WorkspaceError and what
    `hub.forks.fork` raises."""
    try:
        asked = msgspec.json.decode(params, type=_CopyRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidParamsError(str(error)) from None
    if asked.at is not None and asked.at < 1:
        raise InvalidParamsError(f"at: {asked.at} is not the number of an entry", "at")
    if isinstance(asked.files, str) and not principal.is_here:
        raise InvalidParamsError("files: only clients on this machine name a folder", "files")
    if isinstance(asked.files, str) and not asked.files.startswith("/"):
        raise InvalidParamsError("files: an absolute path is required", "files")
    folder = asked.files if isinstance(asked.files, str) else None
    wanted = WantedCopy(bool(asked.files), folder, asked.at, asked.before, asked.include)
    made, there = await hub.listed.copy(asked.session_id, wanted)
    principal.note("_acphold/fork", made.session_id)
    if there is None:
        row = await hub.listed.row(made.session_id)
        return encode(_Copied(made.session_id, row.cwd, made.turns))
    files = _CopiedFiles(
        there.laid.folder,
        there.laid.why_plain,
        there.snapshot.state,
        there.snapshot.left_out_count,
        there.included.count,
    )
    return encode(_Copied(made.session_id, there.cwd, made.turns, files))
