"""A request that was sent to a peer, and whoever waits for its answer: one way for every peer.

what happens                        who waits                 the other side
----------------------------------  ------------------------  ----------------------------
the answer comes                    has it, or it is raised   -
the peer goes                       ConnectionLostError,      -
                                    which is the answer then
it takes too long                   TimeoutError              is told that nobody waits
who waits is cancelled              CancelledError            is told that nobody waits
an answer comes after these two     -                         -: it is dropped
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from acphold.errors import AcpholdError

Answer = bytes | AcpholdError
"""The result of a call as JSON bytes; or RemoteError, or ConnectionLostError."""

LOOKS = 8
"""How often is looked, in the time that a peer may be silent, whether something was heard of it."""


class PendingCall:
    """See the module. `take` is for who sends the request: it is called with the answer, in the
    inbound lane. `on_result` is called there with the result, before anything that came behind it;
    what it raises is raised where it is waited for.
    """

    def __init__(self, on_result: Callable[[bytes], object] = bool) -> None:
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._on_result = on_result

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for the answer still, or will."""
        return not self._answer.done()

    def take(self, answer: Answer) -> None:
        """It has come; dropped when nobody waits for it any more."""
        if not self.is_awaited:
            return
        try:
            if isinstance(answer, AcpholdError):
                raise answer
            self._on_result(answer)
        except Exception as error:
            self._answer.set_exception(error)
            self._answer.exception()  # seen, also if who waits is cancelled before it looks
        else:
            self._answer.set_result(answer)

    async def answer(
        self,
        withdraw: Callable[[], object],
        seconds: float | None = None,
        heard: Callable[[], int] | None = None,
    ) -> bytes:
        """The result; `withdraw` is called when it is not waited for any more.

        `seconds` is how long it may take; with `heard`, which counts what comes from the peer, how
        long that may be silent. None: whoever waits has a bound of their own.
        """
        try:
            if heard is None:
                async with asyncio.timeout(seconds):
                    return await self._answer
            # In steps: after a pause of ours, what has come meanwhile is heard first.
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
