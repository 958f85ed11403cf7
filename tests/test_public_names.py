"""The public names of each package: widening the API is a visible choice."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import acp_wire
import acp_wire.schema
import acphold
import acphold.sync
import acphold.types
from tests.distributions import FOLDERS
from tests.test_plan import modules_of_ours

PUBLIC = {
    "acphold": """
        AcpError Agent AgentBusyError AgentError AgentExitedError AgentStartError
        AgentTimeoutError AuthRequiredError
        CapabilityError CommandExit CommandOutput ConnectionLostError ContextCompaction Decision
        DeclarationError EmbeddedResource FileAccessError FileTooLargeError
        ForbiddenError FormAnswer FormQuestion ImageContent
        InvalidParamsError JournalError KeptQuestion KeptSession KeptSessions LogContext MaxTokens
        MaxTurnRequests McpAnswerError McpConnectError McpError
        McpLostError
        McpServers Message MethodNotFoundError
        MissingFileError NotTextError OutsideRootsError PageQuestion
        PendingCommand PermissionQuestion PlanEntry Principal Refusal RemoteAgent
        RemoteError RemoteRefusalError RemoteSession RemoteTurn ResourceLink
        RunningCommand RunningTool SearchResult SubAgent
        Server Session SessionFiles SessionState Step StopReason Store TerminalStartError
        TextContent TextResourceContents ToolCall Turn TurnEnd
        TurnServer
        UnknownSessionError Usage Visit Visitor WorkspaceError __version__ connect
    """,
    "acphold.testing": """
        Received WatchedAgent WatchedSession WatchedTurn connect
    """,
    "acphold.types": """
        Admit AskForm AskPage AskPermission AuthHandler ConfigOption Content
        CopiedFiles CustomCategory DisplayTerminal EndedPrompt Filled Folder Handler Item
        Kind Location LogoutHandler McpCallResult McpMadePrompt McpProgress McpPrompt
        McpPromptArgument McpPromptMessage McpResource McpTool MessageRole MethodHandler
        Middleware Mounted OpenOptions OptionCategory Options Outcome PermissionAnswer
        Policy PromptQueue RemoteQueue Replay Rule Scope SessionCopy SessionHook Severity
        SignedIn StepKind Token TurnOutcome TurnStatus UpdateStream Value WaitingPrompt
    """,
    "acphold.sync": """
        SyncAgent SyncQueue SyncSession SyncTurn connect
    """,
    "acphold.otel": "spans",
    "acphold.web": """
        Application
    """,
    "acphold.client": """
        FormQuestion Options PageQuestion PermissionQuestion RemoteAgent RemoteQueue RemoteSession
        RemoteTurn Replay UpdateStream connect connect_over connected_to
    """,
    "acphold.imports": """
        ABANDONED ALL Deletion Growth Home ImportMemory
        ImportSelection Intake NAMES OUTCOMES Outcome PieceReader Reader Source
        TakenSource WAVES WORTH_LISTING deletions each ending_at_ctrl_c failure
        files_with find_conversation forecast give_up_lost interruptible read_beside
        read_listed reader searching was_named
    """,
    "acp_wire.rpc": """
        CutNotification Event MAX_MESSAGE MalformedReceived NotificationReceived Peer Protocol
        Receiver RequestReceived ResponseReceived Transport WireError connected to_wire wire_error
    """,
}
"""`acp_wire.schema` is not here: its names are the protocol's, which `tests/schema` compares."""


MODULES = (
    "acphold",
    "acphold.otel",
    "acphold.sync",
    "acphold.testing",
    "acphold.types",
)
"""The modules that users may import from, beside `acp_wire.schema`; see docs/versions.md. All
others are internal. Internal packages have an `__all__` too, but only for ourselves."""

ROOT = Path(acphold.__file__).parents[2]


def test_the_package_itself_names_the_public_modules_and_no_others() -> None:
    told = (acphold.__doc__ or "").partition("Public are")[2].partition("Every other")[0]
    roots = {name for name in (*MODULES, "acp_wire.schema") if name != "acphold"}
    assert {*re.findall(r"`((?:acphold|acp_wire)\.\w+)`", told)} == roots


