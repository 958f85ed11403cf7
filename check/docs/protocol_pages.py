"""Compares the table of sentences with the protocol's own pages, which are no part of this project.

`python -m docs.protocol_pages FOLDER`, where FOLDER is docs/protocol/v1 of the protocol's
repository, after a new version of it. The exit code is 1 if they differ. The digests that it prints
are recorded in the table, so that a test sees a row that is lost or changed without the pages.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeAlias

from docs.sentences import DIGESTS, SENTENCES

Fact: TypeAlias = tuple[str, str, int, str]
"""A page, a heading, the number of a sentence below it, and its words of demand."""

DRAFTS: Final = ("schema", "elicitation")
"""Pages that the table leaves out: one is generated, the other a draft."""

WORDS: Final = re.compile(r"\b(?:MUST|SHOULD)(?: NOT)?\b")


def demands(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield page, heading and words of each sentence that demands; a bullet is a sentence."""
    _, head, text = text.split("---\n", 2)
    (title,) = re.findall(r'title: "(.*)"', head)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    heading = ""
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*] )|\n(?=#)|\n(?=\s*\d+\. )", text):
        if named := re.match(r"\s*#+\s+(.*)", block):
            heading = named[1].strip()
        for sentence in re.split(r"(?<=[.:!])\s+(?=[A-Z`\[])", " ".join(block.split())):
            if words := WORDS.findall(sentence):
                yield title, heading, " ".join(words)


def numbered(demands: Iterable[tuple[str, str, str]]) -> set[Fact]:
    """Return these with their numbers below their headings."""
    counts: Counter[tuple[str, str]] = Counter()
    found: set[Fact] = set()
    for page, heading, words in demands:
        counts[page, heading] += 1
        found.add((page, heading, counts[page, heading], words))
    return found


def digests(facts: Iterable[Fact]) -> dict[str, str]:
    """Return a digest for each page."""
    pages: dict[str, list[Fact]] = {}
    for fact in sorted(facts):
        pages.setdefault(fact[0], []).append(fact)
    return {page: sha256(repr(its).encode()).hexdigest()[:16] for page, its in pages.items()}


def main(argv: Sequence[str]) -> int:
    """Print what only one of them has, and the digests to record."""
    (folder,) = argv
    found = numbered(
        demand
        for path in sorted(Path(folder).glob("*.mdx"))
        if path.stem not in DRAFTS
        for demand in demands(path.read_text(encoding="utf-8"))
    )
    told = {(it.page, it.heading, it.number, it.words) for it in SENTENCES}
    for place, more in (("on the pages", found - told), ("in the table", told - found)):
        for page, heading, number, words in sorted(more):
            sys.stdout.write(f"only {place}: {page}, {heading}, {number}: {words}\n")
    for page, digest in digests(found).items():
        if DIGESTS.get(page) != digest:
            sys.stdout.write(f"the digest of {page} is {digest}\n")
    return int(found != told or digests(found) != DIGESTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
