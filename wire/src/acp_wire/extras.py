"""The optional packages of a connection to a server, and the error without them."""

from __future__ import annotations

from functools import cache
from typing import Final

from acp_wire.errors import MissingExtraError

REMOTE: Final = ("httpx2", "websockets")
"""The packages of the extra `remote`, as they are imported."""


@cache
def has_remote() -> bool:
    """Return True if all of them were installed when this was first asked."""
    from importlib.util import find_spec  # late: it takes the time of an editor's start

    return None not in map(find_spec, REMOTE)


def require_remote(needy: str, package: str = "acp-wire") -> None:
    """Raise MissingExtraError unless they are installed.

    `needy` begins the message; `package` is the one to install with its extra `remote`.
    """
    if not has_remote():
        raise MissingExtraError(needy, "remote", package)
