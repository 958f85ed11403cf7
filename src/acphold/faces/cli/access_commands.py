"""`acphold access`: the access to `acphold serve`: tokens, devices, shares and the audit log."""

from __future__ import annotations

import json as json_text
import re
import sys
from collections.abc import Sequence
from contextlib import aclosing, nullcontext, suppress
from itertools import starmap
from typing import Any, Final

from msgspec.structs import replace

from acphold.conversation.history.entries import iso
from acphold.conversation.history.prompt_queue import DAY_MS
from acphold.errors import ConnectionLostError, NoJournalError, RemoteRefusalError, SettingsError
from acphold.extras import require
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import UsageError, command
from acphold.faces.cli.journals import journal_if_any, sessions_here, short_id
from acphold.faces.cli.list_table import Column, Table
from acphold.faces.cli.places import find_session
from acphold.faces.cli.terminal_text import age, on_one_line, say, tell
from acphold.journal import stores
from acphold.journal.access import (
    NODE,
    SCOPES,
    AccessToken,
    Deed,
    Scope,
    Share,
    describe_held,
    new_token,
)
from acphold.journal.journal import Journal, tails_of
from acphold.journal.stores import open_journal
from acphold.live.reading.local_reader import existing_journal, note_deed
from acphold.live.reading.processes import processes
from acphold.live.server.places import allowed_places, set_allowed

PLACE: Final = r"sandbox-[0-9a-f]{12}"
"""The name of a place, as `machine.place` makes it."""

HEADINGS: Final = {"NAME": "heading", "ID": "id", "STATE": "busy", "LAST USE": "", "FOR": "agent"}
"""The columns on a terminal, with their styles; the rights are below each name."""

# -- tokens -----------------------------------------------------------------------------------


@command("access list", "[OPTIONS]", options.JOURNAL)
async def list_tokens(*, json: bool = options.flag("JSON, one line for each token")) -> None:
    """List tokens and paired devices.

    In a copy of a journal, a restored one, and a database that lost entries, tokens and shares are
    held: they open nothing until you accept all of them with `acphold access keep`. Revoke first
    what you do not want.
    """
    tokens: list[AccessToken] = []
    short_ids: dict[str, str] = {}
    now = 0
    with suppress(NoJournalError):
        async with sessions_here() as (reader, kept):
            now = kept.now_ms()
            tokens = await kept.access.tokens()
            ids = [it.session_id for it in tokens if it.session_id is not None]
            short_ids = await reader.short_ids(ids)
            await _tell_held(kept)
    if not tokens and not json:
        tell("No tokens or paired devices.")
    table, below = Table([*starmap(Column, HEADINGS.items())]), list[str]()
    for each in tokens:
        state = "held" if each.is_held else "good"
        if each.is_over(now):
            state = "over" if each.revoked_at is None else "revoked"
        kind = "node" if NODE in each.scopes else "browser" if each.is_browser else "token"
        scopes = tuple(scope for scope in SCOPES if scope in each.scopes)
        if json:
            row = {
                "id": each.id,
                "name": each.name,
                "user": each.tenant,
                "kind": kind,
                "scopes": scopes,
                "sessionId": each.session_id,
                "state": state,
                "createdAt": iso(each.created_at),
                "expiresAt": None if each.ends_at is None else iso(each.ends_at),
                "usedAt": None if each.used_at is None else iso(each.used_at),
            }
            print(json_text.dumps(row))
        else:
            used = "never used" if each.used_at is None else f"used {age(each.used_at, now)}"
            only = "" if each.session_id is None else f"only {short_ids[each.session_id]}"
            may = ",".join(scopes if kind == "token" else (kind, *scopes))
            user = "" if each.tenant is None else f"of {each.tenant}"
            name, whose = on_one_line(each.name), on_one_line(f"{user}  {only}".strip())
            if sys.stdout.isatty():
                table.add([name, each.id, state, used, whose])
                below.append(may.replace(",", ", "))
            else:
                words = f"{each.id}  {state:<7}  {name:<16}  {may}  {used}  {whose}"
                say(words.rstrip())
    if table.lines:
        table.print(below=below)


