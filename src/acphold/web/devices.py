"""New devices: the exchange of a code for a token, and the browsers' sessions.

    POST /codes     {"scopes", "user"} → {"code", "seconds"}; needs manage. The device is the
                    requester's own; a token that sees all may name another `user`
    POST /pair      {"code", "name"} → {"token", "scopes"}, for a program
    POST /browser   {"code", "name"} → {"page", …WHOSE}, and a cookie, for a page of ours
    GET /browser    WHOSE; renews the cookie for its full lifetime
    DELETE /browser this browser's session ends

WHOSE is {"id", "name", "user", "server", "scopes"}: the session's id in `acphold access list`, the
device's name, the user whose sessions it sees (null for everybody's), the server, and its scopes. A
browser that pairs again ends its earlier session.
"""

from __future__ import annotations

import getpass
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hmac import compare_digest
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from acphold.journal.access import NODE, SCOPES, Scope, token_id
from acphold.web import bounds
from acphold.web.exchange import HttpExchange, RefusedError
from acphold.web.gate import Admitted, Gate, cookie_name

PAIR: Final = "/pair"
BROWSER: Final = "/browser"

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's Base32, which has no letter that looks like a digit."""

LENGTH: Final = 10
"""Characters of a code: 50 bits.

Ten thousand guesses a second over a code's lifetime succeed once in a hundred million.
"""


class Worth(Struct, frozen=True):
    """The rights of a code's token: its scopes and tenant, None for everybody's sessions.

    `asker` is the id of the token that asked for the code; None if the server itself did.
    """

    scopes: tuple[Scope, ...]
    asker: str | None = None
    tenant: str | None = None


_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has another clock for this; that of macOS does so."""


def seconds_with_sleep() -> float:
    """Return the time of a clock that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class Pairing:
    """The codes of one process: each is shown once, and exchanged for one token while fresh.

    A code is read off a screen or a picture, so it is short. It is safe because it expires after
    minutes and with its first use. Guesses are not counted: a limit would keep the right code out.

    `now` is a clock in seconds.
    """

    def __init__(self, now: Callable[[], float] = seconds_with_sleep) -> None:
        self._now = now
        self._codes: dict[str, tuple[float, Worth]] = {}

    def new_code(self, worth: Worth) -> str:
        """Return a new code with these rights."""
        code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        theirs = [each for each, (_, it) in self._codes.items() if it.asker == worth.asker]
        for each in theirs[: max(0, len(theirs) + 1 - bounds.CODES_OF_ONE)]:
            del self._codes[each]
        self._codes[code] = (self._now() + bounds.CODE_SECONDS, worth)
        return code

    def redeem(self, code: str) -> Worth | None:
        """Return the rights of the code and delete it; None for a wrong one."""
        now = self._now()
        self._codes = {each: it for each, it in self._codes.items() if now < it[0]}
        given = code.strip().upper().replace("-", "").encode()
        # Compare each in constant time, so that timing does not tell how much of it was right.
        found = [each for each in self._codes if compare_digest(each.encode(), given)]
        return self._codes.pop(found[0])[1] if found else None


class PairRequest(Struct, frozen=True):
    """The request of a new device."""

    code: str
    name: str = ""


class CodeRequest(Struct, frozen=True):
    """The token a pairing code is asked for; all fields are optional."""

    scopes: tuple[Scope, ...] = ()
    user: Annotated[str, Meta(min_length=1, max_length=bounds.DEVICE_NAME_CHARACTERS)] | None = None


