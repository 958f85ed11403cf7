"""Access from elsewhere: tokens, the record of their use, shares, and standing answers.

`server.principals` has the rules for what a token permits.

A token is `acphold_ID_SECRET`. The journal keeps its id and a digest of the whole, so reading the
journal gives nobody a token. The secret has 256 bits, so a plain SHA-256 is enough: it cannot be
guessed (NIST SP 800-63B, 5.1.2.2, asks for slow hashes for fewer than 112 bits).

A browser has no token. It has a session in two halves, each worthless alone. One half is in a
cookie: scripts cannot read it, but every port of the host receives it and may set it. The page
keeps the other half where only its own origin, port included, can read it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args

from msgspec import Struct
from msgspec.structs import replace

from acphold.journal import bounds

if TYPE_CHECKING:  # most processes never see a rule
    from acphold.safety.standing.decision import RuleChange, StandingRule

Scope = Literal["watch", "prompt", "answer", "manage", "rules", "files", "node", "browser"]
"""A permission that a token gives its holder."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)[:-2]
"""The scopes that a person may have."""

NODE: Final[Scope] = "node"
"""The scope of our own processes on other machines: each says on whose behalf it connects."""

BROWSER: Final[Scope] = "browser"
"""Marks the session of a browser, beside its scopes: it is no token. See the module."""

KINDS: Final = (*SCOPES, NODE, BROWSER)
"""All scopes that this release knows; a scope of a newer release permits nothing here."""

PREFIX: Final = "acphold"
"""The beginning of every token, so that scanners for secrets recognize one."""


DIGEST: Final = 32
"""Bytes of a SHA-256. A browser's session has two: first the page's half, then the cookie's."""