GRANT_USER: Final[Any] = options.value(
    "NAME", "the user it belongs to [default: whoever runs the server]"
)
GRANT_SCOPES: Final[Any] = options.value(
    "SCOPE",
    "watch, prompt, answer, manage, rules or files; repeatable [default: all]",
    "--scope",
    action="append",
    choices=SCOPES,
)
"""The sessions that a token or a device sees, and its rights."""


@command("access token", "[OPTIONS]", options.JOURNAL)
async def create_token(
    *,
    name: str | None = options.value("NAME", "a label, such as `phone`"),
    user: str | None = GRANT_USER,
    scopes: list[Scope] | None = GRANT_SCOPES,
    node: bool = options.flag("for other machines with the same journal, not for a person"),
    session: str | None = options.value("ID", "only for this session"),
    days: int | None = options.value("N", "days until it expires"),
) -> None:
    """Create a token and print it, once.

    It is for clients of `acphold serve` that cannot pair: programs with its HTTP addresses, other
    people's clients, and with --node other machines.

    A token with a --user sees the sessions started by that user, and those shared with them
    (`acphold access share`). A token without a user sees all sessions, as you do on this machine.
    The scopes are

      watch   list, open and read sessions
      prompt  prompt in them, cancel, close
      answer  answer the agent's questions, set modes and options
      manage  start (with prompt), copy, delete and move away sessions, sign in
      rules   make rules that answer questions in advance (`acphold rules`)
      files   copy sessions with their files into new folders of this machine,
              or move them with these (`acphold continue --files`, `--bring-from`)

    Rules that allow something are revoked with the scope answer, too.
    """
    if node and (scopes, user, session) != (None, None, None):
        raise UsageError("--node does not go with --scope, --user or --session")
    granted = tuple(scope for scope in SCOPES if scope in (scopes or SCOPES))
    if session is not None and "manage" in granted:
        raise UsageError("a token for one session cannot have the scope manage; use --scope")
    async with aclosing(open_journal(stores.journal_name())) as kept:
        session_id = None if session is None else (await kept.resolve(session)).session_id
        await kept.identity()  # a database has told its time by then
        now = kept.now_ms()
        text, made = new_token(
            name or "a token",
            (NODE,) if node else granted,
            now,
            session_id=session_id,
            expires_at=None if days is None else now + days * DAY_MS,
            tenant=user,
        )
        await kept.access.keep_token(made)
        await note_deed(kept, "create token", made.name, token=made.id)
    print(text)


@command("access revoke", "[OPTIONS] ID...", options.JOURNAL)
async def revoke(
    *, ids: list[str] = options.argument("ID", "a token's id, as shown by `access list`", nargs="+")
) -> None:
    """End tokens and the access of devices.

    Anybody connected with one is disconnected within a second.
    """
    async with existing_journal() as kept:
        found = {each.id: each for each in await kept.access.tokens(ids)}
        for id_ in ids:
            if id_ not in found:
                raise UsageError(f"no token {id_!r}; `acphold access list` shows them")
        for id_ in ids:
            await kept.access.keep_token(replace(found[id_], revoked_at=kept.now_ms()))
            await note_deed(kept, "revoke token", found[id_].name, token=id_)


@command("access keep", "[OPTIONS]", options.JOURNAL)
async def keep() -> None:
    """Accept all tokens and shares that are held.

    They are held in a copy of a journal, a restored one, and a database that lost entries. Revoke
    first what you do not want.
    """
    async with existing_journal() as kept:
        await kept.access.accept()
        await note_deed(kept, "keep tokens", "")


