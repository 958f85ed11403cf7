"""This machine's end of a session's move, and the connection to the other end.

That is `acphold move-end` over ssh, or a server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from os.path import abspath, expanduser
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from acp_wire.processes.program import launch
from acp_wire.rpc import Transport
from acp_wire.surroundings import Surroundings
from acp_wire.tasks import timeout
from acp_wire.transports.child import ChildProcess
from acp_wire.transports.known_servers import origin_of
from acp_wire.transports.pipes import PipeTransport
from acp_wire.transports.stdio import claim_stdio
from acphold.errors import AcpError, ConnectionLostError, NoJournalError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import command
from acphold.faces.cli.journals import sessions_here
from acphold.faces.cli.places import NEWEST, find_session
from acphold.faces.cli.servers import FarServer
from acphold.faces.cli.session_copies import not_copied, removal_of
from acphold.faces.cli.settings import folder_map
from acphold.faces.cli.ssh import ssh_command
from acphold.faces.cli.terminal_text import on_one_line, visible
from acphold.journal import stores
from acphold.journal.stores import open_journal
from acphold.live.hub import bounds as hub_bounds
from acphold.live.hub.move_giver import give
from acphold.live.hub.move_taker import WantedPlace, take
from acphold.live.hub.moves import MovedSession, MoveLine
from acphold.live.reading.processes import let_go
from acphold.machine.addresses import MOVES

AGAIN: Final = "start the same command again: it resumes where it stopped"

Work = Callable[[Transport], Awaitable[MovedSession]]


def place_here(wanted: WantedPlace) -> WantedPlace:
    """Return the place that is meant on this machine; raises SettingsError."""
    cwd, files = (path and abspath(expanduser(path)) for path in (wanted.cwd, wanted.files))
    return replace(wanted, cwd=cwd, files=files, folders=folder_map())


@command("move-end", "{give ID | take PLACE}")
async def move_end(
    *,
    side: str = options.argument("SIDE", "give or take", choices=("give", "take")),
    what: str = options.argument("WHAT", "the ID, or the PLACE"),
) -> None:
    """Give a session over stdin and stdout, or take one to a place, a `WantedPlace` as JSON.

    acphold starts this on the other machine.
    """
    transport = PipeTransport(*claim_stdio())
    try:
        if side == "give":
            await _give_named(transport, what)
        else:
            await take_session(transport, place_here(msgspec.json.decode(what, type=WantedPlace)))
    except ConnectionLostError:
        pass  # the person sees it at the other end
    finally:
        await transport.aclose()


async def _give_named(transport: Transport, session_id: str) -> None:
    async with AsyncExitStack() as stack:
        try:
            reader, journal = await stack.enter_async_context(sessions_here())
            row = await reader.whole(await find_session(reader, session_id))
        except AcpError as error:
            none = isinstance(error, NoJournalError)
            await MoveLine(transport).refuse("it has no sessions yet" if none else str(error))
            return
        await let_go(journal, row.session_id)
        await give(journal, transport, row.session_id)


async def take_session(transport: Transport, place: WantedPlace, text: str = "") -> MovedSession:
    """Take a session into the journal here, which is made if there is none; its id begins with
    `text`, unless that stands for the newest one there."""
    kept = open_journal(stores.journal_name())
    try:
        return await take(
            kept, transport, place, Surroundings.here(), "" if text in NEWEST else text
        )
    finally:
        await kept.aclose()


async def over_ssh(host: str, words: Sequence[str], work: Work) -> MovedSession:
    """Return the result of `work` with the other end, which runs on that machine.

    Raises ConnectionLostError with the last words of ssh or of the other end.
    """
    command = ssh_command(host, ["move-end", *words], terminal=False, typed=False, asks=False)
    child = ChildProcess(launch(command), relay_to=())
    try:
        return await work(child.transport)
    except ConnectionLostError as error:
        try:
            async with timeout(bounds.MOVE_END_SECONDS):
                how = await child.wait()
        except TimeoutError:
            how = "it does not exit"
        reason = f"{error} ({on_one_line(child.last_words()) or how})"
        raise ConnectionLostError(f"{host}: {reason}; {AGAIN}") from error
    finally:
        await child.aclose()


async def from_server(server: FarServer, text: str, work: Work) -> MovedSession:
    """Return the result of `work` over a connection on which a server gives away the session whose
    id begins with `text`.

    Raises ConnectionLostError, MoveRefusedError and RemoteRefusalError.
    """
    from acp_wire.transports.dial import Dial
    from acphold.faces.cli.remote import obtain_token

    token = await obtain_token(server)
    # Moves only work over a WebSocket.
    url = f"{origin_of(server.url)}{MOVES}{quote(text, safe='')}?transport=websocket"
    dial = Dial(
        url, token, seconds=bounds.SERVER_SECONDS, limit=hub_bounds.MOVE_LINE_BYTES, ca=server.ca
    )
    transport = await dial()
    try:
        return await work(transport)
    except ConnectionLostError as error:
        raise ConnectionLostError(f"{origin_of(server.url)}: {error}; {AGAIN}") from error
    finally:
        await transport.aclose()


def lines_of(moved: MovedSession, where: str) -> list[str]:
    """Describe the place of a session that has moved; `where` is " there", or "" for here."""
    done = moved.done
    lines = [f"in {done.cwd}{where}"]
    if done.files:
        if done.why_plain:
            lines.append(f"its files are in a plain folder: {done.why_plain}")
        elif not moved.was_done:
            project = f" of {done.project}" if done.project else ""
            removal = removal_of(done.files, done.project or done.files)
            lines += [f"its files are in a new work tree{project}", removal]
        lines.append(not_copied(moved.left_out, moved.left_out_names))
    elif done.is_same:
        lines.append("its files are still there, unchanged")
    elif moved.no_files:
        lines.append(f"without its files: {moved.no_files}")
    return [visible(f"  {on_one_line(line)}") for line in lines]