def test_what_people_copy_imports_from_public_modules_alone() -> None:
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md"]
    for file in [*ROOT.glob("examples/**/*.py"), *pages]:
        text, code = file.read_text("utf-8"), r"^```python\n(.*?)^```$"
        blocks = re.findall(code, text, re.M | re.S) if file in pages else [text]
        imports = r"^\s*(?:from|import) ((?:acphold|acp_)[\w.]*)"
        imported = {name for block in blocks for name in re.findall(imports, block, re.M)}
        assert imported <= {*MODULES, "acp_wire", "acp_wire.schema"}, file


def test_the_page_on_versions_names_the_public_modules_and_no_others() -> None:
    page = (Path(acphold.__file__).parents[2] / "docs" / "versions.md").read_text("utf-8")
    table = page.partition("## Public names")[2].partition("With a public class")[0]
    assert {*re.findall(r"`((?:acphold|acp_wire)[\w.]*)`", table)} == {
        *MODULES,
        "acp_wire",
        "acp_wire.schema",
    }


@pytest.mark.parametrize(
    "what",
    [
        acphold.Server.asgi,
        acphold.SubAgent,
        acphold.McpServers,
        acphold.connect,
        acp_wire.over_websocket,
        acphold.sync.connect,
        acphold.types.Mounted,
    ],
)
def test_what_follows_a_draft_of_the_protocol_says_so(what: object) -> None:
    assert "Experimental: " in (what.__doc__ or "")
    assert "experimental: " in (acphold.Agent.run.__doc__ or "")  # its `unstable`


def test_importing_all_names_leaves_those_of_python() -> None:
    names: dict[str, object] = {}
    exec("from acphold import *", names)
    assert not names.keys() & {*dir(builtins)}
    assert callable(acphold.open)


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_offers_these_names_and_no_others(package: str) -> None:
    module = import_module(package)
    assert sorted(module.__all__) == sorted(PUBLIC[package].split())
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_the_public_names_that_are_not_the_protocols_become_no_more() -> None:
    of_protocol = {name for name in dir(acp_wire.schema) if not name.startswith("_")}
    ours = {name for module in (*MODULES, "acp_wire") for name in import_module(module).__all__}
    assert len(ours - of_protocol) <= 149, "take one away for each that comes"
    assert len(ours) <= 180


def test_every_package_says_what_it_offers() -> None:
    # Their faces are commands, or their modules are imported one by one when they are needed.
    silent = {"cli", "exports", "library", "presentation", "processes", "redaction", "screen"}
    silent |= {"lines", "reading", "reports", "server", "transports"}
    silent |= {"history", "journal", "machine", "standing", "conversation", "safety", "mcp_servers"}
    silent |= {"origins", "snapshots", "workspace", "live", "agents", "hub", "faces"}
    silent |= {"sqlite", "postgresql", "sql", "rules", *FOLDERS}
    packages = {
        name
        for name, path in modules_of_ours().items()
        if path.name == "__init__.py" and name.rpartition(".")[2] not in silent
    }
    assert packages <= PUBLIC.keys() | {"acp_wire.schema"}


def documented(found: object) -> Iterator[str]:
    """The docstrings of a public name and of its members."""
    members = [found, *(vars(found).values() if isinstance(found, type) else ())]
    for member in members:
        yield getattr(member, "__doc__", None) or ""


def test_every_name_that_a_docstring_names_can_be_imported_from_the_package() -> None:
    for name in dir(acphold):
        for text in documented(getattr(acphold, name)):
            errors = set(re.findall(r"(?<![.\w])[A-Z]\w+Error\b", text))
            named = {*re.findall(r"acphold\.(\w+)", text), *errors} - vars(builtins).keys()
            assert named <= {"testing", *dir(acphold)}, f"{name}: {text}"


@pytest.mark.parametrize("named", ["acphold.connect", "acphold.types.RemoteQueue"])
def test_what_clients_need_is_loaded_without_what_keeps_sessions(named: str) -> None:
    code = f"import acphold, acphold.types, sys; {named}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "acphold.client.remote_session" in loaded
    keeping = ("acphold.live.hub.", "acphold.live.server.", "acphold.library.", "acphold.web")
    shown = {"acphold.live.hub.annotations", "acphold.live.hub.bounds"}
    assert {name for name in loaded if name.startswith(keeping)} == shown
    assert not {"sqlite3", "ssl"} & {*loaded}
