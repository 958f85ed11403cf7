"""Agents that break a rule about the MCP servers of their sessions."""

from __future__ import annotations

import asyncio

from acp_check.exemplar import Exemplar
from acp_check.exemplar_servers import HttpLink, StdioLink
from acp_check.record import Json
from tests.faults.register import Faults

FAULTS = Faults()


class _Chooser(Exemplar):
    """Connects only some servers, or others than those that were named."""

    async def connect(self, session_id: str, servers: list[Json]) -> None:
        await super().connect(session_id, self.chosen(servers))

    def chosen(self, servers: list[Json]) -> list[Json]:
        return servers


@FAULTS.breaks("mcp.stdio")
class _UrlsOnly(_Chooser):
    def chosen(self, servers: list[Json]) -> list[Json]:
        return [server for server in servers if "url" in server]


@FAULTS.breaks("mcp.environment")
class _WithoutVariables(_Chooser):
    def chosen(self, servers: list[Json]) -> list[Json]:
        return [{**server, "env": []} for server in servers]


@FAULTS.breaks("mcp.environment:first")
class _FirstVariableOnly(_Chooser):
    def chosen(self, servers: list[Json]) -> list[Json]:
        return [{**it, "env": it["env"][:1]} if "env" in it else it for it in servers]


@FAULTS.breaks("mcp.environment:arguments")
class _SplitsArguments(_Chooser):
    def chosen(self, servers: list[Json]) -> list[Json]:
        return [
            {**it, "args": " ".join(it["args"]).split()} if "args" in it else it for it in servers
        ]


@FAULTS.breaks("mcp.all")
class _FirstServerOnly(_Chooser):
    def chosen(self, servers: list[Json]) -> list[Json]:
        return servers[:1]


@FAULTS.breaks("mcp.tools-listed")
class _ListsNoTools(Exemplar):
    async def connect(self, session_id: str, servers: list[Json]) -> None:
        self.links[session_id] = []
        for server in servers:
            if "url" in server or not server["args"]:
                continue
            link = await StdioLink.to(server)
            self.links[session_id].append(link)
            if "silent" not in server["args"]:
                await link.call("initialize", {})


@FAULTS.breaks("mcp.tool-used")
class _KeepsItForItself(Exemplar):
    async def call_tool(self, session_id: str, tool: str) -> str:
        await super().call_tool(session_id, tool)
        return "something"


@FAULTS.breaks("mcp.own-session")
class _CallsAnyServer(Exemplar):
    async def call_tool(self, session_id: str, tool: str) -> str:
        return await super().call_tool(next(id for id in self.links if self.links[id]), tool)


@FAULTS.breaks("mcp.own-session:without-servers")
class _LendsServers(Exemplar):
    async def call_tool(self, session_id: str, tool: str) -> str:
        own = [session_id, *reversed(self.links)]
        return await super().call_tool(next(id for id in own if self.links.get(id)), tool)


@FAULTS.breaks("mcp.closed")
class _KeepsServersOpen(Exemplar):
    async def close_session(self, params: Json) -> Json:
        links = self.links.get(params["sessionId"], [])
        self.links[params["sessionId"]] = []
        closed = await super().close_session(params)
        self.links[params["sessionId"]] = links
        return closed


@FAULTS.breaks("mcp.closed:all")
class _ClosesAllServers(Exemplar):
    async def close_session(self, params: Json) -> Json:
        closed = await super().close_session(params)
        await self.end_servers()
        return closed


@FAULTS.breaks("mcp.ended")
class _LeavesServers(Exemplar):
    async def end_servers(self) -> None:
        return None


@FAULTS.breaks("mcp.http")
class _ForgetsHeaders(_Chooser):
    def chosen(self, servers: list[Json]) -> list[Json]:
        is_http = [server.get("type") == "http" for server in servers]
        pairs = zip(servers, is_http, strict=True)
        return [{**server, "headers": []} if http else server for server, http in pairs]


@FAULTS.breaks("mcp.http:last")
class _LastHeaderOnly(_Chooser):
    def chosen(self, servers: list[Json]) -> list[Json]:
        return [{**it, "headers": it["headers"][-1:]} if "headers" in it else it for it in servers]


@FAULTS.breaks("mcp.sse")
class _PostsToStreams(Exemplar):
    async def connect(self, session_id: str, servers: list[Json]) -> None:
        streams = [server for server in servers if server.get("type") == "sse"]
        for server in streams:
            await HttpLink(server["url"], {}).exchange(b'{"method": "hello"}')
        await super().connect(session_id, [it for it in servers if it not in streams])


@FAULTS.breaks("mcp.on-load")
class _LoadsWithout(Exemplar):
    async def load_session(self, params: Json) -> Json:
        return await super().load_session({**params, "mcpServers": []})


@FAULTS.breaks("mcp.on-resume")
class _ResumesWithout(Exemplar):
    async def resume_session(self, params: Json) -> Json:
        return await super().resume_session({**params, "mcpServers": []})


@FAULTS.breaks("mcp.missing")
class _WaitsForTheMissing(Exemplar):
    async def connect(self, session_id: str, servers: list[Json]) -> None:
        await super().connect(session_id, servers)
        if len(self.links[session_id]) < len(servers) and not servers[0]["args"]:
            await asyncio.sleep(3600)


@FAULTS.breaks("mcp.silent")
class _WaitsForTheSilent(Exemplar):
    async def connect(self, session_id: str, servers: list[Json]) -> None:
        began = asyncio.get_running_loop().time()
        await super().connect(session_id, servers)
        if asyncio.get_running_loop().time() - began > self.connect_seconds / 2:
            await asyncio.sleep(3600)
