"""Admission: checks the address a request was sent to, the page it comes from, and its token.

Other users of the machine and every page in a browser can also reach a port on loopback, so a
loopback address proves nothing:

- `Host` must be a name of this server: otherwise a page whose name was made to resolve to us (DNS
  rebinding) would share our origin;
- `Origin`, which only browsers send, must be our own (cross-site WebSocket hijacking);
- a token is required, as `Authorization: Bearer` or, for pages of other programs that cannot send
  that header, among the subprotocols of a WebSocket.

Our own page has no token, but the two halves of a browser session (`journal.access`): its own half,
in `Acphold-Page` or among the subprotocols, and the cookie. Cookies ignore ports: any other server
on this host receives ours and can set others beside it. So a cookie alone opens nothing and
identifies nobody; the page's half does, and one of the cookies has to belong to it.
"""

# See docs/decisions.md, 20.

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.tasks import timeout
from acp_wire.transports.known_servers import REALM
from acphold import errors
from acphold.conversation.history.entries import iso
from acphold.journal.access import (
    BROWSER,
    Access,
    AccessToken,
    Scope,
    describe_held,
    new_browser,
    new_token,
    token_id,
)
from acphold.journal.owners import clock
from acphold.live.server.principals import Principal
from acphold.web import bounds
from acphold.web.audit import Actor, Audit
from acphold.web.connections import GOING_AWAY, POLICY, Connections, Headers
from acphold.web.exchange import HttpExchange, RefusedError

log = logging.getLogger(__name__)

PAGE: Final = "acphold-page"
"""The header with the page's half of a browser's session."""

PAGE_SUBPROTOCOL: Final = "acphold-page."
"""Prefix of the subprotocol with the page's half: a page cannot set headers on a WebSocket."""

SUBPROTOCOL: Final = "acphold"
"""The subprotocol agreed on with a client that offers it beside TOKEN_SUBPROTOCOL."""

TOKEN_SUBPROTOCOL: Final = "acphold-token."
"""Prefix of the subprotocol that holds a token."""

OTHER_ORIGIN: Final = "pages of other origins cannot use this server"

FOREIGN_COOKIE: Final = (
    "another page on this host replaced the cookie of this page; pair this device again"
)


class Shown(Struct, frozen=True):
    """Credentials of a request: a token, or a page's half, its `origin` and its cookies."""

    text: str = ""
    origin: str = ""
    cookies: tuple[str, ...] = ()

    def is_of(self, token: AccessToken) -> bool:
        """Return True if these credentials are complete for this token."""
        return self.is_known_to(token) and (not self.origin or self.cookie_of(token) is not None)

    def is_known_to(self, token: AccessToken) -> bool:
        """Return True if the token, or the page's half, matches, whatever the cookies are."""
        if self.origin:
            return token.is_page_of(self.text, self.origin)
        return token.is_of(self.text)

    def cookie_of(self, token: AccessToken) -> str | None:
        """Return the cookie that belongs to the page's half."""
        return next((it for it in self.cookies if token.is_cookie_of(it)), None)


class Admitted(Struct, frozen=True):
    """An admitted client and its token."""

    principal: Principal
    token: str
    cookie: str = ""
    """The browser's cookie."""


Close = Callable[[int], object]
"""Closes a connection with a WebSocket close code (RFC 6455, 7.4.1)."""