class Devices:
    """Answers requests to PAIR and BROWSER; see the module. `report` is told the name of each
    device that has paired."""

    def __init__(self, gate: Gate, pairing: Pairing, report: Callable[[str], object]) -> None:
        self._gate = gate
        self._pairing = pairing
        self._report = report

    async def answer(self, exchange: HttpExchange) -> None:
        """Answer a request to PAIR or BROWSER; raises RefusedError."""
        match exchange.method, exchange.path:
            case "POST", "/pair":
                name, worth, ends = await self._redeem(exchange)
                token = await self._gate.grant(name, worth.scopes, ends, worth.tenant)
                self._note_pairing(exchange, name, token_id(token))
                await exchange.answer(200, {"token": token, "scopes": worth.scopes})
            case "POST", "/browser":
                if (origin := self._gate.origin_of(exchange)) is None:
                    raise RefusedError(404, "there is no page at this address")
                name, worth, ends = await self._redeem(exchange)
                await self._gate.sign_out(exchange)
                page, cookie = await self._gate.grant_browser(
                    name, worth.scopes, origin, ends, worth.tenant
                )
                id_ = token_id(page)
                self._note_pairing(exchange, name, id_)
                whose = _whose(id_, name, worth.tenant, worth.scopes)
                await exchange.answer(200, {"page": page, **whose}, [_set_cookie(origin, cookie)])
            case "GET", "/browser":
                await self._whose(exchange)
            case "DELETE", "/browser":
                ended = await self._gate.sign_out(exchange)
                if ended is not None:
                    self._note("sign out", exchange, ended.name, ended.id)
                origin = self._gate.origin_of(exchange)
                head = [] if origin is None else [_set_cookie(origin, "", seconds=0)]
                await exchange.answer(200, {}, [*head, (b"clear-site-data", b'"cache"')])
            case _:
                raise RefusedError(405, "use POST; for a browser also GET and DELETE")

    async def offer_code(self, exchange: HttpExchange, admitted: Admitted) -> None:
        """Answer a request for a pairing code; raises RefusedError."""
        exchange.require("POST")
        who = admitted.principal
        if "manage" not in who.scopes or who.session_id is not None:
            who.refused("code", None)
            raise RefusedError(
                403, "a pairing code needs the scope manage, which this token does not have"
            )
        wanted = 'expected {"scopes": ["watch"]}, or {}'
        asked = await exchange.read_json(CodeRequest, wanted)
        if NODE in asked.scopes:
            raise RefusedError(
                400, "a pairing code cannot have the scope node: devices belong to people"
            )
        scopes = tuple(scope for scope in SCOPES if scope in (asked.scopes or who.scopes))
        is_own = asked.user in (None, who.tenant)
        if not who.scopes.issuperset(scopes) or not (is_own or who.sees_all):
            who.refused("code", None)
            raise RefusedError(
                403, "a pairing code cannot have more rights than the token that requests it"
            )
        who.note("code", None)
        tenant = who.tenant if asked.user is None else asked.user
        code = self._pairing.new_code(Worth(scopes, admitted.token, tenant))
        await exchange.answer(200, {"code": code, "seconds": int(bounds.CODE_SECONDS)})

    async def _redeem(self, exchange: HttpExchange) -> tuple[str, Worth, int | None]:
        """Return the name of a device, its rights, and when they end."""
        wanted = 'expected {"code": "…", "name": "…"}'
        asked = await exchange.read_json(PairRequest, wanted)
        worth = self._pairing.redeem(asked.code)
        asker = None
        if worth is not None and worth.asker is not None:
            asker = (await self._gate.tokens_among([worth.asker])).get(worth.asker)
        is_good = asker is not None and asker.is_good(self._gate.now_ms())
        if worth is None or (worth.asker is not None and not is_good):
            reason = "this code is wrong, used or expired; `acphold access pair` prints a new one"
            raise RefusedError(403, reason, attempt="a wrong code")
        printable = "".join(each for each in asked.name if each.isprintable())
        name = printable[: bounds.DEVICE_NAME_CHARACTERS]
        # A token lasts no longer than the one that asked for its code.
        return name or "a device", worth, None if asker is None else asker.expires_at

    def _note_pairing(self, exchange: HttpExchange, name: str, id_: str) -> None:
        self._note("pair", exchange, name, id_)
        self._report(name)

    def _note(self, deed: str, exchange: HttpExchange, name: str, id_: str) -> None:
        actor = self._gate.actor(exchange, None)
        self._gate.audit.note(deed, None, who=replace(actor, name=name, token=id_))

    # -- browsers -------------------------------------------------------------------------

    async def _whose(self, exchange: HttpExchange) -> None:
        admitted = await self._gate.admit(exchange)
        who = admitted.principal
        origin = self._gate.origin_of(exchange)
        head = [_set_cookie(origin, admitted.cookie)] if origin and admitted.cookie else []
        scopes = [scope for scope in SCOPES if scope in who.scopes]
        whose = _whose(admitted.token, who.name, who.tenant, scopes)
        await exchange.answer(200, whose, head)


def _whose(id_: str, name: str, tenant: str | None, scopes: Sequence[Scope]) -> dict[str, object]:
    """Return WHOSE, as described in the module."""
    server = socket.gethostname()
    with suppress(KeyError, OSError):  # an account without a name
        server = f"{getpass.getuser()}@{server}"
    return {"id": id_, "name": name, "user": tenant, "server": server, "scopes": scopes}


def _set_cookie(
    origin: str, value: str, seconds: int = bounds.COOKIE_SECONDS
) -> tuple[bytes, bytes]:
    """Return the header that sets our cookie.

    It has an age because a phone would otherwise drop the cookie when it closes the browser.
    """
    secure = "; Secure" if origin.startswith("https:") else ""
    how = f"HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}"
    return b"set-cookie", f"{cookie_name(origin)}={value}; {how}".encode()
