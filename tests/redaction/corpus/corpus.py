"""220 secrets in their usual shapes, and a hundred lines without one.

`secrets.txt` has the texts, each under a name: `=== name`, then its lines; `----` begins the next
message of the same session. Text that nobody may read stands in ⟦ ⟧. No secret is written down:
each is generated at run time from its kind and length in ⟨ ⟩, by a generator that is seeded with
the name of the case. `⟨S=pw 16⟩` names the generated secret, `⟨S|url⟩` repeats it in another form.
`harmless.txt` has a text on each line.
"""

from __future__ import annotations

import json
import re
import string
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import quote
from uuid import UUID

LETTERS: Final = string.ascii_letters
ALPHABETS: Final = {
    "alnum": LETTERS + string.digits,
    "letters": LETTERS,
    "UPPER": string.ascii_uppercase + string.digits,
    "digits": string.digits,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "base32": string.ascii_uppercase + "234567",
    "b64": LETTERS + string.digits + "+/",
    "url64": LETTERS + string.digits + "-_",
    # Passwords: from a generator, without need of quotes, and with characters that JSON escapes.
    "pw": LETTERS + string.digits + "!#$%&*+,-.:;=?@^_~",
    "pw2": LETTERS + string.digits + "!*+,-._~",
    "pw3": LETTERS + string.digits + '"\\/&',
}
WORDS: Final = (
    *("harbor", "velvet", "copper", "lantern", "meadow", "drift", "saddle", "ember", "quartz"),
    *("willow", "pepper", "anchor", "thistle", "marble", "falcon", "cinder", "juniper", "ribbon"),
    *("walnut", "glacier", "summit", "button", "candle", "orchard"),
)

_MARK: Final = re.compile(r"⟦(.*?)⟧", re.DOTALL)
_MADE: Final = re.compile(r"⟨(?:(\w)=)?(\w+)(?: (\d+))?⟩")
_AGAIN: Final = re.compile(r"⟨(\w)\|(\w+)⟩")

FORMS: Final[dict[str, Callable[[str], str]]] = {
    "url": lambda secret: quote(secret, safe=""),
    "base64": lambda secret: b64encode(secret.encode()).decode(),
    "basic": lambda secret: b64encode(f"admin:{secret}".encode()).decode(),
    "shell": lambda secret: re.sub(r"([^\w@%+=:,./-])", r"\\\1", secret),
    "ansi": lambda secret: f"\x1b[01;31m\x1b[K{secret[:9]}\x1b[m\x1b[K{secret[9:]}",
    "json": lambda secret: json.dumps(json.dumps(secret)[1:-1])[1:-1],
}


@dataclass(frozen=True)
class Case:
    """Messages of one session, and the secret that nobody may read in them."""

    name: str
    messages: tuple[str, ...]
    secrets: tuple[str, ...]


def cases(seed: int = 0) -> list[Case]:
    """The secrets, made anew for each seed."""
    text = Path(__file__).with_name("secrets.txt").read_text(encoding="utf-8")
    return [_case(found, seed) for found in text.split("=== ")[1:]]


def harmless() -> list[str]:
    """Texts in which there is nothing to take out."""
    text = Path(__file__).with_name("harmless.txt").read_text(encoding="utf-8")
    return text.splitlines()


def is_readable(secret: str, text: str) -> bool:
    """True if a telling part of the secret stands in the text.

    A part is telling if it is a third of a line of the secret, or sixteen characters, in one piece.
    """
    for line in secret.splitlines():
        least = max(5, min(16, len(line) // 3))
        pieces = (line[start : start + least] for start in range(len(line) - least + 1))
        if any(piece in text for piece in pieces) and not _is_frame(line):
            return True
    return False


def _is_frame(line: str) -> bool:
    return line.startswith("-----") and line.endswith("-----")


def _case(text: str, seed: int) -> Case:
    name, _, body = text.partition("\n")
    random = Random(f"{name} {seed}")
    kept: dict[str, str] = {}

    def make(found: re.Match[str]) -> str:
        made = _made(random, found[2], int(found[3] or 0))
        if found[1]:
            kept[found[1]] = made
        return made

    filled = _MADE.sub(make, body.removesuffix("\n"))
    filled = _AGAIN.sub(lambda found: FORMS[found[2]](kept[found[1]]), filled)
    messages = tuple(_MARK.sub(r"\1", message) for message in filled.split("\n----\n"))
    return Case(name, messages, tuple(found[1] for found in _MARK.finditer(filled)))


def _made(random: Random, kind: str, length: int) -> str:
    """Something secret."""
    match kind:
        case "uuid":
            return str(UUID(int=random.getrandbits(128), version=4))
        case "pemline":
            return "".join(random.choices(ALPHABETS["b64"], k=64))
        case "words":
            return "-".join(random.sample(WORDS, length))
        case "plain":
            return " ".join(random.sample(WORDS, length))
        case "weak":
            return random.choice(WORDS) + "".join(random.choices(string.digits, k=3))
    alphabet = ALPHABETS[kind]
    while True:
        made = "".join(random.choices(alphabet, k=length))
        if not kind.startswith("pw"):
            return made
        # Rules for passwords ask for as much.
        has_all = all(any(map(kind_of, made)) for kind_of in _KINDS)
        if has_all and made[0].isalpha() and made[-1].isalnum():
            return made


_KINDS: Final[tuple[Callable[[str], bool], ...]] = (
    str.islower,
    str.isupper,
    str.isdigit,
    lambda char: not char.isalnum(),
)
