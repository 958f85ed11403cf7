"""asyncio without OpenSSL, until something uses TLS through it, and without what it rarely uses.

asyncio imports `ssl` in case something does. In an agent that does not, OpenSSL is a tenth of the
time to its first answer and a seventh of its memory. `inspect`, `subprocess` and `tokenize`, with
what they import, are a twentieth of the memory, and the patterns of `textwrap` one of the time.
"""

# See docs/decisions.md, 25.

from __future__ import annotations

import os
import sys
from types import FunctionType, ModuleType

IS_COROUTINE = 0x80
"""The flag of the code of an `async def`; source: inspect, CO_COROUTINE."""


def load_asyncio() -> None:
    """Import asyncio; it imports `ssl` and the modules of `LATE` when it first uses them.

    Does nothing if `ssl` or asyncio is imported already, or if there is no `ssl`.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    if not any(find_spec and find_spec("_ssl", None) for find_spec in finders):
        return
    modules = [LateModule(name) for name in LATE if name not in sys.modules]
    for module in modules:
        vars(module).update(LATE[module.__name__])
    sys.modules.update({module.__name__: module for module in modules})
    sys.modules["ssl"] = None  # type: ignore[assignment]
    before = {*sys.modules}
    try:
        import asyncio.sslproto  # noqa: F401 — all of asyncio, which asks for ssl only here
    finally:
        del sys.modules["ssl"]
        for module in modules:
            if sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]
    # Only what was imported just now has the stand-ins.
    imported = [found for name, found in sys.modules.items() if name not in before]
    for module in modules:
        name = module.__name__
        module.users = [user for user in imported if vars(user).get(name) is module]
    users = [user for user in imported if vars(user).get("ssl", "") is None]
    stand_in = _LateSsl(users)
    for user in users:
        vars(user)["ssl"] = stand_in


def load_msgspec() -> None:
    """Import msgspec without `typing_extensions`, of which it needs nothing: that takes a tenth as
    long as all the rest of a daemon; without `platform`, of which its `uuid` takes one name, and
    `textwrap`; and without what it has for others. Does nothing if one is imported already."""
    late = ("platform", "textwrap", "msgspec.inspect", "msgspec.toml", "msgspec.yaml")
    if not {"msgspec", "typing_extensions", *late} & sys.modules.keys():
        sys.modules.update({name: LateModule(name) for name in late})
        vars(sys.modules["platform"])["system"] = lambda: os.uname().sysname
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
        try:
            import msgspec  # noqa: F401
        finally:
            for name in ("typing_extensions", *late):
                del sys.modules[name]


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
    "textwrap": {},
    "tokenize": {},
}
"""Modules that asyncio imports, and what it takes from them before it needs more."""


class _LateSsl:
    """Stands in for `ssl` in asyncio's modules, until a name in it is used."""

    def __init__(self, users: list[ModuleType]) -> None:
        self._users = users

    def __getattr__(self, name: str) -> object:
        if name == "SSLSocket" and "ssl" not in sys.modules:
            return ()  # asyncio asks whether a socket is one: none is yet
        import ssl

        for module in self._users:
            vars(module)["ssl"] = ssl
            if module.__name__ == "asyncio.sslproto":
                # The only thing that it makes of `ssl` while it is imported.
                vars(module)["SSLAgainErrors"] = (ssl.SSLWantReadError, ssl.SSLSyscallError)
        return getattr(ssl, name)


class LateModule(ModuleType):
    """Stands in for a module where others have imported it, until a name in it is used."""

    users: list[ModuleType]

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        __import__(self.__name__)
        module = sys.modules[self.__name__]
        users = vars(self).pop("users", ())
        vars(self).update(vars(module))  # for those that have it from one of the users
        for user in users:
            vars(user)[self.__name__] = module
        return getattr(module, name)
