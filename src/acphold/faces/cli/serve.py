"""`acphold serve`: serves the sessions of this journal to other machines."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from acp_wire.processes.descriptors import allow_all
from acp_wire.rpc import Transport
from acp_wire.tasks import beside, finish
from acp_wire.transports.known_servers import is_loopback, origin_of
from acp_wire.transports.pipes import PipeTransport
from acphold.errors import SettingsError
from acphold.extras import require
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import UsageError, command
from acphold.faces.cli.front import (
    OwnFront,
    daemon_address,
    daemon_lock,
    first_frame,
    journal_of,
)
from acphold.faces.cli.log import start_log
from acphold.faces.cli.settings import (
    NamedAgent,
    UninstalledAgentError,
    agent_command,
    agents_in_file,
    agents_on_path,
    agents_without_adapter,
    is_demo,
    startable,
)
from acphold.faces.cli.terminal_text import tell, visible
from acphold.journal.stores import journal_name
from acphold.known_agents import DEMO, KNOWN_AGENTS
from acphold.machine.addresses import connect, unix_address
from acphold.machine.first_frame import SERVER

if TYPE_CHECKING:
    from acphold.conversation.history.entries import Entry
    from acphold.journal.rows import SessionRow
    from acphold.web.relay import ReachedDaemon, RelayedAgent
    from acphold.web.server import Listening, ServerOutput, Serving


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{text!r} is not an address to listen on; use one like 127.0.0.1:8260")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _proxy(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise UsageError(
            f"{text!r} is not the address of a proxy; use one like 127.0.0.1"
        ) from None


def _url(text: str) -> str:
    try:
        origin, parts = origin_of(text), urlsplit(text)
    except ValueError as exc:
        raise UsageError(str(exc)) from None
    if parts.path.strip("/") or parts.query or parts.fragment or " " in origin:
        raise UsageError(f"{text!r}: name the server alone, as in https://desk.example")
    return origin


def _node(text: str) -> str:
    origin = _url(text)
    if not (origin.startswith("https:") or is_loopback(urlsplit(origin).hostname or "")):
        raise UsageError(f"{text!r}: connections between nodes must be encrypted; use https")
    return origin


@command("serve", "[OPTIONS] [AGENT | -- CMD...]")
def serve(
    *,
    agent: str | None = options.AGENT,
    program: tuple[str, ...] = options.PROGRAM,
    listen: tuple[str, int] = options.value(
        "ADDRESS",
        "host:port to listen on; port 0 picks a free one [default: 127.0.0.1:8260]",
        type=_address,
        default=("127.0.0.1", 8260),
    ),
    url: str | None = options.value(
        "URL", "the address that clients use, if it differs: a host name, a proxy", type=_url
    ),
    phone: bool = options.flag(
        "set up an address for a phone, with tailscale, cloudflared or devtunnel"
    ),
    proxy: str | None = options.value(
        "ADDRESS", "address of a reverse proxy whose X-Forwarded-For header is trusted", type=_proxy
    ),
    node: str | None = options.value(
        "URL",
        "the address at which other machines with the same journal reach this one",
        type=_node,
    ),
    tls_cert: str | None = options.value("FILE", "TLS certificate"),
    tls_key: str | None = options.value("FILE", "key of the TLS certificate"),
    json: bool = options.flag(
        "print one JSON line with `url`, `pair` and `agents`, and no QR code"
    ),
    typed_journal: str | None = options.JOURNAL,
    log_level: str = options.LOG_LEVEL,
    log_file: str | None = options.LOG_FILE,
) -> None:
    """Use your sessions from a phone, a browser or another machine.

    Prints a one-time pairing link, valid for ten minutes. Open it in a browser, or give it to
    `acphold connect` on another machine; anything else that speaks ACP over WebSocket works, too.
    You can join sessions that are running here, in an editor or in the daemon. Sessions started
    over the network keep running when the connection breaks, and when the server ends. This is
    experimental: the protocol's remote transport is a draft.

    AGENT is a name from the settings file, or one that acphold knows. Without it, every agent of
    the settings file is served, each at /acp/NAME and the first also at /acp; with no settings, the
    known agents on PATH, or one that npm fetches, after asking; without any, all that is stored,
    and the demo. An agent starts when a client needs it and stops after ten minutes without use
    (`linger` in the settings file); its sessions stay.

    Nobody gets in without a token: `acphold access` manages them. Beyond this machine the
    connection has to be encrypted: use --tls-cert and --tls-key, or name your proxy with --url.
    --phone sets up such an address with Tailscale, cloudflared or devtunnel.

    To serve at each start of this machine, see `acphold help each start`.
    """
    require("serve", "serve")
    from acphold.web.page_files import why_missing
    from acphold.web.server import Listening

    if (tls_cert is None) != (tls_key is None):
        raise UsageError("use --tls-cert and --tls-key together")
    if phone and json:
        raise UsageError("--phone asks a person at a terminal; use --url with --json")
    host, port = listen
    listening = Listening(
        host=host, port=port, certificate=tls_cert, key=tls_key, url=url, proxy=proxy, node=node
    )
    listening.check()
    called = agent or "agent"
    agent, program = startable(agent, program)
    agents = _agents(agent, program, called, is_asked=not json)
    log = [f"--log-level={log_level.lower()}"]
    if (written := start_log(log_level, log_file)) is not None:
        log.append(f"--log-file={os.path.abspath(written)}")
    served = _served(agents, typed_journal, log)
    if missing := why_missing():
        tell(f"acphold: {missing}; everything else is served")
    folder = os.getcwd()
    if is_demo(next(iter(agents))):
        from acphold.faces.cli.demo_folder import scratch_repository

        folder = scratch_repository()
        tell(f"The demo works in {folder}")
    output = _JsonOutput() if json else _PrintedOutput(is_for_phone=phone)
    with _for_a_phone(listening) if phone else nullcontext(listening) as listening:
        # On a terminal, what agents say there would push the pairing link out of sight.
        is_quiet = sys.stderr.isatty() and log_level != "DEBUG"
        stderr = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC) if is_quiet else 2
        asyncio.run(_serve(served, listening, output, stderr, folder))


@contextmanager
def _for_a_phone(listening: Listening) -> Iterator[Listening]:
    """Yield `listening` with an address that a phone reaches; a given address stays."""
    from msgspec.structs import replace

    from acphold.faces.cli.phone import PROXY, way

    if listening.url is not None or listening.certificate is not None:
        yield listening
        return
    if listening.port == 0:
        raise UsageError("--phone needs to know the port: name one with --listen")
    if listening.host not in ("127.0.0.1", "localhost"):
        raise UsageError(
            f"--phone forwards to 127.0.0.1, not to {listening.host}; omit that address"
        )
    try:
        # If another program has the port, the phone would reach that one.
        listening.bind().close()
    except OSError as error:
        raise _cannot_listen(listening, error) from None
    with way(listening.port) as found:
        if found.missing:
            print(f"Run this once, in another terminal:\n\n  {' '.join(found.missing)}\n")
        yield replace(listening, url=found.url, proxy=listening.proxy or PROXY)


def _agents(
    agent: str | None, program: tuple[str, ...], called: str, *, is_asked: bool
) -> dict[str, NamedAgent]:
    """Return the agents to serve by their names, the default one first; raises SettingsError.

    `called` names the one that is given by its command. If there is none, a person may be asked
    to have npm fetch one.
    """
    if program:
        return {called: NamedAgent(program)}
    if agent is not None:
        return {agent: agent_command(agent)}
    found: dict[str, NamedAgent] = {}
    for each in agents_in_file():
        if isinstance(each, SettingsError):
            raise each
        found[each.name] = each
    for name in () if found else agents_on_path():
        found[name] = agent_command(name)
    for name in () if found or not is_asked else agents_without_adapter():
        with suppress(UninstalledAgentError):
            found[name] = NamedAgent(startable(name, ())[1])
    if not found:
        name = next(iter([*agents_without_adapter(), *KNOWN_AGENTS]))
        tell(f"No agent is here but the demo; `acphold serve {name}` has npm fetch one.")
        found[DEMO] = agent_command(DEMO)
    return found


def export_page(row: SessionRow, entries: AsyncIterator[Entry]) -> tuple[str, AsyncIterator[str]]:
    """Return a session as a page to keep: the file's name, and its text."""
    from acphold.conversation.exports.page import page  # late: few clients export
    from acphold.faces.cli.export import head_of

    head = head_of(row)
    return f"{head.file_name}.html", page(head, entries)


