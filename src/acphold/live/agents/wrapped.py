"""A wrapped program: an existing agent, spoken to over its stdin and stdout.

It is started when needed, introduced with the first client's capabilities, and started again after
it has ended. Its messages go to a listener, the hub's router; an answer goes to its call (see
`agents.interface`). The error for one that has ended names the exit status, and the program's last
words on stderr.

Each session may get an MCP server of ours, which an agent may refuse: ACP has no capability for MCP
servers on stdio, which agents have to support (spec v1, session setup, "MCP Servers"), and some do
not. Then the request is repeated without it, and the agent is not offered it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import msgspec

from acp_wire import schema
from acp_wire.processes.exit_status import describe
from acp_wire.processes.program import Program, launch
from acp_wire.rpc import MAX_MESSAGE, CutNotification, NotificationReceived, Peer
from acp_wire.rpc.requests import Answer, Request
from acp_wire.schema import items, members, splice
from acp_wire.schema.methods import REQUESTS
from acp_wire.surroundings import Surroundings
from acp_wire.tasks import TaskSet, finish, timeout
from acp_wire.transports.child import ChildProcess
from acphold import errors
from acphold.conversation.history import raw_update
from acphold.conversation.history.raw_update import message_without_marks, string
from acphold.journal.lineage import identity
from acphold.known_agents import TERMS_VARIABLES
from acphold.live.agents.air import index_methods
from acphold.live.agents.capabilities import (
    forks,
    introduction_for_agent,
    keeps_sessions,
    with_front_journal,
)
from acphold.live.agents.client_methods import may_ask
from acphold.live.agents.identity import agent_key, display_name, recognize
from acphold.live.agents.interface import (
    AgentCall,
    AgentListener,
    AgentRequest,
    HubAgent,
    Unheard,
    runs,
    session_of,
)
from acphold.live.agents.terms import Terms, ToldTerms, variables_in
from acphold.machine.begun import take

if TYPE_CHECKING:
    from acphold.journal.journal import Journal


log = logging.getLogger(__name__)

STATUS_TIMEOUT = 2.0
"""Seconds for a program to end once its stdout has; one that stays is ended."""

LAST_WORDS = 1.0
"""Seconds for its stdout to end once the program has; a child of its own may hold it open."""

MOST_LETTERS = 300
"""Most characters of the last words, after a sentence."""


async def exit_error(name: str, process: ChildProcess | None) -> errors.AgentExitedError:
    """Return the error for the program `name` once it has ended, within STATUS_TIMEOUT."""
    if process is not None:
        with suppress(TimeoutError):
            async with timeout(STATUS_TIMEOUT):
                await process.wait()
    return how_it_ended(name, process)


def how_it_ended(name: str, process: ChildProcess | None) -> errors.AgentExitedError:
    """Return the error for it, as far as is known now; None is a program that we have ended."""
    if process is None:
        return errors.AgentExitedError(f"{name} was ended", "ended by acphold", "")
    code = process.returncode
    status = "it closed its stdout" if code is None else describe(code)
    return errors.AgentExitedError(
        f"{name} ended ({status}){last_line(process)}", status, process.stderr_tail()
    )


def last_line(process: ChildProcess | None) -> str:
    """Return the program's last words on stderr, to put after a sentence."""
    words = "" if process is None else process.last_words()
    return f": {words[:MOST_LETTERS]}" if words else ""


def printed(peer: Peer) -> str:
    """Return what a program wrote to stdout in place of messages, to put after a sentence."""
    said = " ".join(peer.unreadable.decode(errors="replace").split())
    return f'; it wrote to stdout: "{said[:MOST_LETTERS]}"' if said else ""


async def say_slow(name: str, process: ChildProcess, seconds: float) -> None:
    """Say every SLOW_SECONDS, where the program's stderr goes, that we wait for it."""
    waited = 0.0
    while True:
        await asyncio.sleep(SLOW_SECONDS)
        waited += SLOW_SECONDS
        process.say(
            f"acphold: waiting for {name}, which has not answered `initialize` for {waited:g} s; "
            f"it may be downloading, and is given up after {seconds:g} s"
        )


def without_our_code(error: errors.RemoteError) -> errors.RemoteError:
    """Return an agent's error; only its message, if it has a code of ours."""
    is_ours = error.code in OUR_CODES
    return errors.RemoteError(errors.AcpError.code, error.message) if is_ours else error


async def hang_up_behind(process: ChildProcess, peer: Peer, pump: asyncio.Task[None]) -> None:
    """End the connection when the program ends, even if another process holds its stdout open."""
    await process.wait()
    peer.hold_no_more()
    await asyncio.wait([pump], timeout=LAST_WORDS)
    await process.transport.aclose()


