"""asyncio without OpenSSL, until something uses TLS through it, and without what it rarely uses.

asyncio imports `ssl` in case something does. In an agent that does not, OpenSSL is a tenth of the
time to its first answer and a seventh of its memory. `inspect`, `subprocess` and `tokenize`, with
what they import, are a twentieth of the memory.
"""

# See docs/decisions.md, 25.

from __future__ import annotations

import sys
from types import FunctionType

from acp_wire.transports.late_modules import StandIns

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the rest
if TYPE_CHECKING:
    from types import ModuleType

IS_COROUTINE = 0x80
"""The flag of the code of an `async def`; source: inspect, CO_COROUTINE."""


def load_asyncio() -> None:
    """Import asyncio; it imports `ssl` and the modules of `LATE` when it first uses them.

    Does nothing if `ssl` or asyncio is imported already, or if there is no `ssl`.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    if not any(finder.find_spec("_ssl", None) is not None for finder in sys.meta_path):
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        with StandIns(LATE):
            import asyncio.sslproto  # noqa: F401 — all of asyncio, which asks for ssl only here
    finally:
        del sys.modules["ssl"]
    users = [
        module
        for name, module in tuple(sys.modules.items())
        if name.startswith("asyncio.") and vars(module).get("ssl", "") is None
    ]
    stand_in = _LateSsl(users)
    for module in users:
        vars(module)["ssl"] = stand_in


def _is_coroutine_function(function: object) -> bool:
    """The same as `inspect.iscoroutinefunction`, which asyncio asks about each signal handler."""
    plain = getattr(function, "__func__", function)
    if isinstance(plain, FunctionType) and "inspect" not in sys.modules:  # which marks others
        return bool(plain.__code__.co_flags & IS_COROUTINE)
    import inspect

    return inspect.iscoroutinefunction(function)


LATE: dict[str, dict[str, object]] = {
    "inspect": {"iscoroutinefunction": _is_coroutine_function},
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},
    "tokenize": {},
}
"""Modules that asyncio imports, and what it takes from them before it needs more."""


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
