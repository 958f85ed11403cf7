"""Joins, on the screen, a session that is live in some acphold process."""

from __future__ import annotations

import sys
from typing import NamedTuple

from acphold.cli.command_line import Exit
from acphold.cli.journals import path_of
from acphold.cli.screen_session import Seat
from acphold.cli.session_setup import AS_IT_IS, SessionSetup
from acphold.cli.terminal_text import on_one_line, on_terminal, visible
from acphold.errors import ConnectionLostError


class Left(NamedTuple):
    """The session that a person left for another one: `new`, or `resume` with words."""

    session_id: str
    goes_to: tuple[str, str]


async def join(
    session_id: str,
    journal: str | None,
    host: str,
    *,
    watch: bool = False,
    setup: SessionSetup = AS_IT_IS,
) -> tuple[int, Left | None]:
    """Attach to a session, or say what to do if it is not live; returns the exit code, and Left.

    `host` is put into the commands that are printed: how the person came to this machine.
    """
    from acphold.client import connect  # late: commands that only look do not wait for it

    goes = () if watch else ("new", "resume")
    seat = Seat(permission=None, reads_only=watch, leaving="detaches", goes=goes, journal=journal)
    options = seat.options
    try:
        async with connect(session=session_id, journal=path_of(journal), **options) as agent:
            session = await agent.load_session(session_id)
            await setup.apply(session)
            code = await seat.sit(agent, session)
    except ConnectionLostError as error:
        if "is not live" not in str(error):
            raise
        why = f"Session {session_id} is not running; to continue it"
        _say_how_to_go_on(why, session_id, host)
        return Exit.ERROR, None
    if on_terminal() and code == Exit.OK:
        print(f"\nDetached; the session continues: acphold resume{host} {on_one_line(session_id)}")
    elif seat.chat.error is not None:
        _say_how_to_go_on("To continue", session_id, host)
    goes_to = seat.chat.goes_to
    return code, None if goes_to is None else Left(session_id, goes_to)


def _say_how_to_go_on(why: str, session_id: str, host: str) -> None:
    print(visible(f"{why}: acphold resume{host} {session_id}"), file=sys.stderr)
