"""The names of types that appear in signatures, for annotations of your own.

from acphold.types import Policy

CAREFUL: Policy = {"read": "allow", "*": "ask"}

Each is imported when it is first used, as in `acphold`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # see quick_start
if TYPE_CHECKING:
    from acp_wire.transports.known_servers import Token as Token
    from acphold.client.advertised import (
        Content as Content,
        Folder as Folder,
        OpenOptions as OpenOptions,
    )
    from acphold.client.answers import (
        AskForm as AskForm,
        AskPage as AskPage,
        AskPermission as AskPermission,
        Filled as Filled,
        Handler as Handler,
        Kind as Kind,
        PermissionAnswer as PermissionAnswer,
        Policy as Policy,
        Rule as Rule,
    )
    from acphold.client.connectors import Options as Options
    from acphold.client.remote_session import (
        ConfigOption as ConfigOption,
        RemoteQueue as RemoteQueue,
    )
    from acphold.client.remote_turn import Replay as Replay, UpdateStream as UpdateStream
    from acphold.conversation.history import raw_update
    from acphold.conversation.history.display_terminals import DisplayTerminal as DisplayTerminal
    from acphold.conversation.history.fold import TurnStatus as TurnStatus
    from acphold.conversation.history.prompt_queue import (
        EndedPrompt as EndedPrompt,
        PromptQueue as PromptQueue,
        WaitingPrompt as WaitingPrompt,
    )
    from acphold.conversation.history.timeline import Item as Item, TurnOutcome as TurnOutcome
    from acphold.journal.access import Scope as Scope
    from acphold.library.agent import (
        CustomCategory as CustomCategory,
        OptionCategory as OptionCategory,
        Value as Value,
    )
    from acphold.library.definition import (
        AuthHandler as AuthHandler,
        LogoutHandler as LogoutHandler,
        MethodHandler as MethodHandler,
        Middleware as Middleware,
        SessionHook as SessionHook,
        SignedIn as SignedIn,
    )
    from acphold.library.questions import Outcome as Outcome
    from acphold.library.session import Severity as Severity
    from acphold.library.tools import Location as Location, StepKind as StepKind
    from acphold.live.agents.extensions import (
        CopiedFiles as CopiedFiles,
        SessionCopy as SessionCopy,
    )
    from acphold.mcp_servers import offers
    from acphold.web.application import Admit as Admit, Mounted as Mounted

    McpCallResult = offers.CallResult
    McpMadePrompt = offers.MadePrompt
    McpProgress = offers.Progress
    McpPrompt = offers.Prompt
    McpPromptArgument = offers.PromptArgument
    McpPromptMessage = offers.PromptMessage
    McpResource = offers.Resource
    McpTool = offers.Tool
    MessageRole = raw_update.Role

_NAMES = {
    "acphold.live.agents.extensions": "CopiedFiles SessionCopy",
    "acphold.client.advertised": "Content Folder OpenOptions",
    "acphold.client.answers": """
        AskForm AskPage AskPermission Filled Handler Kind PermissionAnswer Policy Rule
    """,
    "acphold.client.connectors": "Options",
    "acphold.client.remote_session": "ConfigOption RemoteQueue",
    "acphold.client.remote_turn": "Replay UpdateStream",
    "acphold.conversation.history.display_terminals": "DisplayTerminal",
    "acphold.conversation.history.fold": "TurnStatus",
    "acphold.conversation.history.prompt_queue": "EndedPrompt PromptQueue WaitingPrompt",
    "acphold.conversation.history.raw_update": "MessageRole=Role",
    "acphold.conversation.history.timeline": "Item TurnOutcome",
    "acphold.journal.access": "Scope",
    "acphold.library.agent": "CustomCategory OptionCategory Value",
    "acphold.library.definition": """
        AuthHandler LogoutHandler MethodHandler Middleware SessionHook SignedIn
    """,
    "acphold.library.questions": "Outcome",
    "acphold.library.session": "Severity",
    "acphold.library.tools": "Location StepKind",
    "acphold.mcp_servers.offers": """
        McpCallResult=CallResult McpMadePrompt=MadePrompt McpProgress=Progress McpPrompt=Prompt
        McpPromptArgument=PromptArgument McpPromptMessage=PromptMessage McpResource=Resource
        McpTool=Tool
    """,
    "acp_wire.transports.known_servers": "Token",
    "acphold.web.application": "Admit Mounted",
}
"""The names, by the module that defines them; `Here=There` has another name there."""

_HOMES = {
    name: (module, there or name)
    for module, names in _NAMES.items()
    for name, _, there in (word.partition("=") for word in names.split())
}

if not TYPE_CHECKING:  # a type checker reads it in the imports
    __all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from acphold.quick_start import load_name

    found = load_name(*_HOMES[name])
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*_HOMES]
