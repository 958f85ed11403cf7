"""The one turn of `acphold ask`: opens a session, sends the prompt, finds the exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.json import encode
from msgspec.structs import replace

from acp_wire.rpc import Transport
from acp_wire.schema import Implementation
from acp_wire.tasks import timeout
from acp_wire.transports.pipes import PipeTransport
from acphold.client import PermissionQuestion, RemoteAgent, RemoteSession, RemoteTurn, connected_to
from acphold.client.answers import Answers, PermissionAnswer, leave_to_others, rule_for
from acphold.client.journal_endpoints import OwnerEndpoint
from acphold.client.remote_turn import take_all
from acphold.client.uplink import Endpoint
from acphold.conversation.history.timeline import turn_end
from acphold.errors import AcpError, AuthRequiredError, ConnectionLostError, UnknownSessionError
from acphold.faces.cli import bounds
from acphold.faces.cli.ask_arguments import AskArguments
from acphold.faces.cli.ask_person import person_here
from acphold.faces.cli.ask_streams import JsonOutput, TextOutput, prompt_and_stdin
from acphold.faces.cli.command_line import ENDS, Exit, UsageError
from acphold.faces.cli.continuation import move_to_folder
from acphold.faces.cli.journals import sessions_here
from acphold.faces.cli.places import find_session
from acphold.faces.cli.session_setup import LIVE_SERVERS, setup_of
from acphold.faces.cli.settings import NamedAgent
from acphold.faces.cli.starts import Start
from acphold.faces.cli.wrap import options_of
from acphold.journal.rows import SessionRow
from acphold.live.agents.capabilities import AUTOMATIC, UNRULED
from acphold.live.agents.identity import display_name
from acphold.live.reading.local_reader import existing_journal
from acphold.version import __version__

if TYPE_CHECKING:
    from acphold.faces.cli.front import OwnFront


class AskingTurn:
    """One question in progress; a signal, or the deadline, cancels its turn.

    The `agent` has no command if the session is live; `start` is how it is started, and `front`
    leads to it. The time for it counts from `started`, in monotonic seconds. Reads stdin; raises
    UsageError, SettingsError, TimeoutError.
    """

    def __init__(
        self,
        agent: NamedAgent,
        start: Start,
        given: AskArguments,
        started: float,
        front: OwnFront | None,
    ) -> None:
        self._given = given
        self._agent = agent
        self._start = start
        self._front = front
        self._deadline = None if given.timeout is None else started + given.timeout
        self._options = options_of(agent, start.options)
        # None if nobody can be asked, or needs to be.
        self._person = None if given.permission in ("allow", "reject") else person_here()
        if given.permission == "ask" and self._person is None:
            raise UsageError("--permission ask needs a terminal; use allow or reject")
        files = [Path(path) for path in given.file]
        if missing := [path for path in files if not path.exists()]:
            raise UsageError(f"--file: {str(missing[0])!r} does not exist")
        self._setup = setup_of(given.mcp_config, given.mode, given.agent_options)
        if self._setup.servers and not agent.command:
            raise UsageError(LIVE_SERVERS)
        self._content: tuple[str | Path, ...] = (
            *prompt_and_stdin(given.prompt, self._deadline),
            *files,
        )
        self.output: TextOutput | JsonOutput = JsonOutput() if given.json else TextOutput()
        self._session: RemoteSession | None = None
        self._turn: RemoteTurn | None = None
        self._stopped: Exit | None = None  # the reason why we have cancelled it
        self._task: asyncio.Task[None] | None = None
        self._end: Exit | None = None

    def run_alone(self) -> int:
        """Ask, in an event loop; returns the exit code. Raises the AcpError that stopped the
        turn."""
        log = logging.getLogger("acphold")
        level = log.level
        # Errors that a server logs are raised here as well; only of incidents does the log say
        # more.
        log.setLevel(logging.CRITICAL)
        logging.getLogger("acp_wire.rpc.wire_errors").setLevel(logging.ERROR)
        try:
            return asyncio.run(self.run())
        except AcpError as error:
            self.output.show_failure(error)
            raise
        finally:
            log.setLevel(level)

    async def run(self) -> Exit:
        """Ask, and return the exit code."""
        loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._talk())
        loop.add_signal_handler(signal.SIGINT, self.stop, Exit.INTERRUPTED)
        if self._deadline is not None:
            loop.call_at(self._deadline, self.stop, Exit.TIMEOUT)
        try:
            await asyncio.wait([self._task])
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if not self._task.cancelled():
            await self._task  # raises what went wrong
        if self._end is None:  # no turn yet, or nobody waits for its end any more
            self._end = self._stopped or Exit.ERROR
            self.output.show_end(None, self._end)
        return self._end

    def stop(self, why: Exit) -> None:
        """Cancel the turn; leave at once if there is none yet, or the second time."""
        again = self._stopped is not None
        self._stopped = self._stopped or why
        if self._session is not None and self._session.in_turn and not again:
            self._session.cancel()
        elif self._task is not None:
            self._task.cancel()

    async def _talk(self) -> None:
        async with self._connect() as (agent, row):
            while True:
                try:
                    if self._session is None:
                        session = await self._open(agent, row)
                        await self._setup.apply(session)
                        self._session = session
                        if isinstance(self.output, JsonOutput):
                            async with existing_journal() as journal:
                                opened = await journal.session(session.id)
                            self.output.begins(opened.agent, session)
                    turn = self._turn = self._session.prompt(*self._content)
                    while raws := await take_all(turn):
                        with self._beside_question():
                            self.output.updates(raws)
                except AuthRequiredError as error:
                    from acphold.faces.cli.sign_in import sign_in_program
                    from acphold.faces.screen.flow import Flow
                    from acphold.faces.screen.sign_in import TerminalSignIn

                    program, person = sign_in_program(self._start), self._person
                    flow = Flow() if person is None else person.flow
                    await TerminalSignIn(program, person, flow).sign_in(agent, error)
                else:
                    break
            end = turn_end(encode({"stopReason": turn.stop_reason}), 0)
            self._end = self._stopped or ENDS[end.outcome]
            with self._beside_question():
                self.output.show_end(turn.stop_reason, self._end)

    # -- the agent and the session --------------------------------------------------------

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[tuple[RemoteAgent, SessionRow | None]]:
        """Yield the agent, and the session that `--session` names."""
        given, agent, front = self._given, self._agent, self._front
        try:
            row = None
            if (named := given.session) is not None:
                async with sessions_here() as (reader, _):
                    row = await find_session(reader, named, "continues it", by_words="chosen")
                if agent.command:
                    cwd = await move_to_folder(row, given.cwd)
                    row = replace(row, cwd=cwd)
            if front is None:
                owned = "" if row is None else row.session_id
                endpoint: Endpoint = OwnerEndpoint(owned)
            else:
                name = agent.name or display_name(agent.command, os.getcwd())
                endpoint = FrontEndpoint(front, name)
            async with connected_to(
                endpoint,
                on_permission=self._decide,
                client_info=Implementation(name="acphold-ask", version=__version__),
                capabilities=replace(
                    Answers(signs_in=self._person is not None and bool(front)).capabilities,
                    meta={
                        AUTOMATIC: self._person is None,
                        # Whatever the rules say: a person has said so.
                        UNRULED: given.permission == "reject",
                    },
                ),
                start_timeout=self._options["start_timeout"],
                # The hub's own comes first.
                cancel_grace=self._options["cancel_grace"] + bounds.CANCEL_SECONDS,
                max_message=self._options["max_message"],
            ) as there:
                yield there, row
        finally:
            if front is not None:
                front.close()  # even without a connection: the daemon may have started the agent

    async def _open(self, agent: RemoteAgent, row: SessionRow | None) -> RemoteSession:
        servers, cwd = self._setup.servers, self._given.cwd or os.getcwd()
        if row is not None:
            return await agent.resume_session(row.session_id, row.cwd, mcp_servers=servers)
        if self._given.newest:
            async for info in agent.sessions(cwd):
                return await agent.resume_session(info, mcp_servers=servers)
            raise UnknownSessionError(
                "", reason=f"{agent.name} has no session in {cwd} to continue"
            )
        return await agent.new_session(cwd, mcp_servers=servers)

    async def _decide(self, asked: PermissionQuestion) -> PermissionAnswer:
        person = self._person
        permission = self._given.permission or ("reject" if person is None else "ask")
        rule = rule_for(permission, asked.tool_call.kind)
        answer: PermissionAnswer
        if rule == "ask" and person is not None:
            self.output.end_line()
            answer = await person.decide(asked)
        else:
            if self._turn is None or not self._turn.has_begun:
                await leave_to_others(asked.session_id)
            answer = rule == "allow"
        with self._beside_question():
            self.output.show_decision(asked, answer, by_person=rule == "ask")
        return answer

    @contextmanager
    def _beside_question(self) -> Iterator[None]:
        """Print something in this block, even while a person is asked something."""
        person = self._person
        if person is None or not person.asks:
            yield
            return
        with person.put_away():
            yield
            self.output.end_line()


class FrontEndpoint(Endpoint):
    """An agent that the daemon runs for a front of ours."""

    is_acphold = True
    is_repeatable = False

    def __init__(self, front: OwnFront, name: str) -> None:
        self.name = name
        self._front = front
        self._transport: Transport | None = None

    async def open(self) -> Transport:
        await asyncio.wrap_future(self._front.accepted)
        self._transport = PipeTransport(*self._front.take_pipes())
        return self._transport

    async def how_it_ended(self) -> AcpError:
        return ConnectionLostError(f"the daemon with {self.name} has ended")

    async def aclose(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()
            if (connection := self._front.connection) is not None:
                # Wait for the agent's end: the next command finds its session at rest.
                connection.setblocking(False)
                # The daemon was killed, or the agent does not end.
                with suppress(OSError, TimeoutError):
                    async with timeout(bounds.BRIEF_END_SECONDS):
                        await asyncio.get_running_loop().sock_recv(connection, 1)
        self._front.close()
