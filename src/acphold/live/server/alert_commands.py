"""The person's own commands, for alerts and titles: started, limited in time, and ended in every
case.

A command gets the alert in variables and, in full, as JSON on its stdin; its output goes to the
log. It may take ALERT_SECONDS; while ALERTS_AT_ONCE run, further ones are dropped, because an alert
must not hold up the session that it is about. One for a title gets what was said on its stdin.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from acp_wire.schema import encode
from acp_wire.tasks import TaskSet, beside, timeout
from acphold.conversation.history.prompt_queue import describe_queue
from acphold.errors import AcpError
from acphold.known_agents import short_name
from acphold.live.hub.alerts import Alert, Alerts, LookUp
from acphold.live.server import bounds

if TYPE_CHECKING:  # an agent of the library that starts no program does not import these
    from acp_wire.processes.program import Program
    from acp_wire.surroundings import Surroundings
    from acp_wire.transports.child import ChildProcess

log = logging.getLogger(__name__)


class AlertCommands(Alerts):
    """The running commands; has to be closed in every case: then none is left running."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._running = TaskSet()
        self._entitling = TaskSet()  # one that hangs keeps no alert back
        self._surroundings = surroundings

    def agent_name(self, alert: Alert) -> str:
        """Return the person's name for the agent of the session."""
        return short_name(alert.agent)

    def link(self, alert: Alert) -> str:
        """Return the address that opens the subject of an alert; "" if there is none."""
        return ""

    def tell(self, command: tuple[str, ...], alert: Alert, look_up: LookUp | None = None) -> None:
        """Start a command and return; the log reports how it ended."""
        if len(self._running) >= bounds.ALERTS_AT_ONCE:
            log.warning(
                "alert: dropped %s, because %d commands are running already",
                alert.event,
                bounds.ALERTS_AT_ONCE,
            )
            return
        self._running.start(self._alert(command, alert, look_up), "alert")

    def entitle(
        self,
        command: tuple[str, ...],
        alert: Alert,
        read: Callable[[], Awaitable[bytes]],
        take: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Start a command and return; a session that it has started itself asks for no title."""
        if self._surroundings.env.get("ACPHOLD_EVENT") == alert.event:
            return
        if len(self._entitling) >= bounds.TITLES_AT_ONCE:
            log.warning("no title: %d commands are running already", bounds.TITLES_AT_ONCE)
            return
        self._entitling.start(self._entitle(command, alert, read, take), "title")

    async def aclose(self) -> None:
        """Give running commands a moment, then end them."""
        await self._running.finish(bounds.LAST_ALERTS_SECONDS)
        await self._entitling.aclose()

    async def _alert(self, command: tuple[str, ...], alert: Alert, look_up: LookUp | None) -> None:
        if look_up is not None:
            try:
                alert = replace(alert, question=await look_up())
            except AcpError as error:
                log.warning("alert %s: %s", alert.event, error)
                return
        given = stdin_json(alert, self.link(alert))
        await self._run(command, alert, given, _End(), bounds.ALERT_SECONDS)

    async def _entitle(
        self,
        command: tuple[str, ...],
        alert: Alert,
        read: Callable[[], Awaitable[bytes]],
        take: Callable[[bytes], Awaitable[None]],
    ) -> None:
        try:
            given = await read()
        except AcpError as error:
            log.warning("no title: %s", error)
            return
        printed = _Beginning()
        if await self._run(command, alert, given, printed, bounds.TITLE_SECONDS):
            await take(printed.kept)

    async def _run(
        self, command: tuple[str, ...], alert: Alert, given: bytes, printed: _End, seconds: float
    ) -> bool:
        """Run a command to its end, with `given` on its stdin; True if it succeeded."""
        from acp_wire.transports.child import ChildProcess

        name = f"{alert.event}: {command[0]}"
        try:
            # An agent's words are no arguments: a shell or an option parser would read them.
            about = variables(alert, self.agent_name(alert), self.link(alert))
            env = {**self._surroundings.env, **about}
            process = ChildProcess(await self._launch(command, env), relay_to=())
            reader = _read(process, printed)
            async with aclosing(process), beside(reader, "output of a command") as reading:
                async with timeout(seconds):
                    process.transport.send(given)
                    await process.transport.hang_up()
                    status = await process.wait()
                await asyncio.wait([reading], timeout=bounds.ALERT_OUTPUT_SECONDS)
            output = f"{printed.kept.decode(errors='replace')} {process.stderr_tail()}"
            output = " ".join(output.split())[-bounds.ALERT_OUTPUT_BYTES :]
        except TimeoutError:
            log.warning("%s did not end within %g s; acphold has stopped it", name, seconds)
            return False
        except (AcpError, OSError) as error:
            log.warning("%s: %s", name, error)
            return False
        is_done = status == "exit status 0"
        level = logging.INFO if is_done else logging.WARNING
        log.log(level, "%s: %s%s", name, status, f"; its output: {output}" if output else "")
        return is_done

    async def _launch(self, command: tuple[str, ...], env: Mapping[str, str]) -> Program:
        """Launch it in a thread, which takes milliseconds; end it again if the caller is
        cancelled."""
        from acp_wire.processes.program import launch

        starting = asyncio.create_task(
            asyncio.to_thread(launch, command, self._surroundings, env=env), name="launch"
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            program = await starting
            await asyncio.to_thread(program.abandon)
            raise


class _End:
    """The end of what a command prints."""

    def __init__(self) -> None:
        self.kept = b""

    def add(self, piece: bytes) -> None:
        self.kept = (self.kept + piece)[-bounds.ALERT_OUTPUT_BYTES :]


class _Beginning(_End):
    """The beginning of what a command prints."""

    def add(self, piece: bytes) -> None:
        if (room := bounds.ALERT_OUTPUT_BYTES - len(self.kept)) > 0:
            self.kept += piece[:room]


async def _read(process: ChildProcess, printed: _End) -> None:
    while piece := await process.transport.receive():
        printed.add(piece)


def variables(alert: Alert, agent: str = "", url: str = "") -> dict[str, str]:
    """Return the environment for the command: values without NUL, each on one line, cut.

    One line, because people put them into headers of a message, and agents make up the values, also
    their name and the ids of sessions.
    """
    held = describe_queue(alert.queued, alert.held, alert.until) if alert.held else ""
    values = {
        "ACPHOLD_EVENT": alert.event,
        "ACPHOLD_SESSION": alert.session_id,
        "ACPHOLD_AGENT": agent or alert.agent,
        "ACPHOLD_CWD": alert.cwd,
        "ACPHOLD_TITLE": _on_one_line(alert.title),
        "ACPHOLD_QUESTION": _on_one_line(alert.question) or held,
        "ACPHOLD_OUTCOME": alert.outcome or alert.held,
        "ACPHOLD_SECONDS": f"{alert.seconds:.0f}",
        "ACPHOLD_URL": url,
    }
    for name, text in values.items():
        line = " ".join(text.replace("\0", "").splitlines()).encode(errors="replace")
        values[name] = line.decode()[: bounds.ALERT_VALUE_CHARACTERS]
    return values


def stdin_json(alert: Alert, url: str = "") -> bytes:
    """Return the same as one line of JSON; docs/use.md has its fields."""
    about = {
        "event": alert.event,
        "sessionId": alert.session_id,
        "agent": alert.agent,
        "cwd": alert.cwd,
        "title": alert.title,
        "seconds": round(alert.seconds, 1),
        "url": url or None,
    }
    if alert.event == "waiting":
        about |= {"question": alert.question, "options": list(alert.options)}
    elif alert.event == "held":
        about |= {"queued": alert.queued, "held": alert.held, "until": alert.until}
    else:
        about |= {"outcome": alert.outcome}
    return encode(about) + b"\n"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
