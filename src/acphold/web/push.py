"""Web Push: a message encrypted, signed and sent, and the browsers to notify with our signing key.

The address comes from a browser, so it may be anybody's: it is resolved once, and connected to only
if all its addresses are public. No redirect is followed, and nothing of an answer is read but its
status.

The browsers, the key, and the questions that each browser shows are kept in a file that only this
user can read, in the user's state folder, one for each journal: it is useless without the tokens in
that journal, whose ids it stores. A restarted server withdraws its notices by it.

The encryption library is imported late: a `serve` with no open page saves its 8 MiB.

Sources: RFC 8030 (Web Push: a TTL, a Topic of 32 characters), RFC 8188 and 8291 (encryption), RFC
8292 (VAPID: a signature is valid for a day at most). Beyond these:

    Apple      each push shows something, or the subscription ends; a contact that is not at
               localhost (webkit.org/blog/12945, github.com/web-push-libs/web-push/issues/947)
    Google     the same, or Chrome shows a notice (github.com/firebase/firebase-js-sdk/issues/3868)
    Mozilla    2847 bytes of text for Android (github.com/bpolaszek/webpush-bundle/issues/48)
    Microsoft  a TTL above 0; 406 means too fast (github.com/web-push-libs/pywebpush/issues/162)
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from acp_wire.state_folder import write_private
from acp_wire.tasks import timeout
from acp_wire.workspace.threads import Threads
from acphold.journal_location import belongings
from acphold.web import bounds
from acphold.web.exchange import RefusedError

if TYPE_CHECKING:
    import ssl

    from cryptography.hazmat.primitives.asymmetric import ec

log = logging.getLogger(__name__)

POINT_BYTES: Final = 65
SECRET_BYTES: Final = 16
"""Bytes of a browser's key, an uncompressed point of P-256, and of its secret (RFC 8291, 3)."""

PORT: Final = 443

_WITH_IPV4_AT_THE_END: Final = (
    ipaddress.IPv6Network("::/96"),  # IPv4-compatible
    ipaddress.IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated (RFC 6052)
    ipaddress.IPv6Network("64:ff9b::/96"),  # NAT64 (RFC 6052)
)
_PRIVATE: Final = (
    ipaddress.IPv6Network("64:ff9b:1::/48"),  # NAT64 of a network's own (RFC 8215)
    ipaddress.IPv6Network("fec0::/10"),
)


class BrowserKeys(Struct, frozen=True):
    """The key and the secret of a browser: base64url without padding."""

    p256dh: str
    auth: str


class Subscription(Struct, frozen=True):
    """The address and keys of a browser, as it tells them (W3C, Push API)."""

    endpoint: str
    keys: BrowserKeys


class Delivery(Struct, frozen=True):
    """The treatment of a message by a push service: for an offline device it keeps the later of two
    of one topic (at most 32 characters of base64url), for so many seconds (RFC 8030, 5)."""

    topic: str
    seconds: int
    urgency: Literal["normal", "high"]


WAITING: Final = Delivery("acphold-waiting", bounds.PUSH_TTL_SECONDS, "high")


class Order(Struct, frozen=True):
    """A message to send: `key` signs it, `payload` is what the browser gets."""

    to: Subscription
    payload: str
    key: str
    subject: str
    delivery: Delivery = WAITING


class PushOutcome(Struct, frozen=True):
    """The result of sending: the HTTP status, 0 if there was no answer, and the reason; and the
    seconds after which the service wants to be asked again, if it said so."""

    status: int = 0
    why: str = ""
    retry_after: int = 0

    @property
    def reason(self) -> str:
        """The reason for which it was not accepted."""
        return self.why or f"HTTP {self.status}"

    @property
    def pause(self) -> float:
        """Seconds until a message that was not accepted is sent again."""
        return max(bounds.NOTICE_RETRY_SECONDS, min(self.retry_after, bounds.DONE_SECONDS))


