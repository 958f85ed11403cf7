"""What each package offers by name: widening it is a visible choice."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import holdfast

PUBLIC = {
    "holdfast": """
        Agent AudioContent AuthRequiredError BlobResourceContents CapabilityError
        DeclarationError EmbeddedResource HoldfastError ImageContent MaxTokens MaxTurnRequests
        McpError Message PastToolCall PermissionOption PlanEntry Refusal RemoteError
        ResourceLink RunningCommand RunningTool Session SessionState TextContent
        TextResourceContents ToolCallLocation Turn WorkspaceError __version__
    """,
    "holdfast.testing": """
        Client ClientSession Result Told connect
    """,
    "holdfast.agents": """
        Agent InProcessAgent Listener ProcessAgent
    """,
    "holdfast.hub": """
        CANCEL_GRACE Attachment Client Ended Hub Session Setup
    """,
    "holdfast.journal": """
        KINDS LEASE_SECONDS Entry Holder Journal Lease ListFilter ListKey Message NewSession
        Replayed SearchHit Segment SessionRow SessionState Settings SqliteJournal Standing
        ToolCall default_location
    """,
    "holdfast.mcp": """
        DEADLINE Answerer CallResult Channel Closed Connecting Connection Facing Failed Idle Lost
        MadePrompt McpServerAcp Progress Prompt PromptArgument PromptMessage Ready Resource Server
        Servers State Tool bridge_server checked_server named_servers
    """,
    "holdfast.rpc": """
        MAX_MESSAGE Event MalformedReceived NotificationReceived Peer Protocol Receiver
        RequestReceived ResponseReceived Transport WireError connected to_wire wire_error
    """,
    "holdfast.server": """
        Connection
    """,
    "holdfast.transports": """
        ChildProcess Launched MemoryTransport PipeTransport claim_stdio memory_pair
        stdio_transport
    """,
    "holdfast.workspace": """
        Files Roots Terminal Terminals Workspace
    """,
}
"""`holdfast.schema` is not here: its names are the protocol's, which has tests of its own."""


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_offers_these_names_and_no_others(package: str) -> None:
    assert sorted(import_module(package).__all__) == sorted(PUBLIC[package].split())


@pytest.mark.parametrize("package", [*PUBLIC, "holdfast.schema"])
def test_every_name_that_is_offered_is_there(package: str) -> None:
    module = import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_every_package_says_what_it_offers() -> None:
    silent = {"cli"}  # its faces are commands
    source = Path(holdfast.__file__).parent
    packages = {path.parent.name for path in source.glob("*/__init__.py")} - silent
    assert {f"holdfast.{name}" for name in packages} <= PUBLIC.keys() | {"holdfast.schema"}