AddedServer = Callable[[str], schema.McpServerStdio]
"""Makes the server for a session in this folder."""


class AddedServers:
    """The server that each session gets, until the agent has refused one; None for no server."""

    def __init__(self, make: AddedServer | None = None) -> None:
        self._make = make

    def add_to(self, method: str, params: bytes) -> bytes:
        """Return the params of a request, with the server if they do not have it already.

        Only requests that open a session have `mcpServers`.
        """
        if self._make is None or not REQUESTS[method].opens:
            return params
        try:
            parts = members(params)
            given = parts.get("mcpServers", b"null")
            there = [] if given == b"null" else items(given)
            server = self._make(msgspec.json.decode(parts.get("cwd", b'""'), type=str))
        except (errors.InvalidParamsError, msgspec.MsgspecError):
            return params  # for the agent to refuse
        for other in map(raw_update.members, there):
            program = os.path.basename(string(other.get("command")) or "")
            words = [program, *map(string, raw_update.items(other.get("args", b"[]")))]
            is_ours = "acphold" in words and "mcp" in words[words.index("acphold") + 1 :]
            if is_ours or string(other.get("name")) == server.name:
                return params
        # Added on the way to the agent only: otherwise a session that a client opens again with the
        # same servers would look changed.
        return splice(params, {"mcpServers": b"[%b]" % b",".join([*there, schema.encode(server)])})

    def are_refused(self, answer: Answer) -> bool:
        """Return True if a request with the server has to be sent again without it."""
        if (
            not isinstance(answer, errors.RemoteError)
            or answer.code != errors.InvalidParamsError.code
        ):
            return False
        log.warning("the agent refused the MCP server of acphold: %s", answer)
        self._make = None
        return True


OUR_CODES = (errors.HELD_ELSEWHERE, errors.OTHER_AGENT, errors.JOURNAL_FAILED)
"""Codes by which acphold sends a client elsewhere, or says that the journal has failed; an agent's
errors have others."""

START_TIMEOUT = 300.0
"""Seconds for the answer to `initialize`; programs that download themselves first are slow."""

NOT_SENT = -1
"""Stands for the id of a request that will be sent again."""

SLOW_SECONDS = 20.0
"""Seconds after which the client's log says that we still wait for it, again and again."""

