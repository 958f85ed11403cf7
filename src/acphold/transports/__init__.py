"""Byte streams to the outside: stdio, child processes, memory. Each fulfils `rpc.Transport`.

Names are imported when they are asked for: each brings what it needs of asyncio.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from acphold.transports.child import ChildProcess
    from acphold.transports.memory import MemoryTransport, memory_pair
    from acphold.transports.pipes import PipeTransport
    from acphold.transports.stdio import claim_stdio, stdio_transport

__all__ = [
    "ChildProcess",
    "MemoryTransport",
    "PipeTransport",
    "claim_stdio",
    "memory_pair",
    "stdio_transport",
]

_MODULES = {
    "ChildProcess": "child",
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