def _served(
    agents: dict[str, NamedAgent], journal: str | None, log: Sequence[str]
) -> list[RelayedAgent]:
    """Return the agents as their daemons are asked for them; `log` are options of that. Raises
    UsageError, SettingsError."""
    from acphold.faces.cli.wrap import settings_of
    from acphold.live.server.relay_protocol import AskedAgent
    from acphold.web.relay import RelayedAgent

    options = [*log] if journal is None else [f"--journal={journal}", *log]
    found = []
    for name, agent in agents.items():
        settings = settings_of(options, agent)
        words = [agent.name] if agent.name else ["--", *agent.command]
        asked = AskedAgent(name, (*options, *words), agent.command, {**agent.env})
        place = journal_of((), settings.journal)
        found.append(RelayedAgent(asked, place, settings.max_message))
    return found


class _Daemon:
    """A daemon that has accepted our front."""

    def __init__(self, front: OwnFront, journal: str) -> None:
        self.transport: Transport = PipeTransport(*front.take_pipes())
        self._held = daemon_lock(journal)

    async def connect(self) -> Transport:
        address = unix_address(daemon_address(self._held))
        return await connect([address], bounds.DAEMON_ACCEPT_SECONDS)


@asynccontextmanager
async def _reach(frame: bytes, stderr: int, journal: str) -> AsyncIterator[ReachedDaemon]:
    """Reach the daemon of a journal with this frame; it is started if there is none."""
    front = OwnFront(frame, journal, stderr)
    try:
        await asyncio.wrap_future(front.accepted)
        daemon = _Daemon(front, journal)
        try:
            yield daemon
        finally:
            await finish(daemon.transport.aclose)
    finally:
        front.close()


