"""What stands in the way of a connection to a server far away, in words that say what to do."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator


def why(error: BaseException) -> str:
    """The obstacle that an error of a WebSocket or of HTTP came from."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted ({cause.verify_message}); `acphold connect --ca "
                "FILE` trusts what FILE has"
            )
        # Of a name with several addresses asyncio puts all that it tried into one text.
        if isinstance(cause, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(
            cause
        ):
            return "nobody listens there; does `acphold serve` run?"
        if isinstance(cause, socket.gaierror):
            return f"no machine is known by that name ({cause.strerror})"
    return str(error) or type(error).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """It, and what it was raised for, each with the members of a group."""
    found: BaseException | None = error
    while found is not None:
        yield found
        if isinstance(found, BaseExceptionGroup):
            for each in found.exceptions:
                yield from _causes(each)
        found = found.__cause__ or found.__context__
