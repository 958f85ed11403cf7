"""One Web Push message: encrypted for a browser, and signed as ours.

Sources: RFC 8030 (Web Push), RFC 8188 and 8291 (encryption), RFC 8292 (VAPID).

The encryption library is imported late: a `serve` with no open page saves its 8 MiB.
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
"""Longest time for sending one message, in seconds."""

LONGEST_ENDPOINT: Final = 2048
"""Longest address of a subscription, in characters."""

POINT_BYTES: Final = 65
SECRET_BYTES: Final = 16
"""Bytes of a browser's key, an uncompressed point of P-256, and of its secret (RFC 8291, 3)."""

LARGEST_PAYLOAD: Final = 3000
"""Bytes: a push service takes 4096 with what encryption adds (RFC 8030, 7.2)."""

TTL_SECONDS: Final = 6 * 60 * 60
"""Seconds that a push service keeps a message for an offline device."""

SIGNED_SECONDS: Final = 60 * 60
"""Seconds for which a signature is valid; a day at most (RFC 8292, 2)."""


class Subscription(Struct, frozen=True):
    """The address and keys of a browser; base64url without padding."""

    endpoint: str
    p256dh: str
    auth: str


class Order(Struct, frozen=True):
    """A message to send: `key` signs it, `payload` is what the browser gets."""

    to: Subscription
    payload: str
    key: str
    subject: str
    topic: str


class PushOutcome(Struct, frozen=True):
    """The result of sending: the HTTP status, 0 if there was no answer, and the reason."""

    status: int = 0
    why: str = ""


class WrongSubscriptionError(Exception):
    """A subscription is not valid; says why."""


def checked(found: Subscription) -> Subscription:
    """Return a subscription from a browser if it is valid; raises WrongSubscriptionError.

    Its address may be anybody's. Where the name resolves to is checked when a message is sent
    (`web.push_sender`).
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
    """Return a new signing key, as PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public_key(pem: str) -> str:
    """Return the public key for browsers: base64url of the point."""
    return _point(_private(pem))


def headers(pem: str, endpoint: str, subject: str, topic: str) -> dict[str, str]:
    """Return the headers of a message to this address.

    Of two messages with one `topic` waiting for a device the push service keeps the later one.
    `subject` is our contact address.
    """
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
    """Return the body of a message, encrypted for that browser."""
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
    """Decode base64url, padded or not; raises ValueError."""
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
