"""`acphold serve --install` and `--uninstall`: the service file is written, or removed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from acp_wire.processes.own_program import own_command
from acp_wire.processes.program import on_path
from acphold.errors import SettingsError
from acphold.faces.cli.command_line import Exit, is_confirmed
from acphold.faces.cli.service_unit import service_file

if TYPE_CHECKING:
    from acphold.web.server import Listening


def install_server(
    listening: Listening,
    others: Mapping[str, str | None],
    agent: str | None,
    program: tuple[str, ...],
    *,
    force: bool,
) -> int:
    """Write the service file for a server that listens so, with the `others` among its options;
    raises SettingsError."""
    host, port = listening.host, listening.port
    options = {  # with absolute paths, for any folder
        "--listen": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "--url": listening.url,
        "--proxy": listening.proxy,
        "--node": listening.node,
        "--tls-cert": listening.certificate and os.path.abspath(listening.certificate),
        "--tls-key": listening.key and os.path.abspath(listening.key),
        **others,
    }
    given = [f"{name}={value}" for name, value in options.items() if value]
    words = [] if agent is None else [agent]
    if program:  # by its path: the service starts in another folder
        first, *rest = program
        if (found := on_path(first)) is None:
            raise SettingsError(f"`{first}` is not on PATH")
        words = ["--", os.path.abspath(found), *rest]
    file = service_file(own_command("serve", *given, *words), os.environ)
    differs = file.read() not in (None, file.text)
    if differs and not force and sys.stdin.isatty():
        force = is_confirmed(f"{file.path} exists with other content. Overwrite it?")
    written = file.install(overwrite=force)
    print(f"{'Written' if written else 'Already up to date'}: {file.path}")
    print("To start it now, and whenever the machine starts:\n")
    for line in file.start:
        print(f"  {line}")
    print(
        "\nThen `acphold access pair` prints a link for the first device. Of this shell's "
        "variables\n"
        "the service gets only PATH, acphold's folders, the node token and the access to the "
        "journal.\n"
        "They are in that file, which only you can read. Keys that an agent needs go into `env`\n"
        "of the settings file. `acphold serve --uninstall` removes the service."
    )
    return Exit.OK


def uninstall_server() -> int:
    """Remove the service file; raises SettingsError."""
    file = service_file(own_command("serve"), os.environ)
    if not file.remove():
        print(f"Nothing to remove: there is no {file.path}")
        return Exit.OK
    print(f"Removed: {file.path}\nIf it is still running:\n")
    for line in file.stop:
        print(f"  {line}")
    return Exit.OK
