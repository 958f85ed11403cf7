"""The words of a turn that a person takes out, in titles, queues and logs that may have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from acphold.conversation.history.titles import title_of_words
from acphold.imports.sources import MARK
from acphold.imports.turns import squeeze

SECRET_CHARACTERS: Final = 12
"""Characters of a word that may be a secret: shorter ones are in many texts."""

_SYMBOLS: Final = frozenset("!#$%&*+=?@^|~")
"""Characters of passwords and keys; others are in names, paths and code as well."""


def finder(prompt: str, *, surely: bool = False) -> Callable[[str], bool]:
    """Return a function that tells if a text has the words of the prompt, or one of them that is as
    long as a secret; `surely`, if that has letters with digits or symbols as well."""
    whole = squeeze(prompt)
    stripped = {word.strip(",;:.!?()'\"`") for word in prompt.split()}
    long = {it for it in stripped if len(it) >= SECRET_CHARACTERS}
    words = {it for it in long if _is_mixed(it)} if surely else long
    sizes: dict[str, set[int]] = {}  # by their beginnings, so that a text is read once
    for word in words:
        sizes.setdefault(word[:SECRET_CHARACTERS], set()).add(len(word))

    def may_be_in(text: str) -> bool:
        places = range(len(text) - SECRET_CHARACTERS + 1) if words else ()
        return (bool(whole) and whole == squeeze(text)) or any(
            text[at : at + size] in words
            for at in places
            for size in sizes.get(text[at : at + SECRET_CHARACTERS], ())
        )

    return may_be_in


def _is_mixed(word: str) -> bool:
    return any(map(str.isalpha, word)) and any(it.isdigit() or it in _SYMBOLS for it in word)


def is_of(title: str | None, prompt: str) -> bool:
    """Return True if a title was made of a prompt: by the rule of today, or of before, or by a
    program that put a secret of it in."""
    if not (title and (begun := squeeze(title.removesuffix(MARK).removesuffix("…")))):
        return False
    its_title = title_of_words(prompt) or ""
    is_its = title.removesuffix(MARK) == its_title or (
        len(its_title) >= SECRET_CHARACTERS and its_title in title  # "y" is in many
    )
    return is_its or squeeze(prompt).startswith(begun) or finder(prompt, surely=True)(title)
