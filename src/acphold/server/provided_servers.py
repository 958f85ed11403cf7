"""The MCP servers that a client provides itself, under ids that its tenant alone has.

One agent is at work for all tenants, and asks for a server by its `serverId`. So the agent is told
another id than the client's: what two tenants call alike are two servers, and neither hears of the
other's. Who has no tenant shares the agent with nobody, and its ids are left as they are.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import Final

from msgspec.json import encode

from acphold.history.raw_update import string
from acphold.schema.splice import array, items, members, splice

_KEY: Final = secrets.token_bytes(16)
"""Of this process: no tenant can name a server as if it were of another one."""

_SERVER_ID: Final = "serverId"


class ProvidedServers:
    """See the module; of one tenant, or of whoever has none."""

    def __init__(self, tenant: str | None) -> None:
        self._mark = ""
        if tenant is not None:
            self._mark = f"{blake2b(tenant.encode(), key=_KEY, digest_size=8).hexdigest()}:"

    def for_agent(self, params: bytes) -> bytes:
        """Params that open a session, with `mcpServers` as the agent is told them."""
        servers = members(params).get("mcpServers", b"null")
        if not self._mark or b'"acp"' not in servers:
            return params
        told = [
            self.named(raw) if members(raw).get("type") == b'"acp"' else raw
            for raw in items(servers)
        ]
        return splice(params, {"mcpServers": array(told)})

    def named(self, params: bytes) -> bytes:
        """What names one of the client's servers, as the agent is told it."""
        server_id = string(members(params).get(_SERVER_ID))
        if not self._mark or server_id is None:  # of an older draft, or not valid: as it came
            return params
        return splice(params, {_SERVER_ID: encode(f"{self._mark}{server_id}")})

    def for_client(self, params: bytes) -> bytes:
        """What the agent says of one of them, as the client is told it."""
        server_id = string(members(params).get(_SERVER_ID))
        if not self._mark or server_id is None or not server_id.startswith(self._mark):
            return params
        return splice(params, {_SERVER_ID: encode(server_id.removeprefix(self._mark))})
