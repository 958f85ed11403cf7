"""The pages that an agent asked one client to open (`elicitation/create` in the mode `url`).

When the agent reports that a page is done with, only the clients that were asked are told (spec v1,
elicitation, "URL completion"): the notification names no session.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

KEPT = 256
"""Most pages that are remembered; older ones are forgotten, as some agents never report the end."""


class _PageParams(Struct):
    elicitationId: str | None = None


class OpenPages:
    """The pages of one client, oldest first; see the module."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def see(self, params: bytes) -> None:
        """Remember the page in this request to the client."""
        if (page := _page(params)) is not None:
            self._ids[page] = None
            if len(self._ids) > KEPT:
                del self._ids[next(iter(self._ids))]

    def is_done(self, params: bytes) -> bool:
        """Forget a page that is done with; return True if this client was asked to open it."""
        page = _page(params)
        if page not in self._ids:
            return False
        del self._ids[page]
        return True


def _page(params: bytes) -> str | None:
    try:
        return msgspec.json.decode(params, type=_PageParams).elicitationId
    except msgspec.MsgspecError:
        return None
