"""`acphold connect HOST`, and `--host HOST`: commands on another machine, over the user's ssh.

We have no port, token or certificate for it: `ssh HOST acphold …` runs there instead of
here, with the user's ssh settings for HOST.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from acp_wire.processes.program import become
from acp_wire.transports.known_servers import is_url
from acp_wire.transports.stdio import claim_stdio
from acphold.errors import AgentStartError, SettingsError
from acphold.faces.cli import options, packed_words
from acphold.faces.cli.command_line import UsageError, command
from acphold.faces.cli.parser import Parser
from acphold.faces.cli.servers import server_at
from acphold.faces.cli.terminal_text import on_one_line
from acphold.machine.own_program import start_beside

if TYPE_CHECKING:
    from asyncio.subprocess import Process

SCRIPT = (
    'PATH="$PATH:$HOME/.local/bin"; command -v acphold >/dev/null || { echo "acphold: not '
    "on the PATH of this machine for a login without a terminal; install it there (pipx puts it "
    'into ~/.local/bin), or link it into /usr/local/bin" >&2; exit 127; }; '
    'exec acphold packed "$@"'
)
"""The script for `sh` there. A login without a terminal often has a shorter PATH than one with.

It reaches `sh` through the login shell, in single quotes, so it must not contain anything that
some login shell reads there: no quote, no `!` or line break (csh), no backslash (fish).
"""


def words_there(parser: Parser, arguments: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the host given with `--host` and the other arguments; None without a host.

    Raises UsageError for unusable arguments.
    """
    read = parser.read(arguments)
    if not (host := read.get(options.HOST)):
        return None
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word == "--host":
            next(words)
        elif not word.startswith("--host="):
            rest.append(word)
    return str(host), rest


def host_option() -> str:
    """Return ` --host HOST`, for commands that are printed, if this one was started by `--host`;
    otherwise ""."""
    host = packed_words.typed_host
    return f" --host {shlex.quote(on_one_line(host))}" if host else ""


def ssh_command(
    host: str, words: Sequence[str], *, terminal: bool, typed: bool, asks: bool = True
) -> list[str]:
    """Return the command line that runs `acphold` with these words there.

    With `terminal` it gets a terminal there, if there is one here; with `typed` it learns the host.
    Unless it `asks`, ssh fails where it would ask for a password.
    """
    # One string: ssh joins words with spaces, and the login shell there reads the result.
    there = f"exec sh -c '{SCRIPT}' acphold {packed_words.pack(host if typed else '', words)}"
    # On a terminal ssh would otherwise report at the end that it closed the connection.
    how = ["-t", "-o", "LogLevel=ERROR"] if terminal else ["-T"]
    if not asks:
        how += ["-o", "BatchMode=yes"]
    return ["ssh", *how, "--", host, there]


def become_ssh(host: str, words: Sequence[str], *, terminal: bool = False) -> NoReturn:
    """Replace this process by `acphold` with these words there; AgentStartError."""
    become(ssh_command(host, words, terminal=terminal, typed=True))


async def start_ssh(host: str, words: Sequence[str]) -> tuple[Process, tuple[int, int]]:
    """Start `acphold` with these words there, in our process group: ssh may ask on our terminal.
    Return our descriptors to read from it and to write to it, too. Raises AgentStartError."""
    command = ssh_command(host, words, terminal=False, typed=False)
    (its_stdin, writing), (reading, its_stdout) = os.pipe(), os.pipe()
    try:
        process = await start_beside(command, stdin=its_stdin, stdout=its_stdout)
    except OSError as exc:
        raise AgentStartError(f"cannot run ssh: {exc.strerror}") from None
    finally:
        os.close(its_stdin)
        os.close(its_stdout)
    return process, (reading, writing)


@command("connect", "{URL | NAME | HOST {AGENT | -- CMD...}}")
async def connect(
    *,
    host: str = options.argument(
        "HOST",
        "a machine, as `ssh` knows it: user@machine; or the URL of an `acphold serve`, or the name "
        "of a paired one",
    ),
    agent: str | None = options.AGENT,
    program: tuple[str, ...] = options.PROGRAM,
    ca: str | None = options.value(
        "FILE", "for a URL: also trust the certificates in this file; remembered"
    ),
) -> int:
    """Connect your editor to an agent on another machine.

    With HOST this is `ssh HOST acphold wrap -- CMD`, using your own ssh settings: the
    agent, its files and the journal are there, and keep running when the connection breaks. AGENT
    is a name from the settings file on that machine.

    Nothing there can read a file or run a command here.

    URL is the address that `acphold serve` prints there. Use the one with the code once, to pair
    this machine; after that the address alone is enough, or the name of its host.

    `acphold chat -- acphold connect NAME` talks to it in this terminal. The folder of that session,
    by default of the name of this one, is there, and no files of this machine are kept.
    """
    if is_url(host) or (agent is None and not program):
        if agent is not None or program:
            raise UsageError(
                "the URL of a server already names the agent: https://host:port/acp/NAME"
            )
        try:
            server = server_at(host, ca)
        except SettingsError as error:
            if is_url(host):
                raise
            raise UsageError(
                f"{error}. With ssh, name an agent on that machine, or its command after `--`"
            ) from None
        from acphold.faces.cli.remote import serve_editor

        return await serve_editor(server)
    if ca is not None:
        raise UsageError("--ca works only with the URL of a server; ssh has its own settings")
    if agent is not None and program:
        raise UsageError("give the name of an agent on that machine, or its command after `--`")
    words = [agent] if agent is not None else ["--", *program]
    streams = claim_stdio()
    ssh, pipes = await start_ssh(host, ["wrap", *words])
    from acphold.faces.cli.remote import serve_over_ssh  # late: ssh is on its way meanwhile

    return await serve_over_ssh(host, ssh, pipes, streams)
