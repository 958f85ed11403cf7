"""The agent opens a session again: after its own end, or ours.

First by its own `session/resume`, else by its own `session/load`, whose replay no client is shown.
A fork that it has not seen is opened by its own `session/fork`, where that fits. The last resort is
a new session at the agent, which is handed the earlier conversation with the next prompt. Then
modes and options are set as the person left them.

What an agent remembers is compared where it shows it, by its load (`hub.agent_memory`). So that is
tried before its resume if something may differ: the agent's list has a later time, or what stands
in the session is in `doubt`:

    doubt    what stands behind the last answer in step
    -------  ------------------------------------------------------------------
    ""       nothing
    cut      a turn that a crash or an error ended, or an unanswered hand-over
    cleared  the agent was asked to forget, or turns were left in its own program

Otherwise the agent is believed to have it all. The next prompt brings the agent what it is owed;
the person is told of that here, before it costs.

A session goes over from one agent to another when it is opened with another agent than the one that
it was held with: with `--all-agents`, because a client knows its id, or because a client has named
this agent to continue it (`Setup.stays`). The other agent is handed the conversation like one that
has lost it, and gets none of the modes and options of the first.

    state     what it means                           next
    --------  --------------------------------------  ---------------------------------------
    none      the session is one of the agent's own   due, when another agent opens it
    due       another agent has it open               none, with the first prompt to that one:
                                                      the session is listed with it, and
                                                      remembers the agent it was held with
"""

# See docs/decisions.md, 23 and 24.

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acp_wire import schema
from acp_wire.rpc.requests import Answer
from acp_wire.schema import items, members, splice
from acp_wire.schema.methods import FORK_SESSION
from acp_wire.workspace.threads import Threads
from acphold import errors
from acphold.conversation.history.attributes import Attributes, fold_settings, used_tokens
from acphold.conversation.history.clearings import PLAN, Clearing, command_in, dead_through
from acphold.conversation.history.entries import CLEARED, HANDED_OVER, PROMPT, Origin
from acphold.conversation.history.fold import Doubt
from acphold.conversation.history.handovers import (
    WITH,
    WITHOUT,
    HandedOver,
    choice_in,
    handed_over_in,
    without_choice,
)
from acphold.conversation.history.raw_update import array, text_block
from acphold.journal.journal import Journal, session_of, state_of
from acphold.journal.rows import RowChange
from acphold.known_agents import FORGETS, short_name
from acphold.live.agents.interface import AgentExchange
from acphold.live.hub import bounds
from acphold.live.hub.agent_session import AgentSession, Voice, new_session_id
from acphold.live.hub.annotations import notice
from acphold.live.hub.choices import current_values, is_boolean, option_list, settings_in
from acphold.live.hub.handover import Context, block_text, earlier_conversation
from acphold.live.hub.session import HubSession
from acphold.live.hub.session_list import GivenTitle
from acphold.live.hub.tool_calls import close_children
from acphold.machine.addresses import is_node

if TYPE_CHECKING:
    from acphold.live.hub.agent_memory import Owed

log = logging.getLogger(__name__)


HELD = (
    r"(?i)already (in use|open|running|active)|(in use|open|locked|held) (by|in) another"
    r"|another (process|instance|client|window)|session is (locked|busy|in use)"
)
"""Phrases by which agents say that another process of theirs has a session open; the protocol has
no code for it."""

NOT_FOUND = r"(?i)not (be )?found|unknown|no such|does ?n[o']t exist"
NOT_FOUND_CODES = (-32002, -32602, -32603)
"""Phrases and codes by which agents refuse a prompt in a session that they have lost."""

AGENT_ENDED = "interrupted: the agent ended meanwhile"
"""The reason for the end of a sub-agent that was still at work after a turn."""

WENT_ON = "This conversation continued outside acphold"
WENT_ON_HOW = "The agent has more turns, but does not report them, so they are not shown here."

IN_DOUBT = "It is not clear what the agent remembers of this conversation"
IN_DOUBT_HOW = (
    f"Nothing is passed on to it. Begin your next prompt with {WITH} to pass on all of it."
)

