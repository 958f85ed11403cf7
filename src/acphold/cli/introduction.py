"""Meeting an agent for `acphold doctor`: does it answer, and what can it do by itself?"""

from __future__ import annotations

import time
from collections.abc import Sequence

from acphold import __version__
from acphold.agents.wrapped import ProcessAgent
from acphold.cli.checkup import Finding
from acphold.cli.look import on_one_line
from acphold.errors import AcpholdError, MethodNotFoundError, RemoteError
from acphold.rpc import NotificationReceived
from acphold.schema import (
    PROTOCOL_VERSION,
    AgentCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    decode,
    encode,
)
from acphold.server.capabilities import with_ours


async def checked_agent(command: Sequence[str], start_timeout: float) -> list[Finding]:
    """Start it as `wrap` does, introduce ourselves, end it; `start_timeout` in seconds."""
    agent = ProcessAgent(command, _Deaf(), start_timeout=start_timeout)
    began = time.monotonic()
    try:
        answer = await agent.initialize(_INTRODUCTION)
    except AcpholdError as error:
        refused = f"{command[0]} refused `initialize`: " if isinstance(error, RemoteError) else ""
        return [Finding(on_one_line(f"{refused}{error}"), _ADVICE)]
    finally:
        await agent.aclose()
    return _met(command, answer, time.monotonic() - began)


def _met(command: Sequence[str], answer: bytes, seconds: float) -> list[Finding]:
    raw = decode(InitializeResponse, answer).value
    own = session_methods(raw.agent_capabilities)
    shown = session_methods(decode(InitializeResponse, with_ours(answer)).value.agent_capabilities)
    added = [method for method in shown if method not in own]
    findings = [
        Finding(f"{_name(raw.agent_info, command)} answered in {seconds:.2f} s"),
        Finding(f"by itself: {', '.join(own) or 'no session method but new and prompt'}"),
        Finding(f"acphold adds: {', '.join(added) or 'what a journal keeps that it may lose'}"),
        Finding(_afterwards(own)),
    ]
    if raw.auth_methods:
        names = ", ".join(on_one_line(method.name) for method in raw.auth_methods)
        findings.append(Finding(f"it may ask to sign in first: {names}"))
    return findings


def session_methods(can: AgentCapabilities) -> list[str]:
    """The methods on existing sessions that an agent offers."""
    sessions = can.session_capabilities
    offered = {
        "session/list": sessions.list,
        "session/load": can.load_session or None,
        "session/resume": sessions.resume,
        "session/close": sessions.close,
        "session/delete": sessions.delete,
    }
    return [method for method, capability in offered.items() if capability is not None]


def _afterwards(own: Sequence[str]) -> str:
    for method in ("session/resume", "session/load"):
        if method in own:
            return f"after a restart it gets its own session back, by {method}"
    return "after a restart it is handed the earlier conversation with the next prompt"


def _name(info: Implementation | None, command: Sequence[str]) -> str:
    if info is None:
        return on_one_line(command[0])
    return on_one_line(f"{info.title or info.name} {info.version}")


_ADVICE = (
    "run the command by itself: an ACP agent waits silently for JSON on stdin. Does it need "
    "another argument, like --acp, or the full path of a program?"
)


class _Deaf:
    """Hears nothing of what the agent reports: there is no session yet."""

    async def on_updates(self, agent_session: str, kind: str, raws: Sequence[bytes]) -> None:
        return None

    async def on_notification(self, notification: NotificationReceived) -> None:
        return None

    async def on_request(self, method: str, params: bytes) -> bytes:
        raise MethodNotFoundError(method)


_INTRODUCTION = encode(
    InitializeRequest(
        protocol_version=PROTOCOL_VERSION,
        client_info=Implementation(name="acphold-doctor", version=__version__),
    )
)
