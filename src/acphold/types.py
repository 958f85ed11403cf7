"""The names of types that appear in signatures, for annotations of your own.

from acphold.types import Policy

CAREFUL: Policy = {"read": "allow", "*": "ask"}

Each is imported when it is first used, as in `acphold`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `acphold`: only what is named is imported
if TYPE_CHECKING:
    from acp_wire.transports.known_servers import Token
    from acp_wire.transports.messages import AcceptedSocket, PlainSocket
    from acphold.client.advertised import Content, Folder
    from acphold.client.answers import (
        AskForm,
        AskPage,
        AskPermission,
        Filled,
        Handler,
        Kind,
        PermissionAnswer,
        Policy,
        Rule,
    )
    from acphold.client.connectors import Options
    from acphold.client.remote_session import ConfigOption, RemoteQueue
    from acphold.client.remote_turn import Replay, UpdateStream
    from acphold.library.agent import CustomCategory, OptionCategory, Value
    from acphold.library.definition import (
        AuthHandler,
        LogoutHandler,
        MethodHandler,
        Middleware,
        SessionHook,
        SignedIn,
    )
    from acphold.library.questions import Outcome
    from acphold.library.session import Severity
    from acphold.library.tools import Location, StepKind
    from acphold.live.agents.extensions import CopiedFiles, SessionCopy
    from acphold.live.mcp.offers import (
        CallResult as McpCallResult,
        MadePrompt as McpMadePrompt,
        Progress as McpProgress,
        Prompt as McpPrompt,
        PromptArgument as McpPromptArgument,
        PromptMessage as McpPromptMessage,
        Resource as McpResource,
        Tool as McpTool,
    )
    from acphold.record.history.display_terminals import DisplayTerminal
    from acphold.record.history.fold import TurnState
    from acphold.record.history.prompt_queue import EndedPrompt, PromptQueue, WaitingPrompt
    from acphold.record.history.raw_update import Role as MessageRole
    from acphold.record.history.timeline import Item, TurnOutcome
    from acphold.record.journal.access import Scope
    from acphold.web.application import Admit, Mounted

__all__ = [
    "AcceptedSocket",
    "Admit",
    "AskForm",
    "AskPage",
    "AskPermission",
    "AuthHandler",
    "ConfigOption",
    "Content",
    "CopiedFiles",
    "CustomCategory",
    "DisplayTerminal",
    "EndedPrompt",
    "Filled",
    "Folder",
    "Handler",
    "Item",
    "Kind",
    "Location",
    "LogoutHandler",
    "McpCallResult",
    "McpMadePrompt",
    "McpProgress",
    "McpPrompt",
    "McpPromptArgument",
    "McpPromptMessage",
    "McpResource",
    "McpTool",
    "MessageRole",
    "MethodHandler",
    "Middleware",
    "Mounted",
    "OptionCategory",
    "Options",
    "Outcome",
    "PermissionAnswer",
    "PlainSocket",
    "Policy",
    "PromptQueue",
    "RemoteQueue",
    "Replay",
    "Rule",
    "Scope",
    "SessionCopy",
    "SessionHook",
    "Severity",
    "SignedIn",
    "StepKind",
    "Token",
    "TurnOutcome",
    "TurnState",
    "UpdateStream",
    "Value",
    "WaitingPrompt",
]

_NAMES = {
    "acphold.live.agents.extensions": "CopiedFiles SessionCopy",
    "acphold.client.advertised": "Content Folder",
    "acphold.client.answers": """
        AskForm AskPage AskPermission Filled Handler Kind PermissionAnswer Policy Rule
    """,
    "acphold.client.connectors": "Options",
    "acphold.client.remote_session": "ConfigOption RemoteQueue",
    "acphold.client.remote_turn": "Replay UpdateStream",
    "acphold.record.history.display_terminals": "DisplayTerminal",
    "acphold.record.history.fold": "TurnState",
    "acphold.record.history.prompt_queue": "EndedPrompt PromptQueue WaitingPrompt",
    "acphold.record.history.raw_update": "MessageRole=Role",
    "acphold.record.history.timeline": "Item TurnOutcome",
    "acphold.record.journal.access": "Scope",
    "acphold.library.agent": "CustomCategory OptionCategory Value",
    "acphold.library.definition": """
        AuthHandler LogoutHandler MethodHandler Middleware SessionHook SignedIn
    """,
    "acphold.library.questions": "Outcome",
    "acphold.library.session": "Severity",
    "acphold.library.tools": "Location StepKind",
    "acphold.live.mcp.offers": """
        McpCallResult=CallResult McpMadePrompt=MadePrompt McpProgress=Progress McpPrompt=Prompt
        McpPromptArgument=PromptArgument McpPromptMessage=PromptMessage McpResource=Resource
        McpTool=Tool
    """,
    "acp_wire.transports.known_servers": "Token",
    "acp_wire.transports.messages": "AcceptedSocket PlainSocket",
    "acphold.web.application": "Admit Mounted",
}
"""The names, by the module that defines them; `Here=There` has another name there."""

_HOMES = {
    name: (module, there or name)
    for module, names in _NAMES.items()
    for name, _, there in (word.partition("=") for word in names.split())
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from acphold.late_names import load_name

    found = load_name(*_HOMES[name])
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*_HOMES]