class AccessToken(Struct, frozen=True, kw_only=True):
    """The record of a token, or of a browser's session; times in ms since the epoch.

    `session_id` is the only session it is good for; None means all. It expires at `expires_at`;
    None means never. A browser's session also expires when the browser stays away. `tenant` limits
    the holder to the sessions of that tenant; None means everybody's. With `is_held` it opens
    nothing until a person accepts it in this journal.
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
    is_held: bool = False

    @property
    def is_browser(self) -> bool:
        """True for the session of a browser."""
        return BROWSER in self.scopes

    @property
    def ends_at(self) -> int | None:
        """The time at which it ends unless it is used before; None for never."""
        if not self.is_browser:
            return self.expires_at
        idle = (self.created_at if self.used_at is None else self.used_at) + bounds.BROWSER_MS
        return idle if self.expires_at is None else min(idle, self.expires_at)

    def is_over(self, now: int) -> bool:
        """True if it was revoked, or has expired at the time `now`."""
        ends_at = self.ends_at
        return self.revoked_at is not None or (ends_at is not None and now >= ends_at)

    def is_good(self, now: int) -> bool:
        """True if it opens anything at the time `now`."""
        return not self.is_held and not self.is_over(now)

    def is_of(self, text: str) -> bool:
        """True if `text` is this token; takes the same time for any text."""
        return not self.is_browser and _is_same(self.digest, _digest(text))

    def is_page_of(self, page: str, origin: str) -> bool:
        """True if this is a browser's session and `page` is the page's half of it at this
        origin."""
        return self.is_browser and _is_same(self.digest[:DIGEST], _page_digest(page, origin))

    def is_cookie_of(self, cookie: str) -> bool:
        """True if this is a browser's session and `cookie` is the cookie's half of it."""
        return self.is_browser and _is_same(self.digest[DIGEST:], _digest(cookie))


class Share(Struct, frozen=True, omit_defaults=True):
    """A session shared with another tenant: to read, or, with `prompts`, to continue as well. With
    `is_held` it does not count until a person accepts it in this journal."""

    session_id: str
    tenant: str
    prompts: bool = False
    is_held: bool = False


class Deed(Struct, frozen=True, kw_only=True):
    """Something that was done over the network, or to tokens.

    `deed` is the method of the protocol, or a word of ours: `answer`, `code`, `pair`, `sign out`,
    `create token`, `keep tokens`, `revoke token`, `forget token`, `share`, `stop sharing`, `answer
    by rule`, which `name` says; or `refused:` and the reason. `name` and `token` are those of the
    token that was used; both are "" for commands on this machine and for strangers. `address` is
    where the request came from, `transport` how it came. The text of prompts and answers is never
    kept.
    """

    at: int
    deed: str
    name: str
    token: str = ""
    session_id: str | None = None
    address: str = ""
    transport: str = ""


class AccessChanges(Struct, frozen=True):
    """The ids of the `tokens` that are new, changed or deleted, and the `tenants` with whom less is
    shared; if it `is_all`, anything may be different. `last` is the position to continue at."""

    last: str
    tokens: Sequence[str] = ()
    tenants: Collection[str] = ()
    is_all: bool = False

    @classmethod
    def of(cls, found: Sequence[tuple[str, str]], last: str, is_more: bool) -> AccessChanges:
        """Return the changes in rows of the log, each a kind and a subject."""
        if is_more or any(kind == "all" for kind, _ in found):
            return cls(last, is_all=True)
        by_kind = {of: [it for kind, it in found if kind == of] for of in ("token", "tenant")}
        return cls(last, by_kind["token"], frozenset(by_kind["tenant"]))


class Access(Protocol):
    """The tokens of a journal, what was done with them, and what tenants share."""

    def now_ms(self) -> int:
        """As in `Journal`."""

    async def changes(self, after: str | None) -> AccessChanges:
        """Return what has changed since the position `after`; for None, nothing yet. Raises
        RewrittenError as `Journal.changes` does: then read all again."""

    async def is_current(self) -> bool | None:
        """True if there is nothing to `hold`; None if it is not known yet: a standby has taken
        over, and an owner of sessions may say within seconds that nothing was lost."""

    async def hold(self) -> object:
        """Hold the tokens and shares that nobody has made or accepted in this journal, as in a copy
        of another; whatever adds one does the same first."""

    async def accept(self) -> None:
        """Make the tokens and shares good that are held."""

    async def held(self) -> tuple[int, int]:
        """The numbers of the tokens and of the shares that are held; tokens that are over do not
        count."""

    async def tokens(self, ids: Sequence[str] | None = None) -> list[AccessToken]:
        """All tokens, or those with these ids, oldest first, including those that open nothing any
        more."""

    async def keep_token(self, token: AccessToken) -> None:
        """Add a token, or note its last use or its end if it is known; an end is never taken
        back."""

    async def forget_ended(self) -> None:
        """Delete tokens that ended ENDED_TOKEN_MS ago, a deed each, and old rows of the log of
        changes."""

    async def shares(self) -> list[Share]:
        """All shares, ordered by session and tenant."""

    async def keep_share(self, share: Share) -> None:
        """Add a share, replacing an earlier one to the same tenant; raises UnknownSessionError."""

    async def end_share(self, session_id: str, tenant: str) -> bool:
        """Stop sharing; False if it was not shared. Deleting a session ends its shares."""

    async def deeds(self, since: int, limit: int) -> list[Deed]:
        """The last `limit` deeds since `since` (ms since the epoch), oldest first."""

    async def keep_deeds(self, deeds: Sequence[Deed]) -> None:
        """Add deeds, and forget those beyond KEPT_DEEDS and KEPT_DEEDS_MS of `journal.bounds`."""

    async def rules(self, person: str | None) -> list[StandingRule]:
        """The standing answers of a person, oldest first, including those that have ended; with
        None, of everybody."""

    async def add_rule(self, rule: StandingRule) -> StandingRule:
        """Add a rule of its person; return it with its number, which no other one ever had."""

    async def change_rules(
        self, person: str, numbers: Collection[int] | None, change: RuleChange
    ) -> list[StandingRule]:
        """Change these rules of a person, or all; return those that were found, as they are now."""


def new_token(
    name: str,
    scopes: tuple[Scope, ...],
    now: int,
    *,
    session_id: str | None = None,
    expires_at: int | None = None,
    tenant: str | None = None,
) -> tuple[str, AccessToken]:
    """Make a token: its text, which is told once, and the record to keep."""
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
    """Make a browser's session at an origin: the page's half, the cookie's half, and the record to
    keep."""
    _, kept = new_token(name, (*scopes, BROWSER), now, expires_at=expires_at, tenant=tenant)
    page, cookie = _text(kept.id), _text(kept.id)
    digest = _page_digest(page, origin) + _digest(cookie)
    return page, cookie, replace(kept, digest=digest)


async def describe_held(access: Access) -> str:
    """Return how many tokens and shares are held, why, and what to do; "" if none is."""
    counts = zip(await access.held(), ("token", "share"), strict=True)
    found = " and ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in counts if count)
    return found and (
        f"{found} of this journal open nothing: it was copied or restored, or has lost entries, "
        "since they were made. `acphold access list` and `acphold access share` show them, and "
        "`acphold access keep` makes them good again"
    )


def token_id(text: str) -> str:
    """The id in a token, or in a half of a browser's session; "" if `text` is neither."""
    words = text.split("_", 2)
    return words[1] if len(words) == 3 and words[0] == PREFIX else ""


def _text(id_: str) -> str:
    from secrets import token_urlsafe  # late, like everything that loads OpenSSL

    return f"{PREFIX}_{id_}_{token_urlsafe(32)}"


def _page_digest(page: str, origin: str) -> bytes:
    return _digest(f"{origin} {page}")


def _is_same(kept: bytes, given: bytes) -> bool:
    """Compare two digests, in the same time whatever they are."""
    from hmac import compare_digest  # late, with OpenSSL: a `wrap` has no tokens

    return compare_digest(kept, given)


def _digest(text: str) -> bytes:
    import hashlib

    return hashlib.sha256(text.encode(errors="replace")).digest()
