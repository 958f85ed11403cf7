"""Modules that others import for a few of their calls, imported at the first of these."""

# See docs/decisions.md, 25.

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the rest
if TYPE_CHECKING:
    from collections.abc import Mapping


class LateModule(ModuleType):
    """Stands in for a module where others have imported it, until a name in it is used."""

    users: list[ModuleType]

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = __import__(self.__name__)
        users = vars(self).pop("users", ())
        vars(self).update(vars(module))  # for those that have it from one of the users
        for user in users:
            vars(user)[self.__name__] = module
        return getattr(module, name)


class StandIns:
    """A block in which imports get a `LateModule` for each of these modules.

    `names` has for each module what may be used of it before it is imported. Those that are
    imported already stay. After the block, only what was imported in it has the stand-ins.
    """

    def __init__(self, names: Mapping[str, Mapping[str, object]]) -> None:
        self._modules = [LateModule(name) for name in names if name not in sys.modules]
        for module in self._modules:
            vars(module).update(names[module.__name__])

    def __enter__(self) -> None:
        sys.modules.update({module.__name__: module for module in self._modules})
        self._before = {*sys.modules}

    def __exit__(self, *_: object) -> None:
        for module in self._modules:
            if sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]
        imported = [found for name, found in sys.modules.items() if name not in self._before]
        for module in self._modules:
            name = module.__name__
            module.users = [user for user in imported if vars(user).get(name) is module]
