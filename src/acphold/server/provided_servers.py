"""The MCP servers that a client provides itself, under ids that only its tenant has.

One agent works for all tenants, and names a server by its `serverId`. So the agent gets another id
than the client's: two tenants may use one id for two servers, and neither hears of the other's. A
client without a tenant shares the agent with nobody, and its ids are left as they are.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec.json import encode

from acphold.history.raw_update import string
from acphold.schema.splice import array, items, members, splice

_KEY: Final = os.urandom(16)
"""A key of this process: no tenant can name a server as if it were another's."""

_SERVER_ID: Final = "serverId"


class ProvidedServers:
    """See the module; for one tenant, or for clients without one."""

    def __init__(self, tenant: str | None) -> None:
        self._mark = ""
        if tenant is not None:
            from hashlib import blake2b  # late, with OpenSSL: an editor has no tenant

            self._mark = f"{blake2b(tenant.encode(), key=_KEY, digest_size=8).hexdigest()}:"

    def for_agent(self, params: bytes) -> bytes:
        """Return params that open a session, with `mcpServers` as the agent gets them."""
        servers = members(params).get("mcpServers", b"null")
        if not self._mark or b'"acp"' not in servers:
            return params
        told = [
            self.named(raw) if members(raw).get("type") == b'"acp"' else raw
            for raw in items(servers)
        ]
        return splice(params, {"mcpServers": array(told)})

    def named(self, params: bytes) -> bytes:
        """Return a reference to one of the client's servers, as the agent gets it."""
        server_id = string(members(params).get(_SERVER_ID))
        if not self._mark or server_id is None:  # of an older draft, or not valid: unchanged
            return params
        return splice(params, {_SERVER_ID: encode(f"{self._mark}{server_id}")})

    def for_client(self, params: bytes) -> bytes:
        """Return the agent's message about one of them, as the client gets it."""
        server_id = string(members(params).get(_SERVER_ID))
        if not self._mark or server_id is None or not server_id.startswith(self._mark):
            return params
        return splice(params, {_SERVER_ID: encode(server_id.removeprefix(self._mark))})
