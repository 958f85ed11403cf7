"""`acphold serve --install`: the file with which this machine starts the server, for this user.

On Linux it is a unit of systemd's user manager, on macOS a property list of launchd. It is only
written: the person decides who starts it, and if it starts without a login.

Sources: systemd.service(5), systemd.syntax(7), systemd.exec(5); launchd.plist(5).
"""

from __future__ import annotations

import os
import plistlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from acp_wire.processes.program import on_path
from acp_wire.state_folder import write_private
from acphold.errors import SettingsError
from acphold.faces.cli.command_line import is_confirmed
from acphold.machine.own_program import own_command

if TYPE_CHECKING:
    from acphold.web.server import Listening

NAME: Final = "acphold-serve"

LABEL: Final = "acphold.serve"
"""Its name in launchd."""

MARK: Final = "Written by `acphold serve`"
"""Marks each such file: a file without it is somebody else's."""

TAKEN: Final = (
    *("PATH", "ACPHOLD_SETTINGS", "ACPHOLD_JOURNAL", "ACPHOLD_NODE_TOKEN"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    *("PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "PGSERVICE", "PGSSLMODE", "PGSSLROOTCERT"),
)
"""Variables of this shell that the service gets, too. No others: some may be keys.

Nobody else may read the file, because of the node token and the database password."""


class ServiceFile(Struct, frozen=True):
    """The file: its path, its text, and the commands a person types next; `link` is the link that
    enabling it creates."""

    path: str
    text: bytes
    start: tuple[str, ...]
    stop: tuple[str, ...]
    link: str = ""

    def install(self, *, overwrite: bool) -> bool:
        """Write it; returns False if it is there already. SettingsError for a different file of
        this name, unless `overwrite`."""
        found = self.read()
        if found == self.text and not os.stat(self.path).st_mode & 0o077:
            return False
        if found not in (None, self.text) and not overwrite:
            raise SettingsError(f"{self.path} exists with other content; --force overwrites it")
        try:
            write_private(self.path, self.text)
        except OSError as exc:
            raise SettingsError(f"{self.path} cannot be written: {exc.strerror}") from None
        return True

    def remove(self) -> bool:
        """Remove it; returns False if it is not there. SettingsError for one that is not ours."""
        found = self.read()
        if found is None:
            return False
        if MARK.encode() not in found:
            raise SettingsError(f"{self.path} was not written by `acphold serve --install`")
        try:
            if os.path.islink(self.link):
                os.unlink(self.link)
            os.unlink(self.path)
        except OSError as exc:
            raise SettingsError(f"{self.path} cannot be removed: {exc.strerror}") from None
        return True

    def read(self) -> bytes | None:
        """Return the file's current text; None if there is no file."""
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise SettingsError(f"{self.path} cannot be read: {exc.strerror}") from None


def service_file(words: Sequence[str], env: Mapping[str, str]) -> ServiceFile:
    """Return the file that starts this command line; SettingsError if it cannot hold it."""
    taken = {name: env[name] for name in TAKEN if env.get(name)}
    for text in (*words, *taken.values()):
        if any(not each.isprintable() for each in text):
            raise SettingsError(f"{text!r} cannot be written into a service file")
    if sys.platform == "darwin":
        return _launchd(words, taken)
    return _systemd(words, taken, env)


def _systemd(words: Sequence[str], taken: Mapping[str, str], env: Mapping[str, str]) -> ServiceFile:
    folder = env.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):
        folder = os.path.expanduser("~/.config")
    variables = [f"Environment={_quote(f'{name}={value}')}" for name, value in taken.items()]
    lines = [
        f"# {MARK}, which removes it, too: --uninstall.",
        "[Unit]",
        "Description=acphold serve: sessions of coding agents for other machines",
        "",
        "[Service]",
        # `$` begins a variable in a command line, and in no other setting.
        f"ExecStart={' '.join(_quote(word.replace('$', '$$')) for word in words)}",
        *variables,
        "WorkingDirectory=~",
        # It prints a pairing code, which is for no log; errors go to stderr.
        "StandardOutput=null",
        "KillMode=mixed",
        "TimeoutStopSec=30",
        "Restart=on-failure",
        "RestartSec=5",
        # An unusable command line or unusable settings do not get better by themselves.
        "RestartPreventExitStatus=2",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    unit, units = f"{NAME}.service", os.path.join(folder, "systemd", "user")
    return ServiceFile(
        os.path.join(units, unit),
        "\n".join(lines).encode(),
        (
            "systemctl --user daemon-reload",
            f"systemctl --user enable --now {NAME}",
            "loginctl enable-linger      # it runs without a login, too",
        ),
        (f"systemctl --user stop {NAME}", "systemctl --user daemon-reload"),
        os.path.join(units, "default.target.wants", unit),
    )


def _quote(text: str) -> str:
    """Quote one word of a setting: `%` begins a specifier, and a backslash an escape."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _launchd(words: Sequence[str], taken: Mapping[str, str]) -> ServiceFile:
    home = os.path.expanduser("~")
    path = os.path.join(home, "Library", "LaunchAgents", f"{LABEL}.plist")
    said = {
        "Label": LABEL,
        "ProgramArguments": [*words],
        "EnvironmentVariables": {**taken},
        "WorkingDirectory": home,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 5,
        "StandardOutPath": "/dev/null",
        "StandardErrorPath": os.path.join(home, "Library", "Logs", f"{NAME}.log"),
    }
    text = plistlib.dumps(said, sort_keys=False)
    text = text.replace(b"<plist", f"<!-- {MARK} -->\n<plist".encode(), 1)
    domain = "gui/$(id -u)"
    return ServiceFile(
        path,
        text,
        (f"launchctl bootstrap {domain} '{path}'",),
        (f"launchctl bootout {domain}/{LABEL}",),
    )


# -- the commands ---------------------------------------------------------------------------


def install_server(
    listening: Listening,
    others: Mapping[str, str | None],
    agent: str | None,
    program: tuple[str, ...],
    *,
    force: bool,
) -> None:
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


def uninstall_server() -> None:
    """Remove the service file; raises SettingsError."""
    file = service_file(own_command("serve"), os.environ)
    if not file.remove():
        print(f"Nothing to remove: there is no {file.path}")
        return
    print(f"Removed: {file.path}\nIf it is still running:\n")
    for line in file.stop:
        print(f"  {line}")
