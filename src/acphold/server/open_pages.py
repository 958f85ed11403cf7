"""The pages that an agent asked one client to open (`elicitation/create` in the mode `url`).

When the agent tells that what a page was for is done, only the clients that were asked are told
(spec v1, elicitation, "URL completion"): the notification names no session.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

KEPT = 256
"""How many pages are remembered: those of agents that never tell are forgotten in time."""


class _Params(Struct):
    elicitationId: str | None = None


class OpenPages:
    """See the module: those of one client, oldest first."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def see(self, params: bytes) -> None:
        """The client is asked this."""
        if (page := _page(params)) is not None:
            self._ids[page] = None
            if len(self._ids) > KEPT:
                del self._ids[next(iter(self._ids))]

    def is_done(self, params: bytes) -> bool:
        """A page is done with; whether this client was asked to open it."""
        page = _page(params)
        if page not in self._ids:
            return False
        del self._ids[page]
        return True


def _page(params: bytes) -> str | None:
    try:
        return msgspec.json.decode(params, type=_Params).elicitationId
    except msgspec.MsgspecError:
        return None