def validate(found: Subscription) -> Subscription:
    """Return a subscription from a browser if it is valid; raises RefusedError.

    Its address may be anybody's: where the name resolves to is checked by `send`.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    if len(found.endpoint) > bounds.ENDPOINT_CHARACTERS:
        raise RefusedError(400, "the endpoint is too long")
    try:
        parts = urlsplit(found.endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise RefusedError(400, "the endpoint is not a URL") from None
    if parts.scheme != "https" or not host or parts.username is not None or port not in (None, 443):
        raise RefusedError(400, "the endpoint is not an https address")
    with suppress(ValueError):
        ipaddress.ip_address(host)
        host = ""  # an address is no name
    if not host.isascii() or "." not in host:
        raise RefusedError(400, "the endpoint has no host name of a push service")
    try:
        point = decode_base64(found.keys.p256dh)
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        secret = decode_base64(found.keys.auth)
    except (ValueError, binascii.Error):
        raise RefusedError(400, "the keys are not those of P-256") from None
    if len(point) != POINT_BYTES or len(secret) != SECRET_BYTES:
        raise RefusedError(400, "the keys have the wrong length")
    return found


def new_key() -> str:
    """Return a new signing key, as PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public_key(pem: str) -> str:
    """Return the public key for browsers: base64url of the point."""
    return _point(_private(pem))


def headers(pem: str, endpoint: str, subject: str, delivery: Delivery = WAITING) -> dict[str, str]:
    """Return the headers of a message to this address; `subject` is our contact address."""
    import jwt

    key, parts = _private(pem), urlsplit(endpoint)
    claims = {
        "aud": f"{parts.scheme}://{parts.netloc}",
        "exp": int(time.time()) + bounds.PUSH_SIGNED_SECONDS,
        "sub": subject,
    }
    return {
        "Authorization": f"vapid t={jwt.encode(claims, key, 'ES256')},k={_point(key)}",
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(delivery.seconds),
        "Topic": delivery.topic,
        "Urgency": delivery.urgency,
    }


def encrypt(subscription: Subscription, payload: bytes) -> bytes:
    """Return the body of a message, encrypted for that browser."""
    import http_ece
    from cryptography.hazmat.primitives.asymmetric import ec

    body: bytes = http_ece.encrypt(
        payload,
        private_key=ec.generate_private_key(ec.SECP256R1()),
        dh=decode_base64(subscription.keys.p256dh),
        auth_secret=decode_base64(subscription.keys.auth),
        version="aes128gcm",
    )
    return body


def decode_base64(text: str) -> bytes:
    """Decode base64url, padded or not; raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _private(pem: str) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(pem.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "new_key makes only these"
    return key


def _point(key: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return base64.urlsafe_b64encode(point).rstrip(b"=").decode()


def is_public(address: str) -> bool:
    """Return True for an address of the public network, including one embedded in another."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return found.is_global and not found.is_multicast
    inside = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
    if any(found in network for network in _WITH_IPV4_AT_THE_END):
        inside.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
    if not all(is_public(str(it)) for it in inside if it is not None):
        return False
    if found.ipv4_mapped is not None or found.sixtofour is not None:
        return True  # all of 6to4 is private to Python 3.11.2
    is_private = any(found in network for network in _PRIVATE)
    return found.is_global and not found.is_multicast and not is_private


async def send(
    order: Order,
    may: Callable[[str], bool] = is_public,
    port: int = PORT,
    verify: ssl.SSLContext | bool = True,
) -> PushOutcome:
    """Send one message; never raises for errors of others.

    Blocks while the name is looked up, so it runs in a thread: see `PushSender`. `may` says which
    addresses may be connected to; `verify` has the certificates to trust instead of the usual ones.
    """
    import httpx2  # late: only a `serve` with something to send needs it

    host = urlsplit(order.to.endpoint).hostname or ""
    try:
        async with timeout(bounds.PUSH_SECONDS):
            # Not by the loop: at its end it would wait for a name server that does not answer.
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [str(it[4][0]) for it in found]
            if not addresses or not all(map(may, addresses)):
                return PushOutcome(0, f"{host} is not on the public network")
            # Connect to the address that was checked: the name may resolve to another the next
            # time.
            address = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
            url = httpx2.URL(order.to.endpoint).copy_with(host=address.strip("[]"), port=port)
            body = encrypt(order.to, order.payload.encode())
            said = headers(order.key, order.to.endpoint, order.subject, order.delivery)
            said["Host"] = host
            async with (
                httpx2.AsyncClient(
                    verify=verify, trust_env=False, timeout=bounds.PUSH_SECONDS
                ) as http,
                http.stream(
                    "POST", url, content=body, headers=said, extensions={"sni_hostname": host}
                ) as answer,
            ):
                after = answer.headers.get("Retry-After", "")
                seconds = int(after) if after.isdecimal() and len(after) < 8 else 0
                return PushOutcome(answer.status_code, retry_after=seconds)
    except TimeoutError:
        return PushOutcome(0, f"{host} does not answer")
    except (OSError, ValueError, httpx2.HTTPError, httpx2.InvalidURL) as exc:
        return PushOutcome(0, f"{host}: {type(exc).__name__}: {exc}")


