"""A limit of steps for reading what others wrote: a step is a character that is looked at.

A limit in bytes, or in waiting, does not bound the work behind it. So each face says how many steps
its reader may take, and the reader counts them.
"""

# See docs/decisions.md, 30.

from __future__ import annotations

from collections.abc import Callable

from acphold.safety.errors import OutOfStepsError


class Budget:
    """At most `steps`, and `per_byte` more for each byte that is read.

    `checkpoint` is called between steps, and raises if nobody wants the result any more.
    """

    def __init__(
        self, steps: int, per_byte: int = 0, checkpoint: Callable[[], object] = bool
    ) -> None:
        self.spent = 0
        self._steps = steps
        self._per_byte = per_byte
        self._checkpoint = checkpoint

    def read(self, size: int) -> None:
        """Note that so many bytes were read."""
        self._steps += size * self._per_byte

    def affords(self, steps: int) -> bool:
        """Count steps, if so many are left; they may be taken then."""
        self._checkpoint()
        if self.spent + steps > self._steps:
            return False
        self.spent += steps
        return True

    def spend(self, steps: int) -> None:
        """Count steps before they are taken; raises OutOfStepsError."""
        if not self.affords(steps):
            raise OutOfStepsError(self._steps)
