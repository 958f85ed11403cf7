"""asyncio without OpenSSL, until something uses TLS through it.

asyncio imports `ssl` in case something does. In an agent that does not, OpenSSL is a tenth of the
time to its first answer and a seventh of its memory.
"""

# See docs/decisions.md, 25.

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the rest
if TYPE_CHECKING:
    from types import ModuleType


def load_asyncio() -> None:
    """Import asyncio; its TLS imports `ssl` when it is first used.

    Does nothing if `ssl` or asyncio is imported already, or if there is no `ssl`.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    if not any(finder.find_spec("_ssl", None) is not None for finder in sys.meta_path):
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import asyncio.sslproto  # noqa: F401 — all of asyncio, which asks for ssl only here
    finally:
        del sys.modules["ssl"]
    users = [
        module
        for name, module in tuple(sys.modules.items())
        if name.startswith("asyncio.") and vars(module).get("ssl", "") is None
    ]
    late = _LateSsl(users)
    for module in users:
        vars(module)["ssl"] = late


class _LateSsl:
    """Stands in for `ssl` in asyncio's modules, until a name in it is used."""

    def __init__(self, users: list[ModuleType]) -> None:
        self._users = users

    def __getattr__(self, name: str) -> object:
        import ssl

        for module in self._users:
            vars(module)["ssl"] = ssl
            if module.__name__ == "asyncio.sslproto":
                # The only thing that it makes of `ssl` while it is imported.
                vars(module)["SSLAgainErrors"] = (ssl.SSLWantReadError, ssl.SSLSyscallError)
        return getattr(ssl, name)
