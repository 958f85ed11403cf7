"""A session as its client sees it: prompts out, updates in, its state, and its queue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from acp_wire.schema import (
    CLOSE_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    AvailableCommand,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    ContentBlock,
    PlanEntry,
    SessionConfigBoolean,
    SessionConfigSelect,
    SessionMode,
    SessionModeState,
    Update,
    UsageUpdate,
    decode,
    encode,
    splice,
)
from acp_wire.schema.shapes import UnknownVariant
from acp_wire.tasks import finish
from acphold.client.advertised import in_ms
from acphold.client.remote_turn import RemoteTurn, Replay, TurnFeed, UpdateStream, as_update
from acphold.client.session_feed import QueueReport, SessionFeed
from acphold.conversation.history.prompt_queue import PromptQueue, QueueChange
from acphold.conversation.history.raw_update import encode_object
from acphold.errors import ConnectionLostError
from acphold.live.agents.capabilities import QUEUE_METHOD
from acphold.live.agents.extensions import FORK_METHOD, CopyRequest, SessionCopy

if TYPE_CHECKING:
    from acphold.client.advertised import Content
    from acphold.client.uplink import Uplink
    from acphold.conversation.history.fold import SessionState


class RemoteQueue:
    """The queued prompts in a session: `RemoteSession.queue`.

    acphold begins one after the other, with or without a client. It holds them after a turn that
    did not end as it should, and when another process has opened the session anew. All methods
    raise CapabilityError for an agent without acphold in front, and RemoteError if the change does
    not fit, as for a prompt that has begun.
    """

    def __init__(self, feed: SessionFeed, uplink: Uplink) -> None:
        self._feed = feed
        self._uplink = uplink

    def __repr__(self) -> str:
        held = f", held: {self.state.held}" if self.state.held else ""
        return f"<RemoteQueue of {self._feed.id!r}: {len(self.state.waiting)} wait{held}>"

    @property
    def is_kept(self) -> bool:
        """True if there is an acphold at the other end that keeps it."""
        return self._uplink.keeps_queue

    @property
    def state(self) -> PromptQueue:
        """The queue now; empty if nobody keeps one."""
        return self._feed.queue

    async def add(self, *content: Content, at: datetime | None = None, before: str = "") -> str:
        """Add a prompt, with content as for `RemoteSession.prompt`; return its id.

        It begins no earlier than `at`, which has a zone. It comes last, or in front of the prompt
        with the id `before`.
        """
        return await self._change(
            QueueChange("add", prompt=self._prompt(content), at=in_ms(at), before=before)
        )

    async def take(self, prompt_id: str) -> tuple[ContentBlock, ...]:
        """Return a prompt's content, to edit it: it does not begin until `edit` or `drop`, or this
        client has been gone for a minute."""
        asked = {"change": encode(QueueChange("take", prompt_id)), "read": encode(prompt_id)}
        return (await self._ask(**asked)).prompt

    async def edit(self, prompt_id: str, *content: Content) -> None:
        """Replace the content of a prompt; without any, it stands as before."""
        as_it_was = QueueChange("edit", prompt_id)
        new = replace(as_it_was, prompt=self._prompt(content)) if content else as_it_was
        await self._change(new)

    async def reschedule(self, prompt_id: str, at: datetime | None) -> None:
        """Do not begin a prompt before this time, which has a zone; None removes the time."""
        await self._change(QueueChange("edit", prompt_id, at=in_ms(at)))

    async def move(self, prompt_id: str, before: str = "") -> None:
        """Put a prompt before the one with this id; by default, last."""
        await self._change(QueueChange("move", prompt_id, before=before))

    async def drop(self, prompt_id: str) -> None:
        """Take a prompt out of the queue."""
        await self._change(QueueChange("drop", prompt_id))

    async def hold(self) -> None:
        """Begin no more prompts until `go`."""
        await self._change(QueueChange("hold"))

    async def go(self) -> None:
        """Continue with them, whatever held them."""
        await self._change(QueueChange("go"))

    async def set(self, *, goes_on: bool | None = None, restarts: bool | None = None) -> None:
        """Say whether it continues after a turn that failed or was refused, and whether it does so
        when another process opens the session; None leaves that as it is."""
        await self._change(
            QueueChange(
                "set",
                goes_on=UNSET if goes_on is None else goes_on,
                restarts=UNSET if restarts is None else restarts,
            )
        )

    async def content(self, prompt_id: str) -> tuple[ContentBlock, ...]:
        """Return a prompt's content."""
        return (await self._ask(read=encode(prompt_id))).prompt

    def _prompt(self, content: tuple[Content, ...]) -> Raw:
        return Raw(encode(self._feed.advertised.blocks(content)))

    async def _change(self, change: QueueChange) -> str:
        return (await self._ask(change=encode(change))).id

    async def _ask(self, **asked: bytes) -> QueueReport:
        await self._uplink.require_acphold("keep a queue of prompts")
        params = splice(b"{}", {"sessionId": encode(self._feed.id), **asked})
        answer = await self._uplink.ask_raw(QUEUE_METHOD, params, on_result=self._feed.hear_queue)
        return decode(QueueReport, answer).value