NO_WORDS = "Write your prompt after {}."

FEW = 10
"""A context of less than this part of what it was is nearly empty."""

NO_COMMANDS = b'{"sessionUpdate":"available_commands_update","availableCommands":[]}'


class Restoration(Struct, eq=False):
    """See the module. `_transfer` is due if it is not None.

    `_held_with` is another agent that the conversation began with, here or in the session that this
    one was copied from; `_is_new` says that the agent has not held it itself. `went_on` is set by
    the hub if the agent's own list has a later time than our last entry. `_others` are the agent's
    own sessions of a folder since a time. `_is_unproven` says that it was opened again and no
    prompt was answered since; `_is_lost` that the agent has refused one then: codex-acp 2.6 opens a
    thread that was deleted, and refuses each prompt in it.
    """

    _session: HubSession
    _side: AgentSession
    _journal: Journal
    _title: GivenTitle
    _others: Callable[[str, int], Awaitable[list[str]]]
    doubt: Doubt = ""
    went_on: bool = False
    _owed: Owed | None = None
    _is_in_doubt: bool = False
    _cleared: int = 0
    _cleared_at: int = 0
    _transfer: Origin | None = None
    _held_with: str | None = None
    _is_new: bool = False
    _is_unproven: bool = False
    _is_lost: bool = False
    _unlinked: str | None = None
    _running: asyncio.Task[None] | None = None

    @property
    def is_needless(self) -> bool:
        """True if a prompt can be sent as it is: nothing has to be opened or handed over first."""
        return self._side.is_open and self._owed is None and self._running is None

    async def ready(self, through: int | None = None) -> None:
        """Have the agent run with this session open, and know what it remembers of the entries up
        to `through`, by default all.

        Raises AgentError, also if its folder is on another machine that shares the journal, and
        RemoteError if the agent asks the person to sign in or refuses a new session. One restoring
        serves all callers; cancelling one wait does not cancel the others.
        """
        if self._running is None:
            if self._side.is_open or self._side.is_at_work:
                return  # if it is at work, the next prompt opens it anew
            through = self._session.last_seq if through is None else through
            self._running = asyncio.create_task(self._restore(through), name="restore")
            self._running.add_done_callback(self._over)
        await asyncio.shield(self._running)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("session %s: not restored: %s", self._session.id, error)

    def stop(self) -> None:
        """Stop restoring: the session is closed. Nobody waits for it any longer."""
        if self._running is not None:
            self._running.cancel()

    # -- what the agent is told of it -----------------------------------------------------

    async def outgoing(self, params: bytes, before: int) -> bytes:
        """Return the params of a prompt as the agent gets them, with what it is owed.

        The conversation it is handed ends with entry `before`.
        """
        changes: dict[str, bytes | None] = {}
        if self._owed is not None or self._is_in_doubt:
            prompt = items(members(params)["prompt"])
            choice = choice_in(block_text(prompt[0])) if prompt else ""
            if choice:
                prompt[0] = text_block(without_choice(block_text(prompt[0])))
                if len(prompt) == 1 and not block_text(prompt[0]):
                    raise errors.InvalidParamsError(NO_WORDS.format(choice), field="prompt")
                if self._is_in_doubt and choice == WITH:
                    from acphold.live.hub.agent_memory import Owed  # late: an editor waits

                    self._owed = Owed(self._cleared)
            context = None if choice == WITHOUT else await self._context(before)
            entry = HandedOver(self._session.id, before, "", self._side.agent.key)
            if context is not None:
                mark = context.mark(self._session.id, before)
                prompt = context.join(prompt, mark)
                left_out, its = context.left_out, self._side.id or ""
                entry = replace(entry, digest=mark.digest, left_out=left_out, agent_session=its)
                if self._owed is not None:
                    entry = replace(entry, after=self._owed.after)
            if context is not None or choice == WITHOUT:
                await self._session.publish(HANDED_OVER, [msgspec.json.encode(entry)])
            changes["prompt"] = array(prompt)
        if (due := self._transfer) is not None:
            # Now the session is the agent's own, and not only once it has answered: its requests
            # until then are made under its own name.
            agent, row = self._side.agent, await self._journal.session(self._session.id)
            change = RowChange(agent=agent.key, origins=(*row.origins, due), start=agent.start)
            await self._session.row.change(change)
            self._transfer = None
        if not changes and self._side.id == self._session.id:
            return params  # nearly always: sessions keep the id that their agent gave them
        return splice(self._side.under_its_id(params), changes)

    async def on_understood(self) -> None:
        """Note that the agent knows the conversation: it has answered a prompt, so nothing is
        owed."""
        if self._owed is not None or self.doubt == "cut":
            self.doubt = ""
        if self._is_unproven:
            self._owed, self._is_in_doubt, self._is_unproven = None, False, False
            if self._unlinked is not None:
                await self._session.link(self._side.agent.key, self._unlinked)
                self._unlinked = None

    def on_refusal(self, answer: Answer) -> bool:
        """Return True for an answer to the first prompt since the opening that says that the agent
        does not know the session; then it is opened anew, once."""
        is_new = self._unlinked is not None or self._side.agent.reads_journal
        if is_new or not self._is_unproven or not isinstance(answer, errors.RemoteError):
            return False
        words = str(answer)
        self._is_lost = (
            answer.code in NOT_FOUND_CODES
            and (self._side.id or "") in words
            and re.search(NOT_FOUND, words) is not None
        )
        if self._is_lost:
            log.warning("session %s: the agent has lost it: %s", self._session.id, words)
            self._side.close()
        return self._is_lost

    def on_command(self, prompt: bytes, usage: bytes | None) -> None:
        """Note that the agent has answered a prompt that may be a command to forget everything;
        `usage` is its last `usage_update` before that."""
        if how := command_in(prompt):
            now = used_tokens(self._session.attributes.usage)
            self.on_clearing(how, is_shown=now * FEW < used_tokens(usage))

    def on_clearing(self, how: str, *, is_shown: bool = False) -> None:
        """Note that the person had the agent forget everything, with this command, or by a plan;
        the entry is committed with the next publication."""
        agent = self._side.agent
        if agent.reads_journal:
            return
        name = short_name(agent.key)
        is_shown |= how == PLAN or how in FORGETS.get(name, ())
        entry = msgspec.json.encode(Clearing(how, is_shown, agent=name))
        self._session.hold(CLEARED, [entry])
        self.doubt = "cleared"

    async def _context(self, through: int) -> Context | None:
        """Return the text of what the agent is owed, up to entry `through`; None for nothing."""
        if self._owed is None:
            return None
        state = await state_of(self._journal, self._session.id, through, self._owed.after)
        is_part = self._owed.is_part
        return earlier_conversation(state, self._held_with, is_new=self._is_new, is_part=is_part)

    # -- opened again ---------------------------------------------------------------------

    async def downstream_id(self) -> str | None:
        """Return the id by which the agent has known the conversation; None if it never did."""
        agent = self._side.agent
        if agent.reads_journal:  # it also knows a copy, or another agent's session
            if await session_of(self._journal, agent.key, self._session.id) != self._session.id:
                await self._session.link(agent.key, self._session.id)
            return self._session.id
        known = (await self._journal.session(self._session.id)).downstream_id
        if known and await session_of(self._journal, agent.key, known) == self._session.id:
            return known
        return None  # another agent's id, or one that this agent has reused

    async def _restore(self, through: int) -> None:
        """Open it in one of the ways, best first, and set it as the person left it."""
        side, folder = self._side, self._side.setup.cwd
        may_be_elsewhere = not side.agent.reads_journal and is_node()
        if may_be_elsewhere and not await Threads(1).run(os.path.isdir, folder):
            raise errors.FolderElsewhereError(self._session.id, folder, socket.gethostname())
        for _ in range(bounds.RESTORATIONS):
            if side.is_open:
                return
            await side.agent.ensure()
            if side.id is not None:  # sub-agents that worked on after a turn ended with it
                left = (await self._session.summary()).open_children
                gone = [child for child in left if not side.knows_child(child.session_id)]
                await close_children(self._session, AGENT_ENDED, gone)
            self._owed, self._unlinked, self._is_in_doubt = None, None, False
            wanted = self._session.attributes
            known = await self.downstream_id()  # a new start may have another name, and know it not
            row, key = await self._journal.session(self._session.id), side.agent.key
            agents = (*(origin.agent for origin in row.origins[-1:]), row.agent)
            others = [agent for agent in agents if agent != key]
            # A release of the same agent may have had another name.
            held_with = short_name(others[-1]) if others else None
            self._held_with = None if held_with == short_name(key) else held_with
            self._is_new = bool(row.origins or others) or row.downstream_id is None
            self._transfer = None
            if row.agent != key:
                self._transfer = Origin(row.session_id, row.agent, self._session.last_seq)
            self._cleared = await self._dead_through(through)
            is_lost, self._is_lost, self._is_unproven = self._is_lost, False, True
            if is_lost:
                opened = None
            elif known is not None:
                opened = await self._reopen(known, through)
            else:  # by the agent's own fork of the session that it was copied from, if that fits
                from acphold.live.hub.forks import fork_source  # late: few agents can fork

                opened = None
                source = await fork_source(self._journal, self._session.id, side.agent)
                if source is not None:
                    fork = self._make(FORK_SESSION.name, source)
                    opened = await self._attempt(FORK_SESSION.name, fork)
            if opened is None:
                opened = await self._make(schema.NEW_SESSION.name, None)
            await self._tell(through)
            if self._transfer is not None:
                # The agent's modes and options take the place of those of the agent before.
                entry = splice(settings_in(opened), {"anew": b"true"})
                await self._session.publish("settings", [entry])
                commands = wanted.commands
                if commands is not None and self._session.attributes.commands == commands:
                    await self._session.publish("update", [NO_COMMANDS])
            else:
                await self._set_again(wanted, opened)

    async def _dead_through(self, through: int) -> int:
        """Return the last entry up to which the session was cleared."""
        if self.doubt != "cleared":
            return 0
        page = await self._journal.read_back(
            self._session.id, through + 1, bounds.CLEARINGS, kinds=[CLEARED]
        )
        dead, _, _ = dead_through(page.entries[::-1])
        self._cleared_at = max((it.at for it in page.entries if it.seq == dead), default=0)
        return dead

    async def _tell(self, through: int) -> None:
        """Tell the person what the next prompt brings the agent, before it costs."""
        if (context := await self._context(through)) is not None:
            await self._session.publish("update", [notice(context.title, context.description)])
        elif self._is_in_doubt:
            await self._session.publish("update", [notice(IN_DOUBT, IN_DOUBT_HOW)])

    async def _reopen(self, known: str, through: int) -> bytes | None:
        """Reopen it by the agent's own means; return None if it has none, they failed, or it
        remembers there what was cleared or left."""
        agent = self._side.agent
        ways: list[str] = []
        if agent.capabilities.session_capabilities.resume is not None:
            ways.append(schema.RESUME_SESSION.name)
        if agent.capabilities.load_session:
            ways.append(schema.LOAD_SESSION.name)
        if (self.went_on or self.doubt) and not agent.reads_journal:
            ways.reverse()
        for method in ways:
            try:
                opened = await self._attempt(method, self._open_by(method, known))
                if opened is None:
                    continue
                if agent.reads_journal or await self._is_in_step(through):
                    return opened
            finally:
                self._side.repeated.clear()
                self._side.replay = None
            self._side.close()
            break
        if self._cleared and agent.capabilities.load_session and not agent.reads_journal:
            return await self._open_another(known, through)
        return None

    async def _open_another(self, known: str, through: int) -> bytes | None:
        """Load what the agent kept under another id since it was cleared; None if it has no session
        that is just what is alive."""
        side, session = self._side, self._session
        linked = await self._journal.links.of(session.id)
        others = [its for agent, its in reversed(linked) if agent == side.agent.key]
        others += await self._others(side.setup.cwd, self._cleared_at)
        for other in [*dict.fromkeys(it for it in others if it != known)][: bounds.OTHER_IDS]:
            try:
                opened = await self._attempt(
                    schema.LOAD_SESSION.name, self._open_by(schema.LOAD_SESSION.name, other)
                )
                if opened is not None:
                    if await self._is_in_step(through, is_strange=True):
                        await session.link(side.agent.key, other)
                        return opened
                    side.close()
            finally:
                side.repeated.clear()
                side.replay = None
        return None

    async def _attempt(self, method: str, opening: Coroutine[None, None, bytes]) -> bytes | None:
        """Return the agent's answer to one way of opening it; None if the way is closed."""
        side, session_id = self._side, self._session.id
        try:
            return await opening
        except errors.RemoteError as exc:
            if exc.code == errors.AUTH_REQUIRED or side.agent.reads_journal:
                raise  # its memory is the journal: no other way is left
            if method != FORK_SESSION.name and re.search(HELD, exc.message):
                # Not lost: a new session would diverge from the conversation going on there.
                raise errors.HeldOutsideError(session_id, exc.message) from exc
            log.warning("session %s: the agent refused %s: %s", session_id, method, exc)
        except errors.AgentTimeoutError as exc:
            log.warning("session %s: %s", session_id, exc)
        except errors.AgentExitedError as exc:
            log.warning("session %s: %s during %s", session_id, exc, method)
            await side.agent.ensure()
        side.close()
        return None

    async def _open_by(self, method: str, known: str) -> bytes:
        """Have the agent open the session that it knows by this id."""
        side, setup = self._side, self._side.setup
        side.voice = Voice.REPEATS
        is_load = method == schema.LOAD_SESSION.name
        side.replay = None
        if is_load and not side.agent.reads_journal:
            from acphold.live.hub.agent_memory import Replay  # late: an editor waits

            side.replay = Replay()
        side.bind(known)
        params = setup.params_for(side.agent)
        async with side.exchange(method, params, bounds.REOPEN_SECONDS) as answer:
            side.on_opened(answer, setup)
            side.voice = Voice.REPLAYS if is_load else Voice.COUNTS
            side.heard_at = monotonic()
            if side.is_at_work:
                # A turn that was answered for here, and still runs there, says nothing that
                # belongs here.
                side.voice = Voice.STALE
            if differing := side.differing(self._session.attributes):
                kept = [await self._title.without_worse_title(raw) for raw in differing]
                await self._session.publish("update", kept)
            return answer

    async def _is_in_step(self, through: int, *, is_strange: bool = False) -> bool:
        """Find out what the agent remembers, and so what it is owed; return False if it remembers
        what was cleared or left; of a session that `is_strange`, if that is not all of ours."""
        from acphold.live.hub.agent_memory import compare, kept_turns  # late, as above

        session, side, went_on = self._session, self._side, self.went_on
        self.went_on = False
        if (replay := side.replay) is None:
            if self.doubt == "cut":  # no agent seen so far has kept such a turn
                self._owed = await self._unanswered(through)
            self._is_in_doubt = self.doubt == "cleared" and self._cleared > 0
            outside: list[bytes] | None = None
        else:
            kept = await kept_turns(self._journal, session.id, through, side.agent.key)
            memory, is_over = compare(kept, replay.turns), True
            if (
                memory.owed(kept) is not None
                or memory.is_in_doubt
                or memory.is_revived
                or ("gone" in memory.states and not memory.has_all)
                or (went_on and not memory.outside)
            ):
                is_over = await replay.over()
                memory = compare(kept, replay.turns)
                is_owed = memory.owed(kept) is not None
                self._is_in_doubt = memory.is_in_doubt or (is_owed and not is_over)
            if not is_over and memory.cleared > kept.cleared:  # it may still show the contrary
                self._is_in_doubt = True
            elif memory.cleared > kept.cleared and kept.claim is not None:  # the replay shows it
                shown = replace(kept.claim, shown=True, confirms=True)
                await session.publish(CLEARED, [msgspec.json.encode(shown)])
            self._cleared = memory.cleared
            if memory.is_revived or (is_strange and not memory.has_all):
                return False
            self._owed = None if self._is_in_doubt else memory.owed(kept)
            outside = replay.since(memory.outside) if memory.outside else None
            if memory.has_all and not memory.outside:
                outside = []
        if went_on:
            missing = [notice(WENT_ON, WENT_ON_HOW, "warning")] if outside is None else outside
            if missing:
                await session.publish("update", missing)
        return True

    async def _unanswered(self, through: int) -> Owed | None:
        """Return the last turn as owed, with what was handed over with its prompt."""
        from acphold.live.hub.agent_memory import Owed  # late, as above

        kinds = (PROMPT, HANDED_OVER)
        page = await self._journal.read_back(self._session.id, through + 1, 2, kinds=kinds)
        for entry in page.entries:  # the newest first; a hand-over stands behind its prompt
            told = handed_over_in(entry.raw) if entry.kind == HANDED_OVER else None
            if entry.kind == PROMPT or (told is not None and told.digest):
                return Owed(entry.seq - 1 if told is None else told.after, is_part=True)
        return None

    async def _make(self, method: str, source: str | None) -> bytes:
        """Have the agent make a session: its own fork of `source`, or a new one, which is handed
        the conversation with the next prompt.

        Until the agent has answered that prompt it does not know the conversation. Meanwhile its
        session must be neither restored nor listed: hence the tombstone.
        """
        side, setup = self._side, self._side.setup
        named = None if source is None else schema.encode(source)
        params = splice(setup.params, {"sessionId": named})
        async with AgentExchange(side.agent, method, params, bounds.REOPEN_SECONDS) as answer:
            made = new_session_id(answer)
            if source is None:
                await self._journal.links.link(None, side.agent.key, made)
                from acphold.live.hub.agent_memory import Owed  # late: an editor waits

                self._unlinked, self._owed = made, Owed(self._cleared)
            side.voice = Voice.STALE  # only attributes count: some replay what they have forked
            for early in side.bind(made):
                if kept := side.counting(early):
                    await self._session.publish(early.kind, kept)
            if source is not None:
                await self._session.link(side.agent.key, made)
            side.on_opened(answer, setup)
            return answer

    # -- set as it was --------------------------------------------------------------------

    async def _set_again(self, wanted: Attributes, opened: bytes) -> None:
        """Set modes and options as the person left them; journal the result."""
        parts = members(opened) if opened.startswith(b"{") else {}
        modes = parts.get("modes", b"null")
        if (mode := wanted.current_mode_id) is not None:
            is_told = modes.startswith(b"{")
            if not is_told or members(modes).get("currentModeId") != schema.encode(mode):
                answer = await self._set(schema.SET_SESSION_MODE.name, {"modeId": mode})
                if is_told and answer is not None:
                    modes = splice(modes, {"currentModeId": schema.encode(mode)})
        remembered = option_list(wanted.config_options or b"[]")
        # An agent that reports no options here may have them all the same.
        options = option_list(parts.get("configOptions", b"null")) or remembered
        are_reported = options is not remembered
        for option_id, value in current_values(remembered).items():
            if are_reported and current_values(options).get(option_id, value) == value:
                continue
            params: dict[str, object] = {"configId": option_id, "value": msgspec.Raw(value)}
            if is_boolean(options, option_id):
                params["type"] = "boolean"
            answer = await self._set(schema.SET_SESSION_CONFIG_OPTION.name, params)
            if answer is not None:
                options = option_list(members(answer).get("configOptions", b"null")) or options
        now: dict[str, bytes] = {}
        if modes != b"null":
            now["modes"] = modes
        if options:
            now["configOptions"] = array(options)
        entry = splice(b"{}", now)
        if fold_settings(self._session.attributes, entry) != self._session.attributes:
            await self._session.publish("settings", [entry])

    async def _set(self, method: str, params: Mapping[str, object]) -> bytes | None:
        try:
            async with self._side.exchange(
                method, schema.encode(params), bounds.SETTING_SECONDS
            ) as answer:
                return answer
        except (errors.RemoteError, errors.AgentTimeoutError) as exc:
            log.warning("session %s: %s after restoring: %s", self._session.id, method, exc)
            return None
