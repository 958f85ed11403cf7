"""The obstacles to a connection to a remote server, in words that say what to do."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import DecodeError, ValidationError
from msgspec.json import decode

from acphold.errors import RemoteRefusalError
from acphold.transports.urls import REALM

TOKEN_VARIABLE: Final = "ACPHOLD_TOKEN"
"""A token for the server that a command names, instead of the one from pairing."""

REFUSALS: Final = {
    403: "it does not permit us that",
    404: "it has no agent at that address; the path of its URL names one, as /acp/NAME does",
    421: "it does not go by that name; `acphold serve --url` there gives it one",
}
"""Final refusals of servers beside 401, and their meaning; any other status may come from a proxy
between us, and pass."""

NOT_PAIRED: Final = (
    "this machine has not paired with it; do that once, with the address that `acphold serve` "
    "prints there, `#pair=CODE` and all"
)
REVOKED: Final = (
    "it does not know our token any more: it was revoked, or is over; pair again, with the "
    "address that `acphold serve` prints there"
)
WANTS_TOKEN: Final = (
    "it wants to know who we are, and is no `acphold serve` to pair with; give it the token that "
    f"it knows us by: {TOKEN_VARIABLE} for a command, `token` in a program"
)
WRONG_TOKEN: Final = (
    "it does not know the token that we have shown; who runs it gives another one, for "
    f"{TOKEN_VARIABLE} or `token` in a program"
)

SAID_BYTES: Final = 4096
SAID_CHARACTERS: Final = 200
"""Most bytes read, and characters shown, of a server's explanation of a refusal."""


def why(error: BaseException) -> str:
    """Return the obstacle behind an error of a WebSocket or of HTTP."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted ({cause.verify_message}); pair with "
                "`acphold connect --ca FILE ADDRESS`, and FILE is trusted from then on"
            )
        # If a name has several addresses, asyncio puts all its tries into one text.
        if isinstance(cause, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(
            cause
        ):
            return "nobody listens there; does `acphold serve` run?"
        if isinstance(cause, socket.gaierror):
            return f"no machine is known by that name ({cause.strerror})"
    return str(error) or type(error).__name__


def refusal(
    asked: str, status: int, headers: Mapping[str, str], body: bytes, *, has_token: bool
) -> RemoteRefusalError | None:
    """Return the meaning of this answer of the server at this URL; None if the problem may pass.

    Only `acphold serve` pairs, and it names itself as the realm (RFC 9110, 11.5).
    """
    pairs = REALM in headers.get("www-authenticate", "")
    if status == 401 and pairs:
        why = REVOKED if has_token else NOT_PAIRED
        return RemoteRefusalError(asked, status, why)
    if status == 401:
        why = WRONG_TOKEN if has_token else WANTS_TOKEN
    elif status in REFUSALS:
        why = REFUSALS[status]
    else:
        return None
    return RemoteRefusalError(asked, status, why, said_in(headers, body))


def said_in(headers: Mapping[str, str], body: bytes) -> str:
    """Return a server's explanation of a refusal, on one line; "" if there is none for people."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    text: object = ""
    if kind == "text/plain":
        text = body[:SAID_BYTES].decode(errors="replace")
    elif kind.endswith("json"):
        try:
            text = decode(body) if len(body) <= SAID_BYTES else ""
        except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError):
            return ""
        for name in ("error", "message", "detail"):  # as JSON-RPC has it, and most frameworks
            if isinstance(text, dict):
                text = text.get(name, text)
    if not isinstance(text, str):
        return ""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= SAID_CHARACTERS else f"{line[: SAID_CHARACTERS - 1]}…"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield it, and its causes, each with the members of a group."""
    found: BaseException | None = error
    while found is not None:
        yield found
        if isinstance(found, BaseExceptionGroup):
            for each in found.exceptions:
                yield from _causes(each)
        found = found.__cause__ or found.__context__