class PushSender:
    """Sends messages in threads: encryption and HTTP slow down nothing else.

    A thread that hangs in a look-up keeps nobody waiting, not even the exit.
    """

    def __init__(self) -> None:
        self._threads = Threads(bounds.PUSHES_AT_ONCE)

    async def send(self, order: Order) -> PushOutcome:
        """Send one message; never raises for errors of others."""
        try:
            async with timeout(bounds.PUSH_PATIENCE_SECONDS):
                return await self._threads.run(lambda: asyncio.run(send(order)))
        except TimeoutError:
            return PushOutcome(0, "the push service does not answer")
        except (RuntimeError, OSError) as exc:  # no thread, or no file descriptor, is left
            return PushOutcome(0, f"notifications cannot be sent: {exc}")


class Wishes(Struct, frozen=True):
    """The wishes of a browser: to be told the last words of a turn, too, and of the end of the
    next turn in these `sessions`, whoever began it."""

    words: bool = False
    sessions: frozenset[str] = frozenset()


class _SubscriptionFile(Struct):
    key: str = ""
    browsers: dict[str, Subscription] = {}
    told: dict[str, frozenset[str]] = {}
    wishes: dict[str, Wishes] = {}


class KeptSubscriptions:
    """The file of the browsers to notify; see the module.

    `browsers`, `told` (ids of the questions each one shows) and `wishes` are by token id; a token
    has one browser. Methods that change something raise OSError if the file cannot be written.
    """

    def __init__(self, journal: str) -> None:
        self._path = os.path.join(belongings(journal), "push.json")
        self._kept = _SubscriptionFile()
        try:
            self._read()
        except FileNotFoundError:
            pass
        except (OSError, MsgspecError, UnicodeDecodeError) as exc:
            # Browsers that knew the lost key subscribe again with the new one.
            log.warning(
                "%s: %s; notifications have to be turned on again in each browser", self._path, exc
            )
            with suppress(OSError):
                os.replace(self._path, f"{self._path}.damaged")

    def _read(self) -> None:
        with open(self._path, "rb") as file:
            self._kept = decode(file.read(bounds.SUBSCRIPTIONS_BYTES), type=_SubscriptionFile)

    @property
    def key(self) -> str:
        """The key that signs messages, as PEM: the first that any server of the journal made."""
        if not self._kept.key:
            made = encode(_SubscriptionFile(new_key()))
            write_private(self._path, made, replaces=False)
            self._read()
        return self._kept.key

    @property
    def browsers(self) -> dict[str, Subscription]:
        """A copy of the subscriptions by token id."""
        return dict(self._kept.browsers)

    @property
    def questions(self) -> dict[str, frozenset[str]]:
        """A copy of the shown questions by token id."""
        return dict(self._kept.told)

    def wishes(self, token: str) -> Wishes:
        """Return the wishes of the browser with this token."""
        return self._kept.wishes.get(token, Wishes())

    def put(self, token: str, found: Subscription) -> None:
        """Notify the browser with this token from now on."""
        browsers = {**self.browsers, token: found}
        if len(browsers) > bounds.NOTIFIED_BROWSERS:
            raise OSError(f"more than {bounds.NOTIFIED_BROWSERS} browsers")
        self._change(browsers=browsers, told={**self._kept.told, token: frozenset()})

    def remove(self, token: str) -> None:
        """Stop notifying the browser with this token."""
        browsers = self.browsers
        if browsers.pop(token, None) is not None:
            self._change(browsers=browsers)

    def note(self, token: str, questions: frozenset[str]) -> None:
        """Note which questions the browser with this token shows."""
        self._change(told={**self._kept.told, token: questions})

    def wish(self, token: str, wishes: Wishes) -> None:
        """Note the wishes of the browser with this token."""
        self._change(wishes={**self._kept.wishes, token: wishes})

    def _change(self, **changes: Any) -> None:
        changed = replace(self._kept, key=self.key, **changes)
        known = changed.browsers
        changed.told = {token: ids for token, ids in changed.told.items() if ids and token in known}
        changed.wishes = {
            token: it for token, it in changed.wishes.items() if it != Wishes() and token in known
        }
        write_private(self._path, encode(changed))
        self._kept = changed
