"""`acphold demo`: where it is played, and how it ends."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from acphold.cli.demo.editor import WAIT_SECONDS, Place
from acphold.cli.demo.stage import Stage
from acphold.cli.demo.story import Story
from acphold.cli.exits import Exit
from acphold.errors import AcpholdError


@click.command(name="demo")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the journal of the demo in this folder.",
)
@click.pass_context
def command(ctx: click.Context, /, keep: Path | None) -> None:
    """See it work: talk, kill -9, list, load, go on.

    Real processes on this machine, offline: a scripted agent that has no sessions of its own,
    `acphold wrap` in front of it, and a small editor. Each claim that is made is checked; the
    exit code is 1 if one of them does not hold.
    """
    stage = Stage()
    with _place(keep) as place:
        stage.head(
            "acphold: sessions that outlive the editor, the agent, and kill -9",
            "Real processes, offline. The agent is a script that can neither list nor load a "
            "session and forgets everything when it ends. ✓ marks what was checked just now.",
        )
        began = time.monotonic()
        _play(stage, place)
        _sum_up(stage, time.monotonic() - began, place, kept=keep is not None)
    if stage.failures:
        ctx.exit(Exit.ERROR)


def _play(stage: Stage, place: Place) -> None:
    try:
        asyncio.run(Story(stage, place).tell())
    except TimeoutError:
        stage.claim(f"something took more than {WAIT_SECONDS:.0f} s", holds=False)
    except AcpholdError as error:
        stage.claim(f"the story cannot go on: {error}", holds=False)


def _sum_up(stage: Stage, seconds: float, place: Place, *, kept: bool) -> None:
    stage.step("", f"{stage.held} of {stage.claims} claims hold, {seconds:.1f} s")
    for failure in stage.failures:
        stage.say(f"✗ {failure}", "bad")
    if kept:
        stage.say(f"The journal is kept: acphold list --journal {place.journal}")
    if not stage.failures:
        stage.say(
            "Now with your own agent: write `acphold wrap --` before its command in your "
            "editor's settings. `acphold doctor -- CMD` tries it first."
        )


@contextmanager
def _place(keep: Path | None) -> Iterator[Place]:
    if keep is not None:
        yield _prepared(keep.absolute())
        return
    # Resolved: on macOS the folder for such things is behind a link.
    with TemporaryDirectory(prefix="acphold-demo-") as folder:
        yield _prepared(Path(os.path.realpath(folder)))


def _prepared(folder: Path) -> Place:
    place = Place(str(folder / "journal.db"), str(folder / "project"))
    try:
        os.makedirs(place.project, mode=0o700, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(
            f"{folder}: {error.strerror}; name a folder you can write to", param_hint="--keep"
        ) from None
    return place
