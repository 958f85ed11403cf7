"""What answers prompts, as the hub sees it: something that is asked ACP methods and reports back.

Session ids on this seam are the agent's own; the hub keeps the map to the ids clients know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from acphold.rpc import NotificationReceived
from acphold.rpc.peer import OnAnswer
from acphold.schema import AgentCapabilities


class Listener(Protocol):
    """Who hears what an agent reports. All are called in the order of the wire."""

    async def on_updates(self, agent_session: str, kind: str, raws: Sequence[bytes]) -> None:
        """Updates of one session that came in a row.

        `kind` is "update" (each raw is an update object) or "params" (each raw is the whole
        params object, because it carries more than the session id and the update).
        """

    async def on_notification(self, notification: NotificationReceived) -> None:
        """Any other notification: an extension's, or one newer than this release."""

    async def on_request(self, method: str, params: bytes) -> bytes:
        """What the agent asks of a client; the result as JSON bytes."""


class Agent(Protocol):
    """A coding agent, wherever it runs."""

    key: str
    """Which agent this is, across restarts: sessions are listed only under their own."""

    capabilities: AgentCapabilities
    """What it advertised; empty before `initialize`."""

    reads_journal: bool
    """Whether its memory of a session is our journal: then it lacks nothing that is in there."""

    generation: int
    """How often it has been started. What a session was restored in is lost with the next."""

    @property
    def alive(self) -> bool:
        """Whether it runs and has been initialized."""

    async def initialize(self, params: bytes) -> bytes:
        """Start it and introduce the client; the `initialize` result as it came, JSON bytes.

        Raises AgentStartError when it cannot be started or does not answer, RemoteError when it
        refuses.
        """

    async def ensure(self) -> None:
        """Start it again if it has ended; raises as `initialize`."""

    async def restart(self) -> None:
        """End it, whatever it does, and start it again; raises as `initialize`."""

    async def ask(self, method: str, params: bytes, on_answer: OnAnswer | None = None) -> bytes:
        """Call an ACP method; AgentExitedError if it ends before it answers."""

    def begin(self, method: str, params: bytes, on_answer: OnAnswer) -> None:
        """Send a request without waiting; `on_answer` is called once, in the order of the wire.

        It gets the result, RemoteError or AgentExitedError. Raises AgentExitedError when the
        agent does not run.
        """

    async def tell(self, method: str, params: bytes) -> None:
        """Send a notification; dropped when the agent does not run."""

    async def aclose(self) -> None:
        """End it and all it has started, within seconds."""
