"""Plain `acphold` on a machine with no journal: look around, and offer what to do next.

It offers at most four things, each with a key: import the conversations that agents left on disk,
set up an editor, talk to an agent, see the demo. Looking takes `bounds.FIRST_LOOK_SECONDS` at most
and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from acp_wire.processes.program import on_path
from acphold.faces.cli import bounds
from acphold.faces.cli.editors import editors_here
from acphold.faces.cli.import_offer import count_conversations
from acphold.faces.cli.settings import agents_on_path, agents_without_adapter
from acphold.faces.cli.terminal_text import console, quantity, visible
from acphold.faces.screen.layout import Beside
from acphold.imports import Home
from acphold.known_agents import KNOWN_AGENTS


class Suggestion(NamedTuple):
    """Something to do: its key, the sentence beside it, and the command line that does it."""

    key: str
    sentence: str
    arguments: tuple[str, ...]


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
    try:
        *keys, last = (offer.key for offer in offers)
        some = f"{', '.join(keys)} or {last}" if keys else last
        typed = input(f"Press {some} and Enter, or just Enter to leave: ")
    except EOFError:
        typed = ""
        print()
    wanted = typed.strip().casefold()
    for offer in offers:
        if wanted == offer.key:
            return offer.arguments
    if wanted:
        screen.print(Text("Unknown key; nothing was done.", "faint"))
    screen.print(Text("`acphold --help` shows the commands.", "faint"))
    return ()


def _offers(home: Home) -> Iterator[Suggestion]:
    found, is_whole = count_conversations(home)
    if found:
        names = sorted(found, key=lambda name: -found[name])
        told = ", ".join(f"{found[name]:,} of {name}" for name in names[: bounds.OFFERED_NAMES])
        left = len(names) - bounds.OFFERED_NAMES
        more = f", and {quantity(left, 'more agent')}" if left > 0 else ""
        least = "" if is_whole else "at least "
        sentence = f"import the conversations on this disk: {least}{told}{more}"
        yield Suggestion("i", sentence, ("import",))
    installed, adapted = agents_on_path(), agents_without_adapter()
    if editors := [editor.shown for _, editor in editors_here()]:
        here = [*installed, *adapted]
        with_agents = f" with {', '.join(here)}" if here else ""
        yield Suggestion("e", f"set up {' and '.join(editors)}{with_agents}", ("setup",))
    if installed:
        yield Suggestion("t", f"talk to {installed[0]} in this terminal", ("chat", installed[0]))
    elif on_path("npx") is not None:
        name = next(iter(adapted), "claude")
        title = KNOWN_AGENTS[name].title
        what = "its adapter" if adapted else "it"
        sentence = f"talk to {title} in this terminal; npm fetches {what}, after asking"
        yield Suggestion("t", sentence, ("chat", name))
    yield Suggestion("d", "see the demo: offline, some seconds, no account", ("demo",))
