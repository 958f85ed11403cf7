"""`acphold token`: the access to `acphold serve`, and its scopes."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Sequence

from msgspec.structs import replace

from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import (
    Exit,
    Parser,
    UsageError,
    a_name,
    above_zero,
)
from acphold.faces.cli.journals import opened, opened_if_any
from acphold.faces.cli.terminal_text import age, visible
from acphold.live.hub.annotations import iso_time
from acphold.live.presentation.visible_text import on_one_line
from acphold.record.history.entries import now_ms
from acphold.record.history.prompt_queue import DAY_MS
from acphold.record.journal import Journal, stores
from acphold.record.journal.access import (
    NODE,
    SCOPES,
    AccessToken,
    Deed,
    Scope,
    held_words,
    new_token,
)
from acphold.record.journal.stores import open_journal


def parser() -> Parser:
    """The arguments of `token`."""
    made = Parser(token, "token", "[OPTIONS] {list | create | audit | keep | revoke ID...}")
    actions = ("list", "create", "audit", "keep", "revoke")
    made.add_argument("action", choices=actions, help="what to do")
    made.add_value("ids", "ID", "a token's id, as shown by `list`", nargs="*")
    made.add_value("--name", "NAME", "a label, such as `phone`", type=a_name)
    add_grant(made)
    made.add_flag("--node", "for other machines with the same journal, not for a person")
    made.add_value("--session", "ID", "only for this session")
    made.add_since("with `audit`: only")
    made.add_value("--days", "N", "days until it expires", type=above_zero)
    made.add_flag("--json", "JSON, one line for each token")
    made.add_journal()
    return made


def add_grant(parser: Parser) -> None:
    """Add `--user` and `--scope`: the sessions that a token or a device sees, and its rights."""
    parser.add_value(
        "--user", "NAME", "the user it belongs to [default: whoever runs the server]", type=a_name
    )
    parser.add_value(
        "--scope",
        "SCOPE",
        "watch, prompt, answer, manage, rules or files; repeatable [default: all]",
        dest="scopes",
        action="append",
        choices=SCOPES,
    )


async def token(
    *,
    action: str,
    ids: list[str],
    name: str | None,
    user: str | None,
    scopes: list[Scope] | None,
    node: bool,
    session: str | None,
    days: int | None,
    since: int,
    json: bool,
    journal: str | None,
) -> int:
    """Manage access to `acphold serve`.

    `create` prints a token, once. `list` shows all tokens, and the devices of `acphold pair`.
    `revoke` ends tokens; anybody connected with one is disconnected within a second. `audit` shows
    who prompted, answered, deleted and so on through `acphold serve`, from where and when, and who
    was refused; it contains nothing that was said. In a copy of a journal, a restored one, and a
    database that lost entries, tokens and shares are held: they open nothing until you accept all
    of them with `keep`. Revoke first what you do not want.

    A token with a --user sees the sessions started by that user, and those shared with them
    (`acphold share`). A token without a user sees all sessions, as you do on this machine. The
    scopes are

      watch   list, open and read sessions
      prompt  prompt in them, cancel, close
      answer  answer the agent's questions, set modes and options
      manage  start (with prompt), copy and delete sessions, move them away, sign in
      rules   make rules that answer questions in advance (`acphold rules`)
      files   copy sessions with their kept files into new folders of this machine (`acphold fork`),
              or move them away with these files (`acphold resume --from`)

    Rules that allow something are revoked with the scope answer, too.
    """
    if action != "create" and (name, user, scopes, session, days) != (None,) * 5:
        raise UsageError("--name, --user, --scope, --session and --days work only with `create`")
    if action != "audit" and since:
        raise UsageError("--since works only with `audit`")
    if bool(ids) is not (action == "revoke"):
        raise UsageError("`revoke` needs IDs, and no other action takes them")
    if node and (action != "create" or (scopes, user, session) != (None, None, None)):
        raise UsageError(
            "--node works only with `create`, and without --scope, --user and --session"
        )
    if action == "create":
        wanted = tuple(scope for scope in SCOPES if scope in (scopes or SCOPES))
        wanted = (NODE,) if node else wanted
        return await _create(journal, name or "a token", user, wanted, session, days)
    if action == "audit":
        return await _audit(journal, since, json=json)
    if action == "revoke":
        return await _revoke(journal, ids)
    if action == "keep":
        return await _keep(journal)
    return await _list(journal, json=json)


async def _create(
    location: str | None,
    name: str,
    user: str | None,
    scopes: tuple[Scope, ...],
    session: str | None,
    days: int | None,
) -> int:
    if session is not None and "manage" in scopes:
        raise UsageError("a token for one session cannot have the scope manage; use --scope")
    journal = open_journal(stores.named(location))
    try:
        session_id = None if session is None else (await journal.resolve(session)).session_id
        now = now_ms()
        expires_at = None if days is None else now + days * DAY_MS
        text, kept = new_token(
            name, scopes, now, session_id=session_id, expires_at=expires_at, tenant=user
        )
        await journal.access.keep_token(kept)
        await journal.access.keep_deeds([_deed("create token", kept)])
    finally:
        await journal.aclose()
    print(text)
    return Exit.OK


async def _revoke(location: str | None, ids: Sequence[str]) -> int:
    async with opened(location) as journal:
        found = {each.id: each for each in await journal.access.tokens()}
        for id_ in ids:
            if id_ not in found:
                raise UsageError(f"no token {id_!r}; `acphold token list` shows them")
        for id_ in ids:
            await journal.access.keep_token(replace(found[id_], revoked_at=now_ms()))
        await journal.access.keep_deeds([_deed("revoke token", found[id_]) for id_ in ids])
    return Exit.OK


async def _keep(location: str | None) -> int:
    async with opened(location) as journal:
        await journal.access.accept()
        record = Deed(at=now_ms(), deed="keep tokens", name="", transport="command")
        await journal.access.keep_deeds([record])
    return Exit.OK


def _deed(deed: str, token: AccessToken) -> Deed:
    """Return the record of a change to a token, made at this machine."""
    return Deed(at=now_ms(), deed=deed, name=token.name, token=token.id, transport="command")


async def _audit(location: str | None, since: int, *, json: bool) -> int:
    deeds: list[Deed] = []
    async with opened_if_any(location) as journal:
        if journal is not None:
            deeds = await journal.access.deeds(since, bounds.TOKEN_DEEDS)
    for each in deeds:
        when = iso_time(each.at)
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
    return Exit.OK


async def tell_held(journal: Journal) -> None:
    """Say on stderr if tokens and shares are held."""
    if words := await held_words(journal.access):
        print(f"acphold: {words}", file=sys.stderr)


async def _list(location: str | None, *, json: bool) -> int:
    tokens: list[AccessToken] = []
    async with opened_if_any(location) as journal:
        if journal is not None:
            tokens = await journal.access.tokens()
            await tell_held(journal)
    now = now_ms()
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
                "createdAt": each.created_at,
                "expiresAt": each.ends_at,
                "usedAt": each.used_at,
            }
            print(json_text.dumps(row))
        else:
            used = "never used" if each.used_at is None else f"used {age(each.used_at, now)}"
            only = "" if each.session_id is None else f"  only {each.session_id}"
            may = ",".join(scopes if kind == "token" else (kind, *scopes))
            user = "" if each.tenant is None else f"  of {each.tenant}"
            name = on_one_line(each.name)
            print(visible(f"{each.id}  {state:<7}  {name:<16}  {may}  {used}{user}{only}"))
    return Exit.OK
