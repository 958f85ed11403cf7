"""Who is let in: the address a request was sent to, the page it comes from, and its token.

Other users of the machine and every page in a browser reach a port on loopback as well, so nothing
is answered on the strength of where it comes from:

- `Host` has to be a name that this server goes by: else a page whose name was made to lead here
  (DNS rebinding) would be of our origin;
- `Origin`, which browsers alone send, has to be our own (cross-site WebSocket hijacking);
- a token has to be there, as `Authorization: Bearer`, as a cookie, or, for a page of another
  program that cannot send either, among the subprotocols of a WebSocket.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from acphold.errors import AcpholdError, JournalError
from acphold.history.times import now_ms
from acphold.journal.access import Access, AccessToken, Scope, Share, new_token, token_id
from acphold.server.principals import Principal
from acphold.transports.urls import REALM
from acphold.web.attempts import Attempts
from acphold.web.audit import Audit
from acphold.web.connections import Connection, Connections, TooManyError
from acphold.web.sockets import GOING_AWAY, POLICY

log = logging.getLogger(__name__)

COOKIE: Final = "acphold"

SUBPROTOCOL: Final = "acphold"
"""What is agreed on with a client that offers it, beside TOKEN_SUBPROTOCOL."""

TOKEN_SUBPROTOCOL: Final = "acphold-token."
"""How the subprotocol begins that holds a token."""

TOKENS_SECONDS: Final = 0.5
"""How old the list of tokens may be by which somebody is let in, or stays connected."""

NOTE_MS: Final = 60_000
"""How often is noted that a token is used."""

Headers = dict[str, str]
"""The headers of a request, by their names in small letters."""


class RefusedError(AcpholdError):
    """A request is not answered; `status` is the one of HTTP. Says no more than a stranger may
    know. `realm` is what a token is wanted for, where one is.

    `attempt` is what is written down of one that should not have been made, "" for a mere mistake;
    `token` is the one by which it was made, where that was shown.
    """

    def __init__(
        self,
        status: int,
        told: str,
        realm: str = "",
        *,
        attempt: str = "",
        token: AccessToken | None = None,
    ) -> None:
        super().__init__(told)
        self.status = status
        self.realm = realm
        self.attempt = attempt
        self.token = token


class OtherOriginError(RefusedError):
    """A page of somebody else asks."""

    def __init__(self) -> None:
        told = "a page of another origin may not ask this"
        super().__init__(403, told, attempt="a page of another origin")


class Came(Struct, frozen=True):
    """Where from a request comes, and by what way: `websocket` or `http`."""

    address: str = ""
    transport: str = ""


UNKNOWN: Final = Came()


class Admitted(Struct, frozen=True):
    """Somebody who was let in, and by which token."""

    principal: Principal
    token: str


Close = Callable[[int], object]
"""Closes a connection; told why, as a WebSocket says it (RFC 6455, 7.4.1)."""


class Gate:
    """See the module. `origins` are those that this server goes by, as `https://host:port`.

    `connections` are those of our own server. `proxies` are the addresses of those in front, whose
    word it is where a request comes from. To be made inside a running loop.
    """

    realm = REALM
    wanted = "a token is required: `acphold serve` prints how to pair"

    def __init__(
        self,
        access: Access,
        origins: Collection[str],
        connections: Connections | None = None,
        *,
        proxies: Collection[str] = (),
    ) -> None:
        self.audit = Audit(access)
        self._proxies = frozenset(proxies)
        self._access = access
        self._connections = connections
        self._origins = frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).netloc for origin in origins)
        self._now = asyncio.get_running_loop().time
        self._wrong = Attempts(self._now)
        self._tokens: dict[str, AccessToken] = {}
        self._read_at = -TOKENS_SECONDS
        self._reading = asyncio.Lock()
        self._connected: dict[object, tuple[str, Close]] = {}
        self._is_stopped = False
        self._shares: frozenset[Share] = frozenset()

    def check_place(self, headers: Headers) -> None:
        """Refuse a request that was sent to another name, or by another page; RefusedError."""
        if headers.get("host", "").lower() not in self._hosts:
            told = "this server does not go by that name; see `acphold serve`"
            raise RefusedError(421, told, attempt="sent to a name that is not ours")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            raise OtherOriginError

    async def admit(
        self,
        headers: Headers,
        subprotocols: Iterable[str] = (),
        connection: Connection | None = None,
        came: Came = UNKNOWN,
    ) -> Admitted:
        """Who sent these headers, on this connection of our server; raises RefusedError, one and
        the same for each wrong token."""
        self.check_place(headers)
        given = _token_in(headers, subprotocols)
        peer = "" if connection is None else connection.peer
        token = await self._token(given, peer)
        if token is None:
            if self._wrong.are_too_many(peer):
                told = "too many wrong tokens; try again in a minute"
                raise RefusedError(429, told, attempt="too many wrong tokens")
            if given:
                self._wrong.add(peer)
            over = self._tokens.get(token_id(given))
            if over is not None and not over.is_of(given):
                over = None
            attempt = "a token that is over" if over else "a wrong token" if given else "no token"
            raise RefusedError(401, self.wanted, self.realm, attempt=attempt, token=over)
        try:
            if connection is not None:
                connection.known_as(token.id)
        except TooManyError as exc:
            attempt = "too many connections"
            raise RefusedError(429, str(exc), attempt=attempt, token=token) from None
        await self._note_use(token)
        who = Principal(
            name=token.name,
            scopes=frozenset(token.scopes),
            session_id=token.session_id,
            tenant=token.tenant,
            is_here=False,
            note=partial(self.audit.note, **self._who(token, headers, came)),
            refused=partial(self.audit.refuse, **self._who(token, headers, came)),
        )
        return Admitted(who, token.id)

    def note_refusal(self, refused: RefusedError, headers: Headers, came: Came) -> None:
        """Write down whose request it was that was refused, if it should not have been made."""
        if refused.attempt:
            who = self._who(refused.token, headers, came)
            self.audit.refuse(refused.attempt, None, **who)

    def _who(self, token: AccessToken | None, headers: Headers, came: Came) -> dict[str, str]:
        """Somebody as the audit log has them."""
        return {
            "name": "" if token is None else token.name,
            "token": "" if token is None else token.id,
            "address": self.address(headers, came),
            "transport": came.transport,
        }

    def address(self, headers: Headers, came: Came) -> str:
        """Where a request comes from: of what a proxy of ours has handed on, what that one says."""
        if came.address in self._proxies:
            with suppress(ValueError):  # what stands before that anybody may have written
                forwarded = headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
                return str(ipaddress.ip_address(forwarded))
        return came.address

    async def grant(
        self,
        name: str,
        scopes: tuple[Scope, ...],
        expires_at: int | None = None,
        tenant: str | None = None,
    ) -> str:
        """A new token."""
        text, token = new_token(name, scopes, now_ms(), expires_at=expires_at, tenant=tenant)
        await self._access.keep_access_token(token)
        return text

    async def good(self, id_: str) -> AccessToken | None:
        """The token of this id, as it is now; None where it opens nothing any more."""
        return (await self.good_among([id_])).get(id_)

    async def good_among(self, ids: Iterable[str]) -> dict[str, AccessToken]:
        """Those of these that open something, by their ids, as they are now."""
        await self._look()
        found = [token for id_ in ids if (token := self._tokens.get(id_)) is not None]
        now = now_ms()
        return {token.id: token for token in found if token.is_good(now)}

    def connected(self, admitted: Admitted, close: Close) -> object:
        """Note a connection that lasts: `close` is called when its token opens nothing any more,
        and when this server ends.

        Returns what `disconnected` takes.
        """
        if self._is_stopped:
            close(GOING_AWAY)
        key = object()
        self._connected[key] = (admitted.token, close)
        return key

    def disconnected(self, key: object) -> None:
        """It has ended."""
        self._connected.pop(key, None)

    def stop(self) -> None:
        """Close what lasts, and what of that kind still comes: a server that ends waits for it."""
        self._is_stopped = True
        for _, close in tuple(self._connected.values()):
            close(GOING_AWAY)

    async def look(self) -> None:
        """Close the connections whose tokens were revoked, or are over; asked every TOKENS_SECONDS.

        So are those of a tenant with whom less is shared than before: they come back to what is
        left. While the journal cannot be read, who is connected stays.
        """
        if not self._connected:
            return
        before = self._shares
        try:
            await self._look()
            is_parted = any(token.tenant is not None for token in self._tokens.values())
            self._shares = frozenset(await self._access.shares() if is_parted else ())
        except JournalError as exc:
            log.warning("tokens cannot be looked at: %s", exc)
            return
        now = now_ms()
        less = {it.tenant for it in before if not self._shares & {it, replace(it, prompts=True)}}
        for token_id_, close in tuple(self._connected.values()):
            token = self._tokens.get(token_id_)
            is_good = token is not None and token.is_good(now)
            if token is None or not is_good or token.tenant in less:
                close(POLICY)
            if not is_good and self._connections is not None:
                self._connections.send_away(token_id_)

    async def _token(self, given: str, peer: str) -> AccessToken | None:
        """The token that was given; None for a wrong one. RefusedError while none can be read.

        One that was good a moment ago is good; one that is not known may just have been made. Who
        has guessed too often has the journal read for nothing but the first reason.
        """
        is_old = self._now() >= self._read_at + TOKENS_SECONDS
        if is_old or (token_id(given) not in self._tokens and not self._wrong.are_too_many(peer)):
            try:
                await self._look()
            except JournalError as exc:
                log.warning("tokens cannot be looked at: %s", exc)
                told = "who you are cannot be looked up just now; try again"
                raise RefusedError(503, told) from None
        token = self._tokens.get(token_id(given))
        is_right = token is not None and token.is_of(given) and token.is_good(now_ms())
        return token if is_right else None

    async def _look(self) -> None:
        """Read the tokens; those who ask at the same time are told by one reading."""
        asked = self._now()
        async with self._reading:
            if self._read_at < asked:
                began = self._now()
                self._tokens = {token.id: token for token in await self._access.access_tokens()}
                self._read_at = began

    async def _note_use(self, token: AccessToken) -> None:
        now = now_ms()
        if token.used_at is not None and now < token.used_at + NOTE_MS:
            return
        try:
            await self._access.keep_access_token(replace(token, used_at=now))
        except JournalError as exc:  # it is for people alone
            log.info("the use of a token was not noted: %s", exc)


def _token_in(headers: Headers, subprotocols: Iterable[str]) -> str:
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    for offered in subprotocols:
        if offered.startswith(TOKEN_SUBPROTOCOL):
            return offered.removeprefix(TOKEN_SUBPROTOCOL)
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return ""  # a cookie is sent for pages of every other port of this host, too
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value
