"""The desks of a daemon's fronts, in the hub of a test."""

from __future__ import annotations

from acp_wire.rpc import Transport
from acphold.live.hub.hub import Hub
from acphold.live.server.daemon import Fronts
from acphold.live.server.places import Places
from acphold.live.server.pool import Pool, Prepare
from acphold.live.server.principals import Principal
from acphold.live.server.service import Addresses


def front_desks(hub: Hub, prepare: Prepare) -> tuple[Fronts, Pool]:
    """The desks, and what keeps them; no other node may come."""

    async def join(transport: Transport, principal: Principal) -> None:
        raise AssertionError("no node of this test")

    kept = Pool(hub, prepare, str, Addresses(hub.journal), join)
    return Fronts(kept, Places(hub.places)), kept
