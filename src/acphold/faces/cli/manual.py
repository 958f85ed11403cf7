"""`acphold help`: read the documentation that is installed with the program."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from acphold.faces.cli import options
from acphold.faces.cli.command_line import UsageError, command
from acphold.faces.cli.main import COMMANDS, FAMILIES, MEANT, SAME, overview, parser_of
from acphold.faces.cli.terminal_text import console

COMMANDS_PAGE = "reference"
"""The page with a section for each command."""

SEARCHED_FIRST = (COMMANDS_PAGE, "use", "serve", "team")
"""Pages whose headings are searched before those of the others, in this order."""


LINK_TO_PAGE = re.compile(r"\[([^\]]+)\]\(([\w-]+)\.md(?:#[^)\s]*)?\)")


_COMMAND = re.compile(r"`acphold ([a-z-]+(?: [a-z-]+)*).*")
"""The heading of a command's section."""


class PageSection(NamedTuple):
    """A section of a page, with its subsections."""

    heading: str
    text: str

    def mentions(self, words: Iterable[str]) -> int:
        """The number of times that each of the words begins one of its own, not of its subsections;
        their least, so that it has all."""
        own = re.split(r"^#{1,6} ", self.text, maxsplit=2, flags=re.MULTILINE)[1].casefold()
        found = (re.findall(rf"\b{re.escape(word.rstrip('s'))}", own) for word in words)
        return min(map(len, found), default=0)


def topic_text(words: str) -> str:
    """Return the Markdown of a topic; raises UsageError if none matches, or several do."""
    known = pages()
    if words in COMMANDS or words in FAMILIES:
        parts = [part for part in _parts(COMMANDS_PAGE) if f"`acphold {words}" in part.heading]
        text = "".join(part.text for part in parts)
        text = text or f"```\n{parser_of(words).format_help().rstrip()}\n```\n"
        if words in known:  # a command and a page have this name
            text = f"{text.rstrip()}\n\n{known[words].read_text(encoding='utf-8')}"
        return text
    if words in known:
        return known[words].read_text(encoding="utf-8")
    mentions: list[tuple[int, str]] = []
    sought = {*re.findall(r"\w+", words.casefold())}
    for page in dict.fromkeys((*SEARCHED_FIRST, *known)):
        parts = [*_parts(page)]
        mentions += [(part.mentions(sought), part.heading) for part in parts]
        named = [part for part in parts if part.heading.casefold() == words.casefold()]
        near = named or [
            part for part in parts if sought <= {*re.findall(r"\w+", part.heading.casefold())}
        ]
        if len(near) > 1:
            which = ", ".join(f"`acphold help {part.heading}`" for part in near[:8])
            raise UsageError(f"{words!r} is ambiguous: {which}")
        if near:
            return near[0].text
    names = {name.split()[-1]: name for name in COMMANDS} | {name: name for name in known}
    meant = [it for it in ((SAME | MEANT).get(words),) if it in COMMANDS]
    meant = meant or [names[name] for name in get_close_matches(words, names, 3, 0.75)]
    mentions.sort(key=lambda it: -it[0])
    meant = meant or [heading for count, heading in mentions[:3] if count]
    topics = [found[1] if (found := _COMMAND.match(heading)) else heading for heading in meant]
    which = " or ".join(f"`acphold help {topic}`" for topic in dict.fromkeys(topics))
    raise UsageError(
        f"no topic {words!r}{f': {which}?' if which else ''}; `acphold help` lists the pages"
    )


def pages() -> dict[str, Path]:
    """Return the pages by name: from the installed package, or from a checkout."""
    package = Path(__file__).parents[2]
    folders = (package / "docs", package.parents[1] / "docs")
    folder = next((each for each in folders if (each / f"{COMMANDS_PAGE}.md").is_file()), None)
    return {page.stem: page for page in sorted(folder.glob("*.md"))} if folder is not None else {}


def _topics() -> str:
    lines = []
    for name, page in pages().items():
        with page.open(encoding="utf-8") as text:
            title = text.readline().lstrip("# ").strip()
        lines += [f"  {name:<14}{title}"] if name != "index" else []
    return "\n".join(lines)


def _parts(page: str) -> Iterator[PageSection]:
    """Yield each section of a page, subsections too."""
    text = pages()[page].read_text(encoding="utf-8")
    fences = [match.start() for match in re.finditer(r"^(```|~~~)", text, re.MULTILINE)]
    heads = [
        match
        for match in re.finditer(r"^(#{1,6}) +(.*)$", text, re.MULTILINE)
        if sum(fence < match.start() for fence in fences) % 2
        == 0  # otherwise a comment in some code
    ]
    for place, head in enumerate(heads):
        ends = (later.start() for later in heads[place + 1 :] if len(later[1]) <= len(head[1]))
        yield PageSection(head[2].strip(), text[head.start() : next(ends, len(text))])


@command("help", "[COMMAND | TOPIC]", epilog=f"topics:\n{_topics()}", is_read=True)
def show_help(
    *,
    topic: list[str] = options.argument(
        "TOPIC", "a command, a page, or words of a heading", nargs="*"
    ),
    everything: bool = options.flag("list every command and exit code", "--all"),
) -> None:
    """Read the documentation of a command or a topic.

    A topic is a page, or words of a heading in one: `acphold help exit codes`. Without a topic it
    lists the nine commands to begin with and the pages; --all lists every command. In a pipe it
    prints the Markdown source.
    """
    words = " ".join(topic)
    if everything:
        print(overview().rstrip())
    elif not words:
        print(f"{parser_of('').format_help().rstrip()}\n\ntopics of `acphold help`:\n{_topics()}")
    elif sys.stdout.isatty():
        from acphold.faces.screen.layout import Beside
        from acphold.faces.screen.markdown import Prose

        text = LINK_TO_PAGE.sub(r"\1 (`acphold help \2`)", topic_text(words))
        console().print(Beside("", "", Prose(text, reflowed=True), gutter=2))
    else:
        sys.stdout.write(topic_text(words))