@command("access audit", "[OPTIONS]", options.JOURNAL)
async def audit(
    *, since: int = options.since("only"), json: bool = options.flag("JSON, one line for each deed")
) -> None:
    """Show who did what through `acphold serve`.

    Each line says who prompted, answered, deleted and so on, from where and when, or was refused.
    It contains nothing that was said.
    """
    deeds: list[Deed] = []
    async with journal_if_any() as kept:
        if kept is not None:
            deeds = await kept.access.deeds(since, bounds.TOKEN_DEEDS)
    if not deeds and not json:
        tell("Nothing was done through `acphold serve`.")
    for each in deeds:
        when = iso(each.at)
        if json:
            row = {
                "at": when,
                "deed": each.deed,
                "name": each.name,
                "token": each.token,
                "sessionId": each.session_id,
                "address": each.address,
                "transport": each.transport,
            }
            print(json_text.dumps(row))
        else:
            who = f"{each.name} ({each.token})" if each.token else each.name or "unknown"
            # Strangers may have chosen any of these names.
            who, deed = on_one_line(who), on_one_line(each.deed)
            session = on_one_line(each.session_id or "-")
            way = on_one_line(f"{each.address or 'here'}, {each.transport}")
            print(f"{when[:19]}Z  {who:<28}  {deed:<26}  {session}  {way}")


@command("access places", "[OPTIONS] [allow NAME | forbid NAME]")
async def list_places(
    *,
    words: tuple[str, ...] = options.argument("WORDS", "what to change", nargs="*"),
    json: bool = options.flag("JSON, one line for each place"),
) -> None:
    """Say which sandboxes and containers may do more than look.

    A program in a sandbox or container that shares the folder of acphold's sockets finds your
    running sessions, and only looks: it can neither prompt nor answer. Without arguments, lists the
    places from which programs came.

      acphold access places allow sandbox-3fe12c0d9a55
      acphold access places forbid sandbox-3fe12c0d9a55

    Allow only a place in which you trust everything that runs, agents included. It counts until the
    first program of that place has ended. One that is forbidden keeps its connections.
    """
    allowed = allowed_places()
    if words:
        deed, name, *more = (*words, "")
        if deed not in ("allow", "forbid") or any(more) or not re.fullmatch(PLACE, name):
            raise UsageError("give allow or forbid, and the name of a place, as this command lists")
        set_allowed(name, allowed=deed == "allow")
        may = "may do all that you may" if deed == "allow" else "only looks from now on"
        tell(f"{name} {may}.")
        return
    seen = {name: what for process in await processes() for name, what in process.places.items()}
    for name in dict.fromkeys([*seen, *allowed]):
        what = seen.get(name, "not seen since the daemon began")
        if json:
            row = {"name": name, "allowed": name in allowed, "differs": what}
            print(json_text.dumps(row))
        else:
            state = "allowed" if name in allowed else "looks"
            say(f"{name}  {state}  {on_one_line(what)}")
    if not (seen or allowed or json):
        tell("No program of another sandbox or container has come.")


async def _tell_held(journal: Journal) -> None:
    """Say on stderr if tokens and shares are held."""
    if words := await describe_held(journal.access):
        tell(f"acphold: {words}")


# -- devices and shares -----------------------------------------------------------------------


