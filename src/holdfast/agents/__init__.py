"""What answers prompts: a coroutine in this process, or a wrapped program.

Names are imported when they are asked for: an agent is the one or the other.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the rest
if TYPE_CHECKING:
    from holdfast.agents.inprocess import InProcessAgent
    from holdfast.agents.interface import Agent, Listener
    from holdfast.agents.process import ProcessAgent

__all__ = ["Agent", "InProcessAgent", "Listener", "ProcessAgent"]

_MODULES = {
    "Agent": "interface",
    "InProcessAgent": "inprocess",
    "Listener": "interface",
    "ProcessAgent": "process",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
