"""The names of types that appear in signatures, for annotations of your own.

from acphold.types import Policy

CAREFUL: Policy = {"read": "allow", "*": "ask"}
"""

from __future__ import annotations

from acphold.agents.extensions import CopiedFiles, SessionCopy
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
from acphold.history.display_terminals import DisplayTerminal
from acphold.history.fold import TurnState
from acphold.history.prompt_queue import EndedPrompt, PromptQueue, WaitingPrompt
from acphold.history.raw_update import Role as MessageRole
from acphold.history.timeline import Item, TurnOutcome
from acphold.journal.access import Scope
from acphold.library.agent import Value
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
from acphold.mcp.offers import (
    CallResult as McpCallResult,
    MadePrompt as McpMadePrompt,
    Progress as McpProgress,
    Prompt as McpPrompt,
    PromptArgument as McpPromptArgument,
    PromptMessage as McpPromptMessage,
    Resource as McpResource,
    Tool as McpTool,
)
from acphold.transports.messages import AcceptedSocket, PlainSocket
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
    "TurnOutcome",
    "TurnState",
    "UpdateStream",
    "Value",
    "WaitingPrompt",
]
