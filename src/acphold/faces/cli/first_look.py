"""Plain `acphold` on a machine with no journal: look around, and offer what to do next.

It offers at most four things, each with a key: import the conversations that agents left on disk,
set up an editor, talk to an agent, see the demo. Looking takes `bounds.FIRST_LOOK_SECONDS` at most
and changes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from acp_wire.processes.program import on_path
from acphold.faces.cli import bounds
from acphold.faces.cli.editors import editors_here
from acphold.faces.cli.importable import find_importable
from acphold.faces.cli.settings import agents_on_path, agents_without_adapter
from acphold.faces.cli.terminal_text import console, quantity, visible
from acphold.faces.screen.layout import Beside
from acphold.faces.screen.terminal import read_key
from acphold.imports import NAMES, Home
from acphold.known_agents import KNOWN_AGENTS


class Suggestion(NamedTuple):
    """Something to do: its key with a word, the sentence beside it, and the command line."""

    key: str
    word: str
    sentence: str
    arguments: tuple[str, ...]


LEAVES = ("", "\n", "\r", "\x04", "\x1b", "q")
"""Keys with which nothing is chosen: Enter, Ctrl-D, Escape."""


def choose_command() -> Sequence[str]:
    """Print what is on this machine and ask; return the arguments of the chosen command.

    Empty if the person chose nothing.
    """
    offers = [*_offers(Home(Path.home(), dict(os.environ)))]
    screen = console()
    screen.print(Text("acphold has no conversations yet. You can", "heading"))
    for offer in offers:
        sentence = Text(visible(offer.sentence))
        screen.print(Beside(offer.key, "heading", sentence, gutter=5), end="")
    screen.print()
    print(" · ".join([*(f"{offer.key} {offer.word}" for offer in offers), "q quit"]))
    arguments = {offer.key: offer.arguments for offer in offers}
    while (key := read_key()) not in LEAVES:
        if key in arguments:
            return arguments[key]
    screen.print(Text("`acphold --help` shows the commands.", "faint"))
    return ()


def _offers(home: Home) -> Iterator[Suggestion]:
    found = asyncio.run(find_importable(home, NAMES, None, bounds.FIRST_LOOK_SECONDS))
    if found.left:
        names = sorted(found.left, key=lambda name: -found.total(name))
        told = ", ".join(f"{found.total(it):,} of {it}" for it in names[: bounds.OFFERED_NAMES])
        left = len(names) - bounds.OFFERED_NAMES
        more = f", and {quantity(left, 'more agent')}" if left > 0 else ""
        least = "" if found.is_all else "at least "
        sentence = f"import the conversations on this disk: {least}{told}{more}"
        yield Suggestion("i", "import", sentence, ("import",))
    installed, adapted = agents_on_path(), agents_without_adapter()
    if editors := [editor.shown for _, editor in editors_here()]:
        here = [*installed, *adapted]
        with_agents = f" with {', '.join(here)}" if here else ""
        yield Suggestion("e", "editor", f"set up {' and '.join(editors)}{with_agents}", ("setup",))
    if installed:
        sentence = f"talk to {installed[0]} in this terminal"
        yield Suggestion("t", "talk", sentence, ("chat", installed[0]))
    elif on_path("npx") is not None:
        name = next(iter(adapted), "claude")
        title = KNOWN_AGENTS[name].title
        what = "its adapter" if adapted else "it"
        sentence = f"talk to {title} in this terminal; npm fetches {what}, after asking"
        yield Suggestion("t", "talk", sentence, ("chat", name))
    yield Suggestion("d", "demo", "see the demo: offline, some seconds, no account", ("demo",))
