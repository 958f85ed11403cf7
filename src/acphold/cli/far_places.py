"""Sessions of a server far away, and entries in them, as a person names them: see `cli.places`.

Its folders are those of another machine, so `-` is the newest session of all there.
"""

from __future__ import annotations

from acphold.cli.command_line import NothingChosen, UsageError
from acphold.cli.servers import FarServer
from acphold.cli.session_picker import chosen_there
from acphold.cli.terminal_text import on_terminal
from acphold.client.server_pages import FarSession, ServerPages
from acphold.errors import AmbiguousIdError, UnknownSessionError


async def named_there(
    pages: ServerPages, server: FarServer, given: str | None, does: str
) -> FarSession:
    """The session that is meant. `does` says what becomes of it ("shows it"), where it is chosen
    from a list.

    Raises UnknownSessionError, AmbiguousIdError, NothingChosen, and UsageError where it has to be
    named.
    """
    among = None
    if given is not None:
        try:
            return await pages.session(given)
        except AmbiguousIdError as error:
            if not on_terminal():
                raise
            among = error.matches
    elif not on_terminal():
        raise UsageError(f"in a pipe ID is required; `acphold list{server.typed}` has them")
    if (found := await chosen_there(pages, does, among=among)) is None:
        raise NothingChosen
    return found


async def place_there(
    pages: ServerPages, server: FarServer, text: str | None, does: str
) -> tuple[FarSession, int | None]:
    """What `ID` or `ID@SEQ` means; else as `named_there`. An id with an `@` in it is an id before
    all else."""
    given, at, seq = (text or "").rpartition("@")
    try:
        return await named_there(pages, server, text, does), None
    except UnknownSessionError:
        if not (at and given and seq.isascii() and seq.isdecimal() and len(seq) <= 10):
            raise
    return await named_there(pages, server, given, does), int(seq)
