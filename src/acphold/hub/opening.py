"""What opening a session takes besides the agent: its folder, its settings, a turn cut off."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from acphold.errors import InvalidParamsError
from acphold.hub.marks import failed_tool, first_words, interrupted_update, title_update
from acphold.schema import encode
from acphold.schema.splice import members

if TYPE_CHECKING:
    from acphold.hub.session import Session


class Setup(Struct, frozen=True):
    """What a client sends to open a session, checked: `params` as the agent is to get them."""

    cwd: str
    additional_directories: tuple[str, ...]
    params: bytes


def check_folder(known: str, asked: str) -> None:
    """A session keeps its working directory (spec v1, session setup); InvalidParamsError."""
    if known != asked and os.path.realpath(known) != os.path.realpath(asked):
        raise InvalidParamsError(
            f"cwd: this session belongs to {known!r}, not to {asked!r}", field="cwd"
        )


def settings_of(answer: bytes) -> bytes:
    """The modes and options in the answer that opened a session, as an "settings" entry."""
    parts = members(answer) if answer.startswith(b"{") else {}
    kept = [
        b"%b:%b" % (encode(name), parts[name])
        for name in ("modes", "configOptions")
        if parts.get(name, b"null") != b"null"
    ]
    return b"{%b}" % b",".join(kept)


async def mend(session: Session) -> None:
    """A turn that a crash cut off is marked, and its open tool calls are closed as failed."""
    why = "interrupted: acphold was ended in this turn"
    marks = [failed_tool(tool, why) for tool in await session.open_tools()]
    if session.settings.title is None:
        title = first_words(await session.state(through=session.last_seq))
        marks += [] if title is None else [title_update(title)]
    await session.publish("update", [*marks, interrupted_update()])
    await session.publish("turn_end", [b'{"interrupted":true}'])
