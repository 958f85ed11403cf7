"""A program that was begun before anybody asked for it: whoever then asks for the same one gets it.

A process that is going to need a program, and has much to import before it can, begins it first.
"""

from __future__ import annotations

from time import monotonic

from acp_wire.processes.program import launch

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_wire.processes.program import Program
    from acp_wire.surroundings import Surroundings

_begun: dict[tuple[object, ...], Program] = {}
_began: float | None = None

WAITS_SECONDS = 10.0
"""A program that was begun longer ago than this is not expected to be asked for any more."""


def begin(command: Sequence[str], within: Surroundings, cwd: str) -> None:
    """Start a program in these surroundings and this folder; raises AgentStartError.

    Called before this process has other threads.
    """
    global _began
    # In our own surroundings it starts without a fork, which takes milliseconds.
    begun = (
        launch(command, env=within.env)
        if within.are_ours(cwd)
        else launch(command, within, cwd=cwd)
    )
    _begun[_key(command, within, cwd)] = begun
    _began = monotonic()


def take(command: Sequence[str], within: Surroundings, cwd: str | None) -> Program | None:
    """Return the same program, if it was begun, once; the caller ends it."""
    return _begun.pop(_key(command, within, cwd), None) if _begun else None


def is_left(command: Sequence[str], within: Surroundings, cwd: str) -> bool:
    """True if this program waits, or any that nobody is expected to ask for any more."""
    is_old = _began is not None and monotonic() > _began + WAITS_SECONDS
    return bool(_begun) and (is_old or _key(command, within, cwd) in _begun)


def abandon() -> None:
    """End what nobody has asked for; blocks meanwhile."""
    while _begun:
        _begun.popitem()[1].abandon()


def _key(command: Sequence[str], within: Surroundings, cwd: str | None) -> tuple[object, ...]:
    env = tuple(sorted(within.env.items()))
    return tuple(command), env, within.folder, within.umask, within.limits, cwd