async def _serve(
    agents: list[RelayedAgent],
    listening: Listening,
    output: ServerOutput,
    stderr: int,
    folder: str,
) -> None:
    from acphold.faces.cli.alert_settings import AlertFile
    from acphold.faces.cli.importable import ImportOffer
    from acphold.faces.cli.watchdog import keep_own_code
    from acphold.live.server.service import stop_at_signals
    from acphold.web import server

    stop = stop_at_signals((signal.SIGTERM, signal.SIGINT))
    alerts = AlertFile(agents[0].journal)
    frame = first_frame((), (), folder=folder, kind=SERVER)
    allow_all()  # behind the frame: agents get the limits that we were started with
    async with beside(keep_own_code(), "keep code"):
        try:
            await server.serve(
                agents,
                partial(_reach, frame, stderr),
                listening,
                output=output,
                stop=stop,
                export=export_page,
                importing=ImportOffer(journal_name(agents[0].journal)),
                turn_seconds=lambda: alerts.rules().turn_seconds,
                folder=None if folder == "/" else folder,  # a service begins there
            )
        except OSError as exc:
            raise _cannot_listen(listening, exc) from None


def _cannot_listen(listening: Listening, error: OSError) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        return SettingsError(
            f"port {listening.port} is already in use; choose another with --listen"
        )
    why = os.strerror(error.errno or 0)  # without what Python adds to it
    return SettingsError(f"cannot listen on {listening.host}:{listening.port}: {why}")


class _JsonOutput:
    """The report that programs read: one line of JSON."""

    def ready(self, serving: Serving) -> None:
        facts = {"url": serving.url, "pair": serving.pair, "agents": serving.agents}
        print(json.dumps(facts), flush=True)

    def report_device(self, name: str) -> None:
        pass


class _PrintedOutput:
    """The report that a person reads."""

    def __init__(self, *, is_for_phone: bool) -> None:
        self._is_for_phone = is_for_phone

    def ready(self, serving: Serving) -> None:
        if len(serving.agents) > 1:
            first, *others = serving.agents
            print(f"Agents: {', '.join([f'{first} (default)', *others])}")
        print(f"Serving at {serving.url}")
        if not serving.has_page:
            print("No page for a browser is built: run `make page` in acphold's checkout.")
        print_code(serving.url, serving.pair, is_for_browsers=serving.has_page)
        print(
            "Another device: `acphold access pair`. Ctrl-C stops the server; the sessions stay.",
            flush=True,
        )
        if self._is_for_phone:
            print("To serve at each start of this machine: `acphold help each start`.", flush=True)

    def report_device(self, name: str) -> None:
        with suppress(OSError):  # nobody reads our output any more; the device is still paired
            print(f"Paired: {visible(name)}", flush=True)


def print_code(url: str, code: str, *, is_for_browsers: bool = True) -> None:
    """Explain how to use a code; on a terminal, add a QR code if phones reach the address."""
    address = f"{url}/#pair={code}"
    if is_for_browsers and sys.stdout.isatty():
        if is_loopback(urlsplit(url).hostname or ""):
            print("Works on this machine only. For a phone, use `acphold serve --phone`.")
        else:
            import segno

            segno.make(address, error="l").terminal(compact=True)
    where = "open this in a browser, or pass it to" if is_for_browsers else "pass this to"
    print(f"To pair one device within ten minutes, {where} `acphold connect`:\n")
    print(f"  {address}\n", flush=True)
