"""Optional packages: those of a connection to a server, and the error without them."""

from __future__ import annotations

import sys
from functools import cache
from typing import Final

from acp_wire.errors import MissingExtraError

REMOTE: Final = ("httpx2", "websockets")
"""The packages of the extra `remote`, as they are imported."""


@cache
def has_packages(*names: str) -> bool:
    """Return True if all of these, as they are imported, were installed when this was first asked.

    To look for them takes a millisecond, and each client that connects is told.
    """
    # Not by `importlib.util`: an editor waits for the first answer, and would for that import.
    return all(
        sys.modules[name] is not None
        if name in sys.modules
        else any(
            # Python skips a finder without it, such as those of before 3.4.
            (find_spec := getattr(finder, "find_spec", None)) and find_spec(name, None)
            for finder in sys.meta_path
        )
        for name in names
    )


def require_remote(needy: str, package: str = "acp-wire") -> None:
    """Raise MissingExtraError unless those of REMOTE are installed.

    `needy` begins the message; `package` is the one to install with its extra `remote`.
    """
    if not has_packages(*REMOTE):
        raise MissingExtraError(needy, "remote", package)