STUCK_BYTES = 256 * 1024
STUCK_SECONDS = 2.0
"""Seconds that a notification waits for a program that has so many bytes yet to read: clients wait
behind it."""


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a program.

    Its sessions are kept under `name`; by default under the name that it gives, else under the
    command's (`agents.identity`). Error messages call it `called`, or by its program. It starts in
    the folder `cwd`, if given; its stderr goes to the file `stderr_log`, and to the
    descriptors `relay_to`. Each of
    its sessions also gets the MCP server `added`. Messages have up to `limit` bytes.
    """

    name: str | None = None
    called: str | None = None
    cwd: str | None = None
    start_timeout: float = START_TIMEOUT
    limit: int = MAX_MESSAGE
    stderr_log: str | None = None
    relay_to: tuple[int, ...] = (2,)
    added: AddedServer | None = None


DEFAULTS = ProcessOptions()


class ProcessAgent(HubAgent):
    """Starts CMD, introduces the client, starts it again after a crash.

    It starts in these `surroundings`, again in the newest (`HubAgent`), and is told its terms then
    (`agents.terms`). If it is an acphold with the same `journal`, it is told that its sessions are
    kept here.
    """

    takes_a_moment = True

    @staticmethod
    def start_quietly(_: Program) -> None:
        """Tell nobody of a program that was started."""

    on_start: ClassVar[Callable[[Program], None]] = start_quietly
    """Called with each program that was started."""

    def __init__(
        self,
        command: Sequence[str],
        listener: AgentListener,
        surroundings: Surroundings,
        options: ProcessOptions = DEFAULTS,
        *,
        journal: Journal | None = None,
    ) -> None:
        super().__init__(surroundings)
        self.command = tuple(command)
        self.shell = surroundings.env.get("SHELL", "")
        self.key = options.name or agent_key(command, surroundings.folder)
        self.known_as = recognize(command, surroundings.folder, options.name, options.called)
        self.called = options.called or display_name(command, surroundings.folder)
        self._told = ToldTerms(self.called, variables_in(surroundings.env, self.known_as))
        self._signing_in = asyncio.Lock()
        self._options = options
        self._listener = listener
        self._launched: Program | None = None
        self._added = AddedServers(options.added)
        self._journal = journal
        self._kept_in_front: str | None = None  # our journal, for an agent that has one, too
        self._introduction = b"{}"
        self._starting = asyncio.Lock()
        self._process: ChildProcess | None = None
        self._peer: Peer | None = None
        self._tasks = TaskSet()
        self._calls: dict[AgentCall, int] = {}  # to the ids of their requests
        self._ready = False
        self._stuck = False

    # -- starting -------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        return self._ready and self._peer is not None and not self._peer.is_lost

    def launch(self) -> None:
        """Start the program already, for a client that comes at once."""
        with suppress(errors.AgentStartError):  # the client is told when it comes
            found = take(self.command, self.surroundings, self._options.cwd)
            self._launched = found or self._launch()

    async def initialize(self, params: bytes) -> bytes:
        self._introduction = introduction_for_agent(params)
        async with self._starting:
            return await self._start()

    async def ensure(self) -> None:
        async with self._starting:
            if not self.alive:
                await self._start()
            elif self._told.are_due and self._peer is not None:
                await self._told.tell(self._peer)

    async def restart(self) -> None:
        async with self._starting:
            await self._stop()
            await self._start()

    async def stop(self) -> bool:
        if self._process is not None:
            await self._process.stop()
        return True

    async def go_on(self) -> None:
        if self._process is not None:
            await self._process.go_on()

    def _launch(self) -> Program:
        return launch(self.command, self.surroundings, cwd=self._options.cwd)

    def _take_newest_surroundings(self) -> None:
        own, newest = self.surroundings, self.newest_surroundings()
        if newest is not None:  # the words of the command are about the folder
            env = {
                key: it
                for key, it in newest.env.items()
                if key not in TERMS_VARIABLES.get(self.known_as, {})
            }
            env |= self.terms.variables  # nobody's start moves a session to other terms
            self.surroundings = Surroundings(env, own.folder, newest.umask, newest.limits)
            self.shell = newest.env.get("SHELL", "")

    async def _start(self) -> bytes:
        await self._stop()
        launched, self._launched = self._launched, None
        if launched is None:
            self._take_newest_surroundings()
            try:
                launched = self._launch()
            except errors.AgentStartError as error:
                if self._options.called is None:
                    raise  # it names the program
                raise errors.AgentStartError(f"{self.called}: {error}") from error
        process = self._process = ChildProcess(
            launched, log_path=self._options.stderr_log, relay_to=self._options.relay_to
        )
        ProcessAgent.on_start(launched)
        peer = self._peer = Peer(
            process.transport,
            self,
            name="agent",
            limit=self._options.limit,
            is_agent=True,
            on_cut=self._on_cut,
        )
        pump = self._tasks.start(peer.pump(), "agent pump")
        self._tasks.start(hang_up_behind(process, peer, pump), "agent exit")
        seconds = self._options.start_timeout
        slow = self._tasks.start(say_slow(self.called, process, seconds), "slow agent")
        try:  # leave no half-started program behind
            try:
                result = await peer.call_raw(
                    schema.INITIALIZE.name, self._introduction, seconds=seconds
                )
                answer = parse_initialize(self.called, result)
            except errors.SilentPeerError:
                raise errors.AgentStartError(
                    f"{self.called} did not answer `initialize` within {seconds:g} s"
                    f"{last_line(process)}{printed(peer)}; is it an ACP agent?"
                ) from None
            except errors.ConnectionLostError:
                end = await exit_error(self.called, process)
                raise errors.AgentStartError(
                    f"{self.called} ended before it answered `initialize` ({end.status})"
                    f"{last_line(process)}{printed(peer)}"
                ) from None
            except errors.RemoteError as error:
                raise without_our_code(error) from None
        except BaseException:
            await self._stop()
            raise
        finally:
            slow.cancel()
        self.capabilities = answer.agent_capabilities
        self.has_sign_in = bool(answer.auth_methods)
        self.can_fork = forks(result)
        self.index_methods = index_methods(result)
        if self._journal is not None and keeps_sessions(result):
            self._kept_in_front = await identity(self._journal)
        if answer.agent_info is not None:
            self.own_name = answer.agent_info.name
            self.key = self._options.name or self.own_name
        self.generation += 1
        self._ready = True
        self._told.begin()
        await self._told.tell(peer)
        return result

    @property
    def terms(self) -> Terms:
        return self._told.terms

    def accept_terms(self, method: str, params: bytes) -> None:
        self._told.accept(method, params)

    def forget_sign_in(self) -> None:
        self._told.forget_sign_in()

    # -- talking --------------------------------------------------------------------------

    def send(self, call: AgentCall) -> None:
        if (peer := self._peer) is None:
            raise errors.AgentExitedError(f"{self.called} is not running", "not started", "")
        if peer.buffered > self._options.limit:
            raise errors.AgentBusyError(
                f"{self.called} does not read its input: {peer.buffered} bytes are waiting; "
                "cancel its turns or restart it"
            )
        self._told.check(call.method)
        params = added = self._added.add_to(call.method, call.params)
        if self._kept_in_front is not None and REQUESTS[call.method].opens:
            params = with_front_journal(added, self._kept_in_front)
        try:
            id_ = peer.begin(call.method, params, partial(self._take_answer, call, added))
        except errors.ConnectionLostError:
            raise how_it_ended(self.called, self._process) from None
        self._calls[call] = id_

    async def _take_answer(self, call: AgentCall, added: bytes, answer: Answer) -> None:
        self._calls.pop(call, None)
        if added is not call.params and self._added.are_refused(answer):
            self.send(call)
            return
        if isinstance(answer, errors.ConnectionLostError):
            answer = await exit_error(self.called, self._process)
        elif isinstance(answer, bytes):
            answer = message_without_marks(answer)
        elif isinstance(answer, errors.RemoteError):
            wants_sign_in = answer.code == errors.AUTH_REQUIRED and REQUESTS[call.method].opens
            if wants_sign_in and self._told.sign_in is not None:
                self._calls[call] = NOT_SENT
                self._tasks.start(self._sign_in_for(call), "sign in again")
                return
            answer = without_our_code(answer)
        await call.take(answer)

    async def _sign_in_for(self, call: AgentCall) -> None:
        """Sign in as before, and send a request to open a session again."""
        try:
            async with self._signing_in:
                if (peer := self._peer) is not None:
                    await self._told.sign_in_again(peer, is_attended=self.is_attended())
            if call in self._calls:  # it was not withdrawn
                self.send(call)
        except errors.AcpError as exc:
            if self._calls.pop(call, None) is not None:
                await call.take(exc)
        except asyncio.CancelledError:  # the process is being ended
            await call.take(how_it_ended(self.called, None))
            raise

    def withdraw(self, call: AgentCall) -> None:
        id_ = self._calls.pop(call, None)
        if id_ is not None and self._peer is not None:
            self._peer.withdraw(id_)

    def call_of(self, number: int) -> AgentCall | None:
        return next((call for call, id_ in self._calls.items() if id_ == number), None)

    async def tell(self, method: str, params: bytes) -> None:
        peer = self._peer
        if peer is None or not self.alive:
            return
        if peer.buffered > self._options.limit:
            log.info("dropped %s: the agent does not read its input", method)
            return
        peer.tell(method, params)
        if peer.buffered <= STUCK_BYTES:
            self._stuck = False
        elif not self._stuck:  # wait for a slow program, not for one that hangs
            try:
                async with timeout(STUCK_SECONDS):
                    await peer.drain()
            except TimeoutError:
                self._stuck = True
                log.warning("%s does not read its input", self.called)
            except errors.ConnectionLostError:
                pass  # it has ended: the next request will fail

    async def on_request(self, request: Request) -> bytes:
        if not may_ask("agent", request.method):
            raise errors.MethodNotFoundError(request.method)
        params = message_without_marks(request.params)
        return await self._listener.answer(AgentRequest(request.method, params))

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for event in runs(batch, unmarked=True):
            try:
                await self._listener.hear(event)
            except Exception:  # the other events of this read still count
                log.exception("cannot handle a message of %s", self.called)

    async def _on_cut(self, cut: CutNotification) -> None:
        if (session_id := session_of(cut)) is not None:
            await self._listener.hear(Unheard(session_id, cut.problem))

    # -- ending ---------------------------------------------------------------------------

    async def _stop(self) -> None:
        self._ready = self._stuck = False
        peer, process = self._peer, self._process
        # We end it, so nobody needs to learn how it ended.
        self._peer = self._process = None
        self._calls.clear()

        async def end() -> None:
            await self._tasks.aclose()
            if process is not None:
                await process.aclose()
            if peer is not None:
                await peer.aclose()

        await finish(end)

    async def aclose(self) -> None:
        async with self._starting:
            await self._stop()
            if self._launched is not None:  # no client has come
                launched, self._launched = self._launched, None
                await ChildProcess(launched, relay_to=()).aclose()


def parse_initialize(name: str, result: bytes) -> schema.InitializeResponse:
    """Return a program's answer to `initialize`; AgentStartError if we cannot continue with it."""
    try:
        answer = schema.decode(schema.InitializeResponse, result).value
    except errors.InvalidParamsError as exc:
        raise errors.AgentStartError(
            f"{name} sent an invalid answer to `initialize` ({exc}); is it an ACP agent?"
        ) from None
    if answer.protocol_version != schema.PROTOCOL_VERSION:
        raise errors.AgentStartError(
            f"{name} speaks version {answer.protocol_version} of the protocol, "
            f"not {schema.PROTOCOL_VERSION}"
        )
    return answer
