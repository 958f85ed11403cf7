"""`acphold share`: shares sessions with other users of `acphold serve`, to read or to prompt."""

from __future__ import annotations

import json as json_text

from acphold.errors import NoJournalError
from acphold.faces.cli.command_line import Exit, Parser, UsageError, a_name
from acphold.faces.cli.journals import opened, opened_if_any
from acphold.faces.cli.places import named
from acphold.faces.cli.terminal_text import visible
from acphold.faces.cli.token import tell_held
from acphold.live.reading.local_reader import LocalReader
from acphold.record.history.entries import now_ms
from acphold.record.journal import stores
from acphold.record.journal.access import Deed, Share


def parser() -> Parser:
    """The arguments of `share`."""
    made = Parser(share, "share", "[OPTIONS] [ID]")
    made.add_value("session_id", "ID", "a session's id, or a prefix of it", nargs="?")
    made.add_value("--with", "USER", "a user of `acphold token`", dest="user", type=a_name)
    made.add_flag("--prompt", "they may also prompt and answer")
    made.add_flag("--stop", "stop sharing it")
    made.add_flag("--json", "JSON, one line for each share")
    made.add_journal()
    return made


async def share(
    *,
    session_id: str | None,
    user: str | None,
    prompt: bool,
    stop: bool,
    json: bool,
    journal: str | None,
) -> int:
    """Share a session with another user of `acphold serve`.

    A session belongs to the user who started it. Only they see it, and you, who run the server:
    here, or with a token without a user. --with lets another user read it, live as well; with
    --prompt they can also prompt and answer its questions. Only its owner, and you, can rename,
    archive, copy or delete it. --stop ends the sharing within a second, even for those who have it
    open. Without --with, lists what is shared, of one session or of all.
    """
    if user is None:
        if prompt or stop:
            raise UsageError("--prompt and --stop work only with --with USER")
        return await _list(journal, session_id, json=json)
    if session_id is None:
        raise UsageError("name a session; `acphold list` shows their ids")
    if prompt and stop:
        raise UsageError("use --prompt or --stop, not both")
    async with opened(journal) as found:
        row = await named(LocalReader(found), session_id, "shares it")
        if stop:
            if not await found.access.end_share(row.session_id, user):
                raise UsageError(f"{row.session_id} is not shared with {user!r}")
        elif row.tenant == user:
            raise UsageError(f"{row.session_id} already belongs to {user!r}")
        else:
            await found.access.keep_share(Share(row.session_id, user, prompt))
        deed = "stop sharing" if stop else "share"
        record = Deed(
            at=now_ms(), deed=deed, name=user, session_id=row.session_id, transport="command"
        )
        await found.access.keep_deeds([record])
    return Exit.OK


async def _list(location: str | None, given: str | None, *, json: bool) -> int:
    async with opened_if_any(location) as journal:
        if journal is None:
            if given is None:
                return Exit.OK
            raise NoJournalError(stores.named(location))
        only = (
            None
            if given is None
            else (await named(LocalReader(journal), given, "shows it")).session_id
        )
        shares = [it for it in await journal.access.shares() if only in (None, it.session_id)]
        await tell_held(journal)
    for each in shares:
        may = "prompt" if each.prompts else "read"
        if json:
            row = {
                "sessionId": each.session_id,
                "user": each.tenant,
                "may": may,
                "held": each.is_held,
            }
            print(json_text.dumps(row))
        else:
            held = "  held" if each.is_held else ""
            print(visible(f"{each.session_id}  {may:<6}  {each.tenant}{held}"))
    return Exit.OK
