"""The parts of a desk that its sessions share: each part of a session takes them whole."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from msgspec import Struct, field

from acp_wire.rpc.eager_tasks import EagerTasks
from acp_wire.schema import ClientCapabilities
from acphold.journal.journal import Journal
from acphold.live.agents.interface import HubAgent
from acphold.live.hub.alerts import Activity, Alerts
from acphold.live.hub.attachment import Client
from acphold.live.hub.routes import Routes
from acphold.live.hub.session import CommonRelease
from acphold.live.hub.turn_files import FileKeeper
from acphold.logs import listener
from acphold.serve_options import ServeOptions


class SharedParts(Struct, kw_only=True):
    """See the module.

    `offered` are the client capabilities that the agent was told, `introduced` is its answer to
    `initialize`, once it has answered. `follow_title` is called with the folder of a session that
    has a title of its first prompt; `made_titles` and `other_ids` are those of `AgentsList`.
    `providers` are the clients that provide MCP servers over ACP, by `serverId`. What is logged is
    `heard` by a handler.
    """

    agent: HubAgent
    journal: Journal
    routes: Routes
    release: CommonRelease
    tasks: EagerTasks
    options: ServeOptions
    files: FileKeeper
    alerts: Alerts
    activity: Activity
    providers: dict[str, Client]
    follow_title: Callable[[str], None]
    made_titles: dict[str, str]
    other_ids: Callable[[str, int], Awaitable[list[str]]]
    offered: ClientCapabilities = ClientCapabilities()
    introduced: bytes | None = None
    heard: logging.Handler | None = field(default_factory=listener)
