"""The starts of agents that are remembered with a journal, to continue sessions without asking.

A session has only the *mark* of a start in the journal: the words are in a file of that name among
what belongs to the journal, under a seal of this machine. So a journal from elsewhere, with all
that lies beside it, cannot make a person run a command that they did not give here themselves, and
a journal that is passed on has no command lines in it. Only our own command line's words are
remembered, never an agent's; no variables; and nothing with a secret among its words.
"""

# See docs/decisions.md, 26.

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Final

import msgspec

from acp_wire.state_folder import write_private
from acp_wire.surroundings import Surroundings
from acphold.faces.cli import bounds
from acphold.faces.cli.options import a_text
from acphold.journal_location import belongings, is_gone, scheme_of, short_mark
from acphold.machine.runtime_folder import machine_id


class Start(msgspec.Struct, frozen=True):
    """A start of an agent by `acphold wrap`.

    `agent` is its name, in the settings file or in the table of known agents; "" for a command.
    `options` are the words before that, without the journal. `folder` is where it was started, if
    the words mean something else in another folder.
    """

    agent: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    folder: str | None = None

    @property
    def mark(self) -> str:
        """The name of this start in a journal."""
        return short_mark(msgspec.json.encode(self).decode())

    @property
    def words(self) -> tuple[str, ...]:
        """The words after `wrap`, without options."""
        return (self.agent,) if self.agent else ("--", *self.command)

    def command_line(self, journal: str) -> tuple[str, ...]:
        """Return the command line that serves its sessions in this journal."""
        # Late: an editor waits for this module.
        from acphold.machine.own_program import own_command

        return own_command("wrap", *self.options, f"--journal={journal}", *self.words)


STEPS: Final = 20_000_000
"""Steps to find the secrets among the words of a start."""

FILES: Final = ("ACPHOLD_JOURNAL", "ACPHOLD_SETTINGS")
"""Variables that take a path."""

FILE_OPTIONS: Final = ("--journal", "--log-file")
"""Options of `wrap` that take a path."""


def start_in(
    within: Surroundings, agent: str, command: Sequence[str], options: Sequence[str]
) -> Start:
    """Return the start of an agent in these surroundings."""
    own = [
        word
        for before, word in zip(("", *options), options, strict=False)
        if word.partition("=")[0] != "--journal" and before != "--journal"
    ]
    paths = [within.env.get(name, "") for name in FILES]
    for option, value in zip(own, [*own, ""][1:], strict=True):
        name, equals, given = option.partition("=")
        if name in FILE_OPTIONS:
            paths.append(given if equals else value)
    # The agent's words that name a file which exists there: `./agent`, `--config=agent.toml`.
    values = [value for word in command for value in (word, word.partition("=")[2])]
    means_files_there = any(
        path and path[0] not in "/~" and ":////" not in path and scheme_of(path) in (None, "sqlite")
        for path in paths
    ) or any(
        value and value[0] != "/" and os.path.lexists(os.path.join(within.folder, value))
        for value in values
    )
    folder = within.folder if means_files_there else None
    return Start(agent, tuple(map(a_text, command)), tuple(map(a_text, own)), folder)


@contextmanager
def remember(start: Start, journal: str) -> Iterator[None]:
    """Remember the start with a journal while the block runs, at its end at the latest."""
    timer = Timer(bounds.REMEMBER_START_SECONDS, write_start, [start, journal])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        write_start(start, journal)


def write_start(start: Start, journal: str) -> None:
    """Remember the start now, if its words can be repeated and hold no secret."""
    path = _path(start.mark, journal)
    if is_gone(journal) or os.path.exists(path) or not (start.agent or start.command):
        return
    # If it cannot be written, the person will be asked for the command.
    with suppress(OSError):
        from acphold.safety.budget import Budget  # late, like the next: an editor waits for this
        from acphold.safety.errors import OutOfStepsError
        from acphold.safety.redaction.detector import secrets

        words = " ".join((*start.options, *start.command))
        with suppress(OutOfStepsError):
            # Words that were not text cannot be repeated.
            if "\ufffd" in words or secrets(words, Budget(STEPS)):
                return
            if seal := _seal(raw := msgspec.json.encode(start)):
                write_private(path, seal + raw)


def find_start(mark: str | None, journal: str) -> Start | None:
    """Return the start with this mark; None if none was given here for this journal."""
    if mark is None or not (mark.isascii() and mark.isalnum()):
        return None
    from acp_wire.workspace.regular_files import contents  # late: an editor waits for this module

    with suppress(OSError, msgspec.MsgspecError):
        found = contents(_path(mark, journal), bounds.START_BYTES)
        seal, raw = found[:SEAL_BYTES], found[SEAL_BYTES:]
        if seal and seal == _seal(raw):
            return msgspec.json.decode(raw, type=Start)
    return None


SEAL_BYTES: Final = 16
"""The length of a seal."""


def _seal(raw: bytes) -> bytes:
    """Return a seal that nobody on another machine can set; b"" if this machine has no id."""
    from _blake2 import blake2b  # hashlib brings OpenSSL

    secret = machine_id(b"acphold starts").encode()
    digest = blake2b(raw, digest_size=SEAL_BYTES // 2, key=secret).hexdigest() if secret else ""
    return str(digest).encode()


def _path(mark: str, journal: str) -> str:
    return os.path.join(belongings(journal), "starts", f"{mark}.json")