ConfigOption: TypeAlias = SessionConfigSelect | SessionConfigBoolean
"""An option of a known kind."""


class RemoteSession:
    """A conversation with an agent that we are connected to; made by `RemoteAgent`."""

    def __init__(self, feed: SessionFeed, uplink: Uplink) -> None:
        self._feed = feed
        self._uplink = uplink
        self._queue = RemoteQueue(feed, uplink)

    def __repr__(self) -> str:
        return f"<RemoteSession {self.id!r} in {self.cwd!r}{' in a turn' if self.in_turn else ''}>"

    @property
    def id(self) -> str:
        """The agent's id of it."""
        return self._feed.id

    @property
    def agent_name(self) -> str:
        """The name of its agent, for people."""
        return self._feed.advertised.name

    @property
    def cwd(self) -> str:
        """Its working directory, absolute."""
        return self._feed.roots[0]

    @property
    def additional_directories(self) -> tuple[str, ...]:
        """Its other folders, absolute."""
        return self._feed.roots[1:]

    @property
    def replay(self) -> Replay:
        """The updates that `load_session` replayed, apart from live ones."""
        return self._feed.replay

    # -- turns ----------------------------------------------------------------------------

    def prompt(self, *content: Content, timeout: float | None = None) -> RemoteTurn:
        """Begin a turn: the prompt is on its way when this returns.

        An image or a text file is sent whole if the agent accepts that, any other path as a link.
        Raises CapabilityError for content that the agent does not accept, MissingFileError, and
        AgentBusyError while another turn of this session runs; after a cancelled one it waits until
        that has ended. After `timeout` seconds the turn is cancelled, and ends with
        AgentTimeoutError.
        """
        return RemoteTurn(self._begin(content, timeout))

    def _begin(self, content: Sequence[Content], timeout: float | None) -> TurnFeed:
        turn = self._feed.begin(encode(self.blocks(*content)))
        if timeout is not None and not turn.is_over:
            turn.limit(timeout)
        if not turn.is_over and not turn.follows:
            with suppress(ConnectionLostError):  # then waiting for the turn reports it
                turn.send()
        return turn

    def blocks(self, *content: Content) -> tuple[ContentBlock, ...]:
        """Return what `prompt` would send; raises as it does."""
        return self._feed.advertised.blocks(content)

    @property
    def in_turn(self) -> bool:
        """True while a turn of ours runs."""
        return self._feed.turn is not None

    @property
    def queue(self) -> RemoteQueue:
        """Its queued prompts."""
        return self._queue

    @property
    def has_steering(self) -> bool:
        """True if `steer` works."""
        return self._feed.advertised.has_steering

    async def steer(self, *content: Content) -> bool:
        """Send a message into the running turn, whoever began it, with content as for `prompt`.

        Return False if the agent has not taken it, mostly because no turn runs any more. Raises
        CapabilityError for an agent without a method for it, RemoteError if it refuses. After
        ConnectionLostError it is unknown whether the agent has it.
        """
        self._feed.advertised.to_steer()
        return await self._uplink.steer(self.id, encode(self.blocks(*content)))

    def cancel(self) -> None:
        """Cancel the running turn; updates come until it has ended.

        Unfinished tool calls are `cancelled` in the state at once, and the agent's open requests
        are answered so.
        """
        self._feed.cancel()

    def updates(self) -> UpdateStream:
        """Return all updates from now on, in turns and between them.

        The first reader gets them from the opening of the session on, up to 256 KiB. Drop it when
        you stop reading; else the agent has to wait.
        """
        return self._feed.stream()

    # -- what it is set to ----------------------------------------------------------------

    async def set_mode(self, mode_id: str) -> None:
        """Change the mode. RemoteError if refused."""
        for option in self.config_options:  # if it has both, use the option (spec v1)
            if option.category == "mode" and isinstance(option, SessionConfigSelect):
                await self.set_option(option.id, mode_id)
                return
        request = SET_SESSION_MODE.params(session_id=self.id, mode_id=mode_id)
        await self._uplink.ask_raw(
            SET_SESSION_MODE.name,
            encode(request),
            on_result=lambda _: self._feed.live.set_mode(mode_id),
        )

    async def set_option(self, option_id: str, value: str | bool) -> tuple[ConfigOption, ...]:
        """Change a config option; return all of them afterwards. RemoteError if refused."""
        request = SET_SESSION_CONFIG_OPTION.params(
            session_id=self.id,
            config_id=option_id,
            value=value,
            type="boolean" if isinstance(value, bool) else UNSET,
        )
        await self._uplink.ask_raw(
            SET_SESSION_CONFIG_OPTION.name, encode(request), on_result=self._feed.live.take_settings
        )
        return self.config_options

    async def fork(
        self,
        *,
        at: int | None = None,
        before: bool = False,
        files: bool | str = False,
        include: bool = False,
    ) -> SessionCopy:
        """Copy it into a new session; open that with `resume_session`.

        The copy has the turns that have ended, up to the one with entry `at`, or only those
        `before` it. With `files` its folder is new, beside the project or at this absolute path,
        with the files that were kept at that moment; `include` also copies ignored files that
        `.worktreeinclude` names. Raises CapabilityError for an agent without acphold in front, and
        RemoteError if nothing was kept.
        """
        await self._uplink.require_acphold("copy sessions")
        asked = CopyRequest(self.id, at, before, files, include)
        answer = await self._uplink.ask_raw(FORK_METHOD, encode(asked))
        return decode(SessionCopy, answer).value

    async def close(self) -> None:
        """Close it, which cancels its turn."""
        self._feed.advertised.check("close")
        await self._uplink.ask(CLOSE_SESSION, CLOSE_SESSION.params(session_id=self.id))
        self._uplink.drop(self.id, self._feed)
        self._feed.end(None)
        await finish(partial(self._uplink.duties.forget, self.id))

    # -- its state ------------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        """Everything in it so far, folded."""
        return self._feed.live.value

    @property
    def mode(self) -> str | None:
        """The id of the current mode; None if the agent has no modes."""
        return self.state.attributes.current_mode_id

    @property
    def modes(self) -> tuple[SessionMode, ...]:
        """The modes that it can be set to."""
        attributes = self.state.attributes
        if attributes.available_modes is None or attributes.current_mode_id is None:
            return ()
        current = msgspec.json.encode(attributes.current_mode_id)
        raw = {"currentModeId": current, "availableModes": attributes.available_modes}
        return decode(SessionModeState, encode_object(raw)).value.available_modes

    @property
    def config_options(self) -> tuple[ConfigOption, ...]:
        """Its config options of known kinds."""
        raw = self.state.attributes.config_options
        found = _attributes("config_option_update", "configOptions", raw)
        options = found.config_options if isinstance(found, ConfigOptionUpdate) else ()
        return tuple(it for it in options if not isinstance(it, UnknownVariant))

    @property
    def commands(self) -> tuple[AvailableCommand, ...]:
        """The present slash commands."""
        raw = self.state.attributes.commands
        found = _attributes("available_commands_update", "availableCommands", raw)
        return found.available_commands if isinstance(found, AvailableCommandsUpdate) else ()

    @property
    def plan(self) -> tuple[PlanEntry, ...]:
        """The newest plan."""
        return self.state.plan

    @property
    def usage(self) -> UsageUpdate | None:
        """The last report of context and cost."""
        raw = self.state.attributes.usage
        found = None if raw is None else as_update(raw)
        return found if isinstance(found, UsageUpdate) else None

    @property
    def title(self) -> str | None:
        """Its title in lists."""
        return self.state.attributes.title


def _attributes(kind: str, member: str, raw: bytes | None) -> Update | None:
    """Return a part of the attributes by its type: read as the update that set it."""
    if raw is None:
        return None
    return as_update(encode_object({"sessionUpdate": msgspec.json.encode(kind), member: raw}))
