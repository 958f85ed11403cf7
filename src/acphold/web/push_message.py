"""One Web Push message: encrypted for a browser, and signed as ours.

Sources: RFC 8030 (Web Push), RFC 8188 and 8291 (encryption), RFC 8292 (VAPID).

What encrypts and signs is imported late: a `serve` that has no page open does without its 8 MiB.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

SECONDS: Final = 15.0
"""What sending one may take."""

LONGEST_ENDPOINT: Final = 2048
"""Characters of the address of a subscription."""

POINT_BYTES: Final = 65
SECRET_BYTES: Final = 16
"""Of a browser's key, a point of P-256 uncompressed, and of its secret (RFC 8291, 3)."""

LARGEST_PAYLOAD: Final = 3000
"""Bytes: a push service takes 4096 with what encryption adds (RFC 8030, 7.2)."""

TTL_SECONDS: Final = 6 * 60 * 60
"""How long a push service keeps what a device that is away is to get."""

SIGNED_SECONDS: Final = 60 * 60
"""How long a signature is good; a day at most (RFC 8292, 2)."""


class Subscription(Struct, frozen=True):
    """Where a browser is reached, and with what it is encrypted for; base64url without padding."""

    endpoint: str
    p256dh: str
    auth: str


class Order(Struct, frozen=True):
    """A message to be sent: `key` is what it is signed with, `payload` what the browser gets."""

    id: int
    to: Subscription
    payload: str
    key: str
    subject: str
    topic: str


class Outcome(Struct, frozen=True):
    """What became of one: the status of HTTP, 0 where there was no answer, and why."""

    id: int
    status: int = 0
    why: str = ""


class WrongSubscriptionError(Exception):
    """It is none; says why."""


def checked(found: Subscription) -> Subscription:
    """A subscription as a browser gives it, whose address may be anybody's; raises
    WrongSubscriptionError.

    Where the name leads is looked at when a message is sent (`web.push_process`).
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    if len(found.endpoint) > LONGEST_ENDPOINT:
        raise WrongSubscriptionError("the endpoint is too long")
    try:
        parts = urlsplit(found.endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise WrongSubscriptionError("the endpoint is no URL") from None
    if parts.scheme != "https" or not host or parts.username is not None or port not in (None, 443):
        raise WrongSubscriptionError("the endpoint is no https address")
    if not host.isascii() or "." not in host or _is_address(host):
        raise WrongSubscriptionError("the endpoint is no name of a push service")
    try:
        point = decoded(found.p256dh)
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        secret = decoded(found.auth)
    except (ValueError, binascii.Error):
        raise WrongSubscriptionError("the keys are none of P-256") from None
    if len(point) != POINT_BYTES or len(secret) != SECRET_BYTES:
        raise WrongSubscriptionError("the keys have another length")
    return found


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def new_key() -> str:
    """A key that what we send is signed with, as PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public_key(pem: str) -> str:
    """What browsers are told of it: base64url of the point."""
    return _point(_private(pem))


def headers(pem: str, endpoint: str, subject: str, topic: str) -> dict[str, str]:
    """The headers of a message to this address. Of two with one `topic` that wait for a device the
    push service keeps the later one. `subject` is who answers for us: an address."""
    import jwt

    key, parts = _private(pem), urlsplit(endpoint)
    claims = {
        "aud": f"{parts.scheme}://{parts.netloc}",
        "exp": int(time.time()) + SIGNED_SECONDS,
        "sub": subject,
    }
    return {
        "Authorization": f"vapid t={jwt.encode(claims, key, 'ES256')},k={_point(key)}",
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(TTL_SECONDS),
        "Topic": topic,
        "Urgency": "high",
    }


def encrypted(subscription: Subscription, payload: bytes) -> bytes:
    """The body of a message, which that browser alone can read."""
    import http_ece
    from cryptography.hazmat.primitives.asymmetric import ec

    body: bytes = http_ece.encrypt(
        payload,
        private_key=ec.generate_private_key(ec.SECP256R1()),
        dh=decoded(subscription.p256dh),
        auth_secret=decoded(subscription.auth),
        version="aes128gcm",
    )
    return body


def decoded(text: str) -> bytes:
    """base64url, padded or not; raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _private(pem: str) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(pem.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "we make no others"
    return key


def _point(key: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return base64.urlsafe_b64encode(point).rstrip(b"=").decode()
