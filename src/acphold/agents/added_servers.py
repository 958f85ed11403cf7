"""An MCP server that each session of an agent gets besides those that its client names.

An agent may refuse it: ACP has no capability for MCP servers on stdio, which agents have to support
(spec v1, session setup, "MCP Servers"), and some do not. Then the request is repeated without it,
and the agent is not offered it again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import msgspec

from acphold.errors import INVALID_PARAMS, InvalidParamsError, RemoteError
from acphold.rpc.pending_call import Answer
from acphold.schema import McpServerStdio, encode
from acphold.schema.methods import OPENING
from acphold.schema.splice import items, members, splice

log = logging.getLogger(__name__)


class _NamedServer(msgspec.Struct):
    """The fields that tell one server from another."""

    name: str = ""
    command: str = ""
    args: tuple[str, ...] = ()


AddedServer = Callable[[str], McpServerStdio]
"""Makes the server for a session in this folder."""


class AddedServers:
    """The server that each session gets, until the agent has refused one; None for no server."""

    def __init__(self, make: AddedServer | None = None) -> None:
        self._make = make

    def added_to(self, method: str, params: bytes) -> bytes:
        """Return the params of a request, with the server if they do not have it already.

        Only requests that open a session have `mcpServers`.
        """
        if self._make is None or method not in OPENING:
            return params
        try:
            parts = members(params)
            given = parts.get("mcpServers", b"null")
            there = [] if given == b"null" else items(given)
            server = self._make(msgspec.json.decode(parts.get("cwd", b'""'), type=str))
        except (InvalidParamsError, msgspec.MsgspecError):
            return params  # for the agent to refuse
        if any(_is_same(server, raw) for raw in there):
            return params
        # Added on the way to the agent only: otherwise a session that a client opens again with the
        # same servers would look changed.
        return splice(params, {"mcpServers": b"[%b]" % b",".join([*there, encode(server)])})

    def are_refused(self, answer: Answer) -> bool:
        """Return True if a request with the server has to be sent again without it."""
        if not isinstance(answer, RemoteError) or answer.code != INVALID_PARAMS:
            return False
        log.warning("the agent takes no MCP server of ours: %s", answer)
        self._make = None
        return True


def _is_same(server: McpServerStdio, raw: bytes) -> bool:
    """Return True if `raw` is a server of that name, or one that runs the same command of ours."""
    try:
        other = msgspec.json.decode(raw, type=_NamedServer)
    except msgspec.MsgspecError:
        return False
    if other.name == server.name:
        return True
    words = [os.path.basename(other.command), *other.args]
    return "acphold" in words and "mcp" in words[words.index("acphold") + 1 :]