class Attempts:
    """Limits on wrong tokens: so many a minute per address, and for all together.

    Tokens are too long to guess; this only keeps guessing from costing others anything. An address
    shared by many clients (this machine, a proxy) counts only toward the limit for all: otherwise a
    stranger behind it could lock the owner out. `now` is a clock in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._wrong: deque[tuple[float, str]] = deque()

    def are_too_many(self, peer: str) -> bool:
        """Return True if this address is over a limit; "" is an address shared by many."""
        now = self._now()
        while self._wrong and now >= self._wrong[0][0] + bounds.GUESS_SECONDS:
            self._wrong.popleft()
        if len(self._wrong) >= bounds.GUESSES_OF_ALL:
            return True
        return bool(peer) and sum(each == peer for _, each in self._wrong) >= bounds.GUESSES_OF_ONE

    def add(self, peer: str) -> None:
        """Count one wrong guess."""
        if len(self._wrong) < bounds.GUESSES_OF_ALL:
            self._wrong.append((self._now(), peer))


def principal_of(token: AccessToken) -> Principal:
    """Return whom a token lets in; nothing that they do is recorded yet."""
    return Principal(
        name=token.name,
        scopes=frozenset(token.scopes) - {BROWSER},
        session_id=token.session_id,
        tenant=token.tenant,
        sees_all=token.tenant is None and token.session_id is None,
        is_here=False,
    )


class Gate:
    """Admits requests; see the module. `origins` are this server's own, as `https://host:port`.

    `connections` are those of our own server. `proxies` are the addresses of the proxies in front,
    trusted to say where a request comes from. Construct inside a running loop.
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
        self._seen: str | None = None
        """The position up to which `_tokens` has all changes."""
        self._parted = set[str]()
        """The tenants with whom less is shared, by changes that `check` has not seen."""
        self._read_at = -bounds.TOKENS_SECONDS
        self._reading = asyncio.Lock()
        self._connected: dict[object, tuple[str, Close]] = {}
        self._awake_at = inf  # until `keep_awake` is called for the first time
        self._noted = asyncio.Event()
        self._is_stopped = False
        self._is_held = False
        self._cleared_at: float | None = None
        self._moved_at: float | None = None

    def check_place(self, headers: Headers) -> None:
        """Refuse a request sent to another name or by another page; raises RefusedError."""
        if headers.get("host", "").lower() not in self._hosts:
            reason = (
                "this server does not answer to that host name; see --url in `acphold help serve`"
            )
            raise RefusedError(421, reason, attempt="sent to a name that is not ours")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            raise RefusedError(403, OTHER_ORIGIN, attempt="a page of another origin")

    async def admit(self, exchange: HttpExchange) -> Admitted:
        """Return the client that sent this request.

        Raises RefusedError, the same one for every wrong token.
        """
        self.check_place(exchange.headers)
        shown, peer = self._credentials(exchange), exchange.peer
        token = await self._token(token_id(shown.text), peer)
        if token is None or not shown.is_of(token) or not token.is_good(self.now_ms()):
            if self._wrong.are_too_many(peer):
                reason = "too many wrong tokens; try again in a minute"
                raise RefusedError(429, reason, attempt="too many wrong tokens")
            if shown.text:
                self._wrong.add(peer)
            raise self._unknown(shown)
        if self._connections is not None and exchange.connection is not None:
            why = self._connections.count_for(exchange.connection, token.id)
            if why:
                raise RefusedError(429, why, attempt="too many connections", token=token)
        now = self.now_ms()
        # Also if the clock was set back: else it would count as used until then.
        if token.used_at is None or not 0 <= now - token.used_at < bounds.TOKEN_NOTE_MS:
            try:
                await self._access.keep_token(replace(token, used_at=now))
            except errors.JournalError as exc:  # the note is only informative
                log.info("cannot store when a token was last used: %s", exc)
        actor = self.actor(exchange, token)
        who = replace(
            principal_of(token),
            note=partial(self.audit.note, who=actor),
            refused=partial(self.audit.refuse, who=actor),
        )
        return Admitted(who, token.id, shown.cookie_of(token) or "")

    def _unknown(self, shown: Shown) -> RefusedError:
        """Return the refusal for these credentials; it tells a guesser nothing."""
        known = self._tokens.get(token_id(shown.text))
        if known is None or not shown.is_known_to(known):
            attempt = "a wrong token" if shown.text else "no token"
            return RefusedError(401, self.wanted, self.realm, attempt=attempt)
        if known.is_good(self.now_ms()):
            attempt = "a cookie of another page"
            return RefusedError(401, FOREIGN_COOKIE, self.realm, attempt=attempt, token=known)
        what = "access of this device" if known.is_browser else "this token"
        if not known.is_over(self.now_ms()):  # it is held
            why = (
                f"{what} opens nothing in this copy of the journal until whoever runs the server "
                "accepts it: `acphold access keep`"
            )
        else:
            ended = "expired" if known.revoked_at is None else "was revoked"
            at = known.ends_at if known.revoked_at is None else known.revoked_at
            why = f"{what} {ended} on {iso(at or 0)[:16].replace('T', ' at ')} UTC"
        return RefusedError(401, why, self.realm, attempt="a token that is over", token=known)

    def _credentials(self, exchange: HttpExchange) -> Shown:
        headers = exchange.headers
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return Shown(credentials.strip())
        page = headers.get(PAGE, "")
        for offered in exchange.subprotocols:
            if offered.startswith(TOKEN_SUBPROTOCOL):
                return Shown(offered.removeprefix(TOKEN_SUBPROTOCOL))
            if offered.startswith(PAGE_SUBPROTOCOL):
                page = offered.removeprefix(PAGE_SUBPROTOCOL)
        origin = self.origin_of(exchange)
        if not page or origin is None or not _is_of_our_page(headers, origin):
            return Shown()
        cookies = [each.strip().partition("=") for each in headers.get("cookie", "").split(";")]
        ours = [value for name, _, value in cookies if name == cookie_name(origin)]
        return Shown(page, origin, tuple(ours[: bounds.TRIED_COOKIES]))

    def origin_of(self, exchange: HttpExchange) -> str | None:
        """Return the origin of ours that a request was sent to."""
        host = exchange.headers.get("host", "").lower()
        return next((it for it in self._origins if urlsplit(it).netloc == host), None)

    def note_refusal(self, refused: RefusedError, exchange: HttpExchange) -> None:
        """Log a refused request and its sender, unless it was a mere mistake."""
        if refused.attempt:
            self.audit.refuse(refused.attempt, None, who=self.actor(exchange, refused.token))

    def actor(self, exchange: HttpExchange, token: AccessToken | None) -> Actor:
        """Return the sender of a request for the audit log."""
        client = exchange.scope.get("client")
        address = str(client[0]) if client else ""
        if address in self._proxies:  # it reports the client's address
            with suppress(ValueError):  # anybody may have written the earlier parts
                forwarded = exchange.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
                address = str(ipaddress.ip_address(forwarded))
        transport = "websocket" if exchange.is_socket else "http"
        if token is None:
            return Actor(address=address, transport=transport)
        return Actor(token.name, token.id, address, transport)

    async def grant(
        self,
        name: str,
        scopes: tuple[Scope, ...],
        expires_at: int | None = None,
        tenant: str | None = None,
    ) -> str:
        """Create and return a token."""
        text, token = new_token(name, scopes, self.now_ms(), expires_at=expires_at, tenant=tenant)
        await self._access.keep_token(token)
        return text

    async def grant_browser(
        self,
        name: str,
        scopes: tuple[Scope, ...],
        origin: str,
        expires_at: int | None = None,
        tenant: str | None = None,
    ) -> tuple[str, str]:
        """Create a browser session; return the page's half and the cookie."""
        page, cookie, token = new_browser(
            name, scopes, self.now_ms(), origin, expires_at=expires_at, tenant=tenant
        )
        await self._access.keep_token(token)
        return page, cookie

    async def sign_out(self, exchange: HttpExchange) -> AccessToken | None:
        """End the session that this page's half belongs to, whatever its cookie is."""
        shown = self._credentials(exchange)
        if not shown.origin:
            return None
        token = await self._token(token_id(shown.text), exchange.peer)
        if token is None or not shown.is_known_to(token):
            self._wrong.add(exchange.peer)
            return None
        if not token.is_good(self.now_ms()):
            return None
        await self._access.keep_token(replace(token, revoked_at=self.now_ms()))
        return token

    def now_ms(self) -> int:
        """As in `Access`."""
        return self._access.now_ms()

    async def tokens_among(self, ids: Iterable[str]) -> dict[str, AccessToken]:
        """Return the tokens with these ids, valid or not, by id."""
        await self._read_tokens()
        return {id_: self._tokens[id_] for id_ in ids if id_ in self._tokens}

    @contextmanager
    def connected(self, admitted: Admitted, close: Close) -> Iterator[None]:
        """Have a lasting connection for the block.

        `close` is called when its token becomes invalid, and when this server ends.
        """
        if self._is_stopped:
            close(GOING_AWAY)
        if not self._connected:
            self._parted.clear()
        key = object()
        self._connected[key] = (admitted.token, close)
        try:
            yield
        finally:
            del self._connected[key]

    async def _hold(self) -> None:
        """Hold access that nobody has confirmed in this journal.

        While clients are served, or after a standby has taken over, the journal may turn out to
        have lost nothing. So nobody is sent away at once: raises JournalBusyError meanwhile.
        """
        is_current = await self._access.is_current()
        if is_current:
            self._moved_at = None
            return
        now = self._now()
        if self._moved_at is None:
            self._moved_at = now
        may_be_vouched_for = self._tokens or is_current is None
        if may_be_vouched_for and now < self._moved_at + bounds.VOUCH_SECONDS:
            raise errors.JournalBusyError("nobody knows yet if the journal has lost entries")
        await self._access.hold()

    async def report_held(self) -> None:
        """Say once, at the start and when it happens, that tokens and shares are held; now and then
        forget tokens that ended long ago."""
        try:
            await self._hold()
            words = await describe_held(self._access)
            now = self._now()
            if self._cleared_at is None or now >= self._cleared_at + bounds.FORGET_SECONDS:
                await self._access.forget_ended()
                self._cleared_at = now
        except errors.JournalError as exc:
            log.warning("cannot read the tokens: %s", exc)
            return
        if words and not self._is_held:
            log.warning("%s", words)
        self._is_held = bool(words)

    def stop(self) -> None:
        """Close lasting connections and refuse new ones: the server waits for them when it ends."""
        self._is_stopped = True
        for _, close in tuple(self._connected.values()):
            close(GOING_AWAY)

    async def check(self) -> bool:
        """Close connections whose tokens were revoked or have expired; called every TOKENS_SECONDS.
        Return True unless the tokens could not be read.

        Connections of a tenant with whom less is shared than before are closed too: they reconnect
        to what is left. While the journal cannot be read, connected clients stay.
        """
        if not self._connected:
            return True
        try:
            await self._read_tokens()
        except errors.JournalError as exc:
            log.warning("cannot read the tokens: %s", exc)
            return False
        now, less, self._parted = self.now_ms(), self._parted, set()
        for token_id_, close in tuple(self._connected.values()):
            token = self._tokens.get(token_id_)
            is_good = token is not None and token.is_good(now)
            if token is None or not is_good or token.tenant in less:
                close(POLICY)
            if not is_good and self._connections is not None:
                self._connections.send_away(token_id_)
        return True

    @property
    def has_stood_still(self) -> bool:
        """True from when this process goes on after it was stopped, or its machine slept, until
        the tokens were read: what came meanwhile may be from one that was revoked. If they cannot
        be read, until `keep_awake` gives up."""
        return clock() - self._awake_at > bounds.STOOD_STILL_SECONDS

    async def until_read(self) -> None:
        """Wait while `has_stood_still`."""
        while self.has_stood_still:
            await self._noted.wait()

    async def keep_awake(self) -> None:
        """Note that this process runs; called every AWAKE_SECONDS.

        If it had stood still, tokens are read before. If they cannot be for UNREAD_SECONDS,
        connected clients go on unread, as whenever the journal is away.
        """
        began = clock()
        if self.has_stood_still:
            try:
                async with timeout(bounds.UNREAD_SECONDS):
                    while not await self.check():  # noqa: ASYNC110  it changes elsewhere
                        await asyncio.sleep(bounds.RETRY_SECONDS)
            except Exception:
                log.exception("connected clients go on, though the tokens cannot be read")
            if clock() - began > bounds.UNREAD_SECONDS + bounds.STOOD_STILL_SECONDS:
                return  # it has stood still again meanwhile
        self._awake_at = clock()
        self._noted.set()
        self._noted = asyncio.Event()

    async def _token(self, id_: str, peer: str) -> AccessToken | None:
        """Return the token with this id, valid or not; raises RefusedError while none can be read.

        A token that was known a moment ago still is; an unknown one may just have been made. For an
        address with too many wrong guesses, the journal is not read again to find an unknown one.
        """
        is_old = self._now() >= self._read_at + bounds.TOKENS_SECONDS or self.has_stood_still
        if is_old or (id_ not in self._tokens and not self._wrong.are_too_many(peer)):
            try:
                await self._read_tokens()
            except errors.JournalError as exc:
                log.warning("cannot read the tokens: %s", exc)
                reason = "your token cannot be checked right now; try again"
                raise RefusedError(503, reason) from None
        return self._tokens.get(id_)

    async def _read_tokens(self) -> None:
        """Read the tokens that have changed; concurrent callers share one read."""
        asked = self._now()
        async with self._reading:
            if self._read_at < asked:
                began = self._now()
                await self._follow()
                self._read_at = began

    async def _follow(self) -> None:
        """Bring the tokens up to date, by the log of changes or by reading all."""
        if self._seen is not None:
            try:
                news = await self._access.changes(self._seen)
            except errors.RewrittenError:
                news = None
            if news is not None and not news.is_all:
                if news.tokens:
                    found = {it.id: it for it in await self._access.tokens(news.tokens)}
                    for id_ in news.tokens:
                        self._tokens.pop(id_, None)
                    self._tokens |= found
                self._parted |= {*news.tenants}
                self._seen = news.last
                return
        self._seen = None
        await self._hold()
        seen = (await self._access.changes(None)).last
        self._tokens = {token.id: token for token in await self._access.tokens()}
        # Nobody knows what is not shared any more: guests connect again.
        self._parted |= {it.tenant for it in self._tokens.values() if it.tenant is not None}
        self._seen = seen


def cookie_name(origin: str) -> str:
    """Return the cookie's name for an origin of ours: servers at other ports use others."""
    parts = urlsplit(origin)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    # With __Host- neither a plain HTTP page nor another host can set it.
    return f"{'__Host-' if parts.scheme == 'https' else ''}acphold-{port}"


def _is_of_our_page(headers: Headers, origin: str) -> bool:
    """Return True if the browser says that our page sent the request.

    By `Origin`, which is ours if present (`Gate.check_place`), otherwise by the headers it adds to
    a request without one (W3C, Fetch Metadata).
    """
    site = headers.get("sec-fetch-site")
    if site is not None or "origin" in headers:
        return site in (None, "same-origin")
    # In requests to origins that browsers do not treat as secure (W3C, Secure Contexts), such as
    # plain HTTP through a proxy, they send no fetch metadata.
    parts = urlsplit(origin)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return False
    with suppress(ValueError):
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    return True
