"""Sessions of a server far away, and their entries, by the names a person uses: see `cli.places`.

Folders there are another machine's, so `-` is the newest session of all.
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
    """Return the session that is meant. `does` says what will be done with it ("shows it"), for the
    list to choose from.

    Raises UnknownSessionError, AmbiguousIdError, NothingChosen, and UsageError if it has to be
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
    """Resolve `ID` or `ID@SEQ`; otherwise as `named_there`. An id that contains an `@` is tried as
    an id first."""
    given, at, seq = (text or "").rpartition("@")
    try:
        return await named_there(pages, server, text, does), None
    except UnknownSessionError:
        if not (at and given and seq.isascii() and seq.isdecimal() and len(seq) <= 10):
            raise
    return await named_there(pages, server, given, does), int(seq)
