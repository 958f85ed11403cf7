"""asyncio without OpenSSL, for as long as nobody speaks TLS through it.

asyncio imports `ssl` in case somebody does. In an agent that does not, OpenSSL is a tenth of the
time to its first answer and a seventh of its memory.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the rest
if TYPE_CHECKING:
    from types import ModuleType


def load_asyncio() -> None:
    """Import asyncio; its TLS imports `ssl` when it is first used.

    Nothing is put off where `ssl` or asyncio is imported already, or where there is no `ssl`.
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
    """Stands in asyncio's modules in the place of `ssl`, until anything of it is asked for."""

    def __init__(self, users: list[ModuleType]) -> None:
        self._users = users

    def __getattr__(self, name: str) -> object:
        import ssl

        for module in self._users:
            vars(module)["ssl"] = ssl
            if module.__name__ == "asyncio.sslproto":
                # All that it makes of `ssl` while it is imported.
                vars(module)["SSLAgainErrors"] = (ssl.SSLWantReadError, ssl.SSLSyscallError)
        return getattr(ssl, name)
