"""Byte streams to the outside: stdio, child processes, memory. Each fulfils `rpc.Transport`.

Names are imported when they are asked for: `launch` must be able to start an agent before
anything so heavy as asyncio is loaded. That function has the name of its module, so it is imported
from there: `from holdfast.transports.launch import launch`.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from holdfast.transports.child import ChildProcess
    from holdfast.transports.launch import Launched
    from holdfast.transports.memory import MemoryTransport, memory_pair
    from holdfast.transports.pipes import PipeTransport
    from holdfast.transports.stdio import claim_stdio, stdio_transport

__all__ = [
    "ChildProcess",
    "Launched",
    "MemoryTransport",
    "PipeTransport",
    "claim_stdio",
    "memory_pair",
    "stdio_transport",
]

_MODULES = {
    "ChildProcess": "child",
    "Launched": "launch",
    "MemoryTransport": "memory",
    "PipeTransport": "pipes",
    "claim_stdio": "stdio",
    "memory_pair": "memory",
    "stdio_transport": "stdio",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
