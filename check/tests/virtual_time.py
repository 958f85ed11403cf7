"""A clock for tests in memory: waits cost nothing, and no busy machine shortens one.

Whenever nothing can go on, the clock jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        assert ready or timeout is not None, "everything waits for something that never comes"
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def play(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)
