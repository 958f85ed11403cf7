"""Durable, listable, shareable sessions for the Agent Client Protocol (ACP).

The names here are imported when they are first used: an editor that starts `holdfast wrap` does
not wait for the library.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from holdfast.agent import Agent
    from holdfast.agents.authored import AuthoredSession as Session
    from holdfast.agents.toolcall import RunningTool
    from holdfast.agents.turn import MaxTokens, MaxTurnRequests, Refusal, Turn
    from holdfast.errors import HoldfastError

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "HoldfastError",
    "MaxTokens",
    "MaxTurnRequests",
    "Refusal",
    "RunningTool",
    "Session",
    "Turn",
    "__version__",
]

_HOMES = {
    "Agent": ("holdfast.agent", "Agent"),
    "HoldfastError": ("holdfast.errors", "HoldfastError"),
    "MaxTokens": ("holdfast.agents.turn", "MaxTokens"),
    "MaxTurnRequests": ("holdfast.agents.turn", "MaxTurnRequests"),
    "Refusal": ("holdfast.agents.turn", "Refusal"),
    "RunningTool": ("holdfast.agents.toolcall", "RunningTool"),
    "Session": ("holdfast.agents.authored", "AuthoredSession"),
    "Turn": ("holdfast.agents.turn", "Turn"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value
