"""The roots of a session, and files and terminals served inside them.

Names are imported when they are asked for: most sessions have a client that serves both.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the rest
if TYPE_CHECKING:
    from acphold.workspace.files import Files
    from acphold.workspace.roots import Roots
    from acphold.workspace.terminals import Terminal, Terminals
    from acphold.workspace.workspace import Workspace

__all__ = ["Files", "Roots", "Terminal", "Terminals", "Workspace"]

_MODULES = {
    "Files": "files",
    "Roots": "roots",
    "Terminal": "terminals",
    "Terminals": "terminals",
    "Workspace": "workspace",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