@command("access pair", "[OPTIONS]", options.JOURNAL)
async def pair(
    *,
    user: str | None = GRANT_USER,
    scopes: list[Scope] | None = GRANT_SCOPES,
    json: bool = options.flag("JSON, one line with `url` and `pair`"),
) -> None:
    """Pair a phone or a browser with `acphold serve`.

    Prints a one-time link and its QR code, valid for ten minutes, for one device. `acphold serve`
    has to be running here, on this journal; it prints such a link for the first device itself.
    `acphold access list` shows the paired devices, and `acphold access revoke` ends their access.
    """
    require("serve", "access pair")
    import httpx2  # late: importing it takes longer than everything else here

    from acp_wire.transports.known_servers import known_servers
    from acp_wire.transports.route import explanation
    from acphold.faces.cli.serve import print_code
    from acphold.web.running_servers import running

    found = running()
    if not found:
        raise SettingsError(
            "no `acphold serve` is running here for this journal; start one: it prints a link"
        )
    server = found[-1]
    headers = {
        "Authorization": f"Bearer {known_servers().at(server.known_as).token or ''}",
        "Content-Type": "application/json",
    }
    request = json_text.dumps({"scopes": scopes or [], "user": user})
    # Its certificate is for its public name, and only it has this port: see `running_servers`.
    try:
        async with httpx2.AsyncClient(
            timeout=bounds.SERVER_SECONDS, verify=False, trust_env=False
        ) as http:
            answer = await http.post(f"{server.here}/codes", content=request, headers=headers)
    except httpx2.HTTPError as exc:
        raise ConnectionLostError(f"cannot reach {server.here}: {exc}") from None
    if answer.status_code != 200:
        reason = explanation(answer.headers, answer.content)
        raise RemoteRefusalError(server.here, answer.status_code, "it returned no code", reason)
    code = str(answer.json()["code"])
    if json:
        print(json_text.dumps({"url": server.url, "pair": code}))
    else:
        print_code(server.url, code)


def _with_user(arguments: Sequence[str]) -> str:
    """Return the hint for a user who is named like the session."""
    flags = [word for word in arguments if word.startswith("-")]
    if len(arguments) - len(flags) != 2 or not {*flags} <= {"--prompt", "--stop"}:
        return ""
    return f"name the user with --with: acphold access share {' '.join(['--with USER', *flags])} ID"


@command("access share", "[OPTIONS] [ID]", options.JOURNAL, meant=_with_user)
async def share(
    *,
    session_id: str | None = options.argument("ID", "a session's id, or a prefix of it", nargs="?"),
    user: str | None = options.value(
        "USER", "a user of `acphold access token`", "--with", type=options.a_name
    ),
    prompt: bool = options.flag("they may also prompt and answer"),
    stop: bool = options.flag("stop sharing it"),
    json: bool = options.flag("JSON, one line for each share"),
) -> None:
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
        await _list_shares(session_id, json=json)
        return
    if session_id is None:
        raise UsageError("name a session; `acphold list` shows their ids")
    if prompt and stop:
        raise UsageError("use --prompt or --stop, not both")
    async with sessions_here() as (reader, found):
        row = await find_session(reader, session_id, "shares it")
        short = await short_id(found, row.session_id)
        ids = [row.session_id, *await tails_of(found, row.session_id)]
        if stop:
            if not any([await found.access.end_share(name, user) for name in ids]):
                raise UsageError(f"{short} is not shared with {user!r}")
        elif row.tenant == user:
            raise UsageError(f"{short} already belongs to {user!r}")
        else:
            for name in ids:
                await found.access.keep_share(Share(name, user, prompt))
            if not any(it.tenant == user for it in await found.access.tokens()):
                tell(f"acphold: nobody has a token for {user!r} yet; whoever gets one sees it")
        deed = "stop sharing" if stop else "share"
        await note_deed(found, deed, user, session_id=row.session_id)


async def _list_shares(given: str | None, *, json: bool) -> None:
    shares, short_ids, only = list[Share](), dict[str, str](), None
    with suppress(NoJournalError) if given is None else nullcontext():
        async with sessions_here() as (reader, journal):
            if given is not None:
                only = (await find_session(reader, given, "shows it", by_words="found")).session_id
            shares = [it for it in await journal.access.shares() if only in (None, it.session_id)]
            short_ids = await reader.short_ids(it.session_id for it in shares)
            await _tell_held(journal)
    if not shares and not json:
        tell("Nothing is shared.")
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
            say(f"{short_ids[each.session_id]}  {may:<6}  {each.tenant}{held}")
