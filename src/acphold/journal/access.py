"""Tokens: who may come over the network, and what they may; see `server.principals` for the rules.

A token is `acphold_ID_SECRET`. What is kept of it is its id and a digest of the whole, so whoever
reads the journal has none. The secret has 256 bits, so a plain SHA-256 is enough: there is nothing
that could be guessed (NIST SP 800-63B, 5.1.2.2, asks for slow hashes for fewer than 112 bits).

A browser has no token, but a session in two halves that are worth nothing alone. One is in a
cookie, which no script can read, but which each port of the host is sent, and may set; the other is
kept by the page, where the same origin alone can read it, its port included.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, Literal, Protocol, get_args

from msgspec import Struct

Scope = Literal["watch", "prompt", "answer", "manage", "node", "browser"]
"""What a token lets its holder do."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)[:-2]
"""Those that a person may have."""

NODE: Final[Scope] = "node"
"""What one of our own processes on another machine has: it says itself who comes by it."""

BROWSER: Final[Scope] = "browser"
"""What the session of a browser has beside its scopes: it is no token. See the module."""

KINDS: Final = (*SCOPES, NODE, BROWSER)
"""All that this release knows; one that a newer release knows permits nothing here."""

BROWSER_MS: Final = 30 * 24 * 3600 * 1000
"""How long a browser may stay away until its session has ended."""

PREFIX: Final = "acphold"
"""How each token begins, so that who looks for secrets finds one."""


DIGEST: Final = 32
"""Bytes of a SHA-256; a browser's session has two of them, that of the page's half first."""

KEPT_DEEDS: Final = 10_000
"""Deeds of one token, the newest: who does much takes nothing away of what others did."""

KEPT_DEEDS_MS: Final = 400 * 24 * 3600 * 1000
"""How old a deed may get."""


class AccessToken(Struct, frozen=True, kw_only=True):
    """What is kept of a token, or of a browser's session; times in ms since the epoch.

    `session_id` is the only session that it is for, None for all. It ends at `expires_at`, never
    for None; that of a browser also where that stays away. `tenant` is whose sessions there are for
    its holder; None for those of everybody.
    """

    id: str
    name: str
    digest: bytes
    scopes: tuple[Scope, ...]
    created_at: int
    session_id: str | None = None
    expires_at: int | None = None
    used_at: int | None = None
    revoked_at: int | None = None
    tenant: str | None = None

    @property
    def is_browser(self) -> bool:
        """True for the session of a browser."""
        return BROWSER in self.scopes

    @property
    def ends_at(self) -> int | None:
        """When it ends, if nobody uses it until then; None for never."""
        if not self.is_browser:
            return self.expires_at
        idle = (self.created_at if self.used_at is None else self.used_at) + BROWSER_MS
        return idle if self.expires_at is None else min(idle, self.expires_at)

    def is_good(self, now: int) -> bool:
        """Whether it opens anything at that time."""
        ends_at = self.ends_at
        return self.revoked_at is None and (ends_at is None or now < ends_at)

    def is_of(self, text: str) -> bool:
        """Whether this is the token itself; takes the same time for any other."""
        return not self.is_browser and _is_same(self.digest, _digest(text))

    def is_page_of(self, page: str, origin: str) -> bool:
        """Whether this is a browser's session, and `page` the page's half of it at this origin."""
        return self.is_browser and _is_same(self.digest[:DIGEST], _page_digest(page, origin))

    def is_cookie_of(self, cookie: str) -> bool:
        """The same of the half that is in a cookie."""
        return self.is_browser and _is_same(self.digest[DIGEST:], _digest(cookie))


class Share(Struct, frozen=True):
    """A session of somebody else's that is there for a tenant, too: to be read, or, where it
    `prompts`, to be gone on with."""

    session_id: str
    tenant: str
    prompts: bool = False


class Deed(Struct, frozen=True, kw_only=True):
    """Something that somebody did who came over the network, or what was done to tokens.

    `deed` is the method of the protocol, or a word of ours: `answer`, `code`, `pair`, `sign out`,
    `create token`, `revoke token`, `share`, `stop sharing`; `refused:` and what was wanted or
    wrong. `name` and `token` are those of the token by which they came, "" for what a command here
    did, and for a stranger. `address` is where from, `transport` by what way. Never what was said.
    """

    at: int
    deed: str
    name: str
    token: str = ""
    session_id: str | None = None
    address: str = ""
    transport: str = ""


class Access(Protocol):
    """The tokens of a journal, what was done with them, and what tenants share."""

    async def access_tokens(self) -> list[AccessToken]:
        """All of them, oldest first; also those that open nothing any more."""

    async def keep_access_token(self, token: AccessToken) -> None:
        """Add it; of one that is there, note its last use, or its end, which stays."""

    async def shares(self) -> list[Share]:
        """All of them, by session and tenant."""

    async def keep_share(self, share: Share) -> None:
        """Add it, or have it in the place of the one to this tenant; UnknownSessionError."""

    async def end_share(self, session_id: str, tenant: str) -> bool:
        """Take it away; whether there was one. It goes with its session by itself."""

    async def deeds(self, since: int, limit: int) -> list[Deed]:
        """The last of what was done since then, in ms since the epoch, oldest first."""

    async def keep_deeds(self, deeds: Sequence[Deed]) -> None:
        """Add these. Of each token, and of all, so many are kept as a person would read."""


def new_token(
    name: str,
    scopes: tuple[Scope, ...],
    now: int,
    *,
    session_id: str | None = None,
    expires_at: int | None = None,
    tenant: str | None = None,
) -> tuple[str, AccessToken]:
    """A token, which is told once, and what is kept of it."""
    id_ = os.urandom(4).hex()
    text = _text(id_)
    kept = AccessToken(
        id=id_,
        name=name,
        digest=_digest(text),
        scopes=scopes,
        created_at=now,
        session_id=session_id,
        expires_at=expires_at,
        tenant=tenant,
    )
    return text, kept


def new_browser(
    name: str,
    scopes: tuple[Scope, ...],
    now: int,
    origin: str,
    *,
    expires_at: int | None = None,
    tenant: str | None = None,
) -> tuple[str, str, AccessToken]:
    """The session of a browser at an origin: the page's half, that of the cookie, and what is kept
    of both."""
    id_ = os.urandom(4).hex()
    page, cookie = _text(id_), _text(id_)
    kept = AccessToken(
        id=id_,
        name=name,
        digest=_page_digest(page, origin) + _digest(cookie),
        scopes=(*scopes, BROWSER),
        created_at=now,
        expires_at=expires_at,
        tenant=tenant,
    )
    return page, cookie, kept


def token_id(text: str) -> str:
    """The id in a token, or in a half of a browser's session; "" for what is none."""
    words = text.split("_", 2)
    return words[1] if len(words) == 3 and words[0] == PREFIX else ""


def _text(id_: str) -> str:
    from secrets import token_urlsafe  # late, as all that brings OpenSSL

    return f"{PREFIX}_{id_}_{token_urlsafe(32)}"


def _page_digest(page: str, origin: str) -> bytes:
    return _digest(f"{origin} {page}")


def _is_same(kept: bytes, given: bytes) -> bool:
    """Compare two digests; takes the same time whatever they are."""
    from hmac import compare_digest  # late, with OpenSSL: a `wrap` has no tokens

    return compare_digest(kept, given)


def _digest(text: str) -> bytes:
    import hashlib

    return hashlib.sha256(text.encode(errors="replace")).digest()
