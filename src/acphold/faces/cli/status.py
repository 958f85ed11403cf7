"""`acphold agent status`: the processes that keep sessions, and what of them is old."""

from __future__ import annotations

from typing import Final

from acp_wire.schema import encode
from acp_wire.transports.first_frame import BRIEF, EDITOR, SERVER
from acphold.faces.cli.command_line import Exit, Parser
from acphold.faces.cli.stop import names_of, short_ids_if_any
from acphold.faces.cli.terminal_text import on_one_line, quantity, visible
from acphold.live.reading.neighbours import ending_processes, processes, silent_processes

FRONTS: Final = {EDITOR: "editor's front", BRIEF: "`ask`", SERVER: "`serve`"}
"""The words for each kind of front."""


def parser() -> Parser:
    """The arguments of `agent status`."""
    made = Parser(status, "agent status", "[OPTIONS]")
    made.add_json("one object for each process")
    return made


async def status(*, as_json: bool) -> int:
    """Show what runs: processes, agents and sessions.

    Nothing is started. A process whose files were replaced by an upgrade
    goes on with its own code, and makes room for the new one when nobody needs it. The exit code
    is 1 if a process does not answer.
    """
    found = await processes()
    silent = silent_processes(found)
    if as_json:
        for process in found:
            print(encode(process).decode())
    else:
        ids = [session.session_id for process in found for session in process.sessions]
        short_ids = await short_ids_if_any(ids)
        for process in found:
            kind = "background" if process.is_background else "for an editor or a program"
            old = ", replaced by an upgrade" if process.is_replaced else ""
            print(visible(f"process {process.pid}: {kind}, release {process.release}{old}"))
            agents = on_one_line(names_of(process)) or "no agent"
            print(visible(f"  {agents}; {quantity(len(process.sessions), 'session')}"))
            for front in process.fronts:
                number = f"{front.pid} " if front.pid else ""
                kind = FRONTS.get(front.kind, "front")
                print(visible(f"  {kind} {number}in {on_one_line(front.folder)}"))
            for session in process.sessions:
                clients = quantity(session.clients, "client")
                short = on_one_line(short_ids[session.session_id])
                print(visible(f"  {short}  {session.state}, {clients}"))
        ending = ending_processes()
        for each in ending:
            print(visible(f"process {each.pid}: background, ends or just begins"))
        if not (found or silent or ending):
            print("Nothing is running.")
    for each in silent:
        print(visible(each.words))
    return Exit.ERROR if silent else Exit.OK
