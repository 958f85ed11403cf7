"""A request that was sent to a peer, and the wait for its answer: the same for every peer.

what happens                        the caller                the other side
----------------------------------  ------------------------  ----------------------------
the answer comes                    gets it, or it is raised  -
the peer goes                       ConnectionLostError,      -
                                    which is the answer then
it takes too long                   TimeoutError              is told that nobody waits
the caller is cancelled             CancelledError            is told that nobody waits
an answer comes after these two     -                         -: it is dropped
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from acphold.errors import AcpholdError

Answer = bytes | AcpholdError
"""The result of a call as JSON bytes; or RemoteError, or ConnectionLostError."""

LOOKS = 8
"""Checks for a sign of life within the time that a peer may be silent."""


class PendingCall:
    """See the module. The sender of the request calls `take` with the answer, in the inbound lane.
    `on_result` is called there with the result, before anything that came behind it; its exception
    is raised in the waiting call."""

    def __init__(self, on_result: Callable[[bytes], object] = bool) -> None:
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._on_result = on_result

    @property
    def is_awaited(self) -> bool:
        """True while the answer is waited for, or will be."""
        return not self._answer.done()

    def take(self, answer: Answer) -> None:
        """Take the answer; dropped if it is no longer waited for."""
        if not self.is_awaited:
            return
        try:
            if isinstance(answer, AcpholdError):
                raise answer
            self._on_result(answer)
        except Exception as error:
            self._answer.set_exception(error)
            self._answer.exception()  # mark it as retrieved, also if the caller is cancelled first
        else:
            self._answer.set_result(answer)

    async def answer(
        self,
        withdraw: Callable[[], object],
        seconds: float | None = None,
        heard: Callable[[], int] | None = None,
    ) -> bytes:
        """Return the result; `withdraw` is called if the wait is given up.

        `seconds` is the longest wait; with `heard`, which counts messages from the peer, the
        longest silence. None: the caller has a timeout of its own.
        """
        try:
            if heard is None:
                async with asyncio.timeout(seconds):
                    return await self._answer
            # In steps: after a pause of our process, messages that came meanwhile are counted
            # first.
            looks, before = 0, heard()
            while not self._answer.done():
                if looks == LOOKS:
                    raise TimeoutError
                await asyncio.wait([self._answer], timeout=(seconds or 0) / LOOKS)
                looks, before = (0 if before != heard() else looks + 1), heard()
            return self._answer.result()
        finally:
            if not self._answer.done() or self._answer.cancelled():
                self._answer.cancel()
                withdraw()
