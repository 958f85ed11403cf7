"""Secrets in text: the rules of detect-secrets, and a few for what they do not know.

Nothing is sent anywhere: the rules of that library are asked for what they find in a text, and
its checks against the services that a secret would open are never called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from acphold.errors import RedactionError

WINDOW: Final = 16 << 10
"""Characters that are scanned at once: some of the rules take more than twice as long for two."""

OVERLAP: Final = 4 << 10
"""Characters of a window that the next one has again, so that nothing is cut in two unseen."""

SEEN: Final = 50_000
"""Lines whose findings are kept in memory: agents read the same files again and again."""


class Finding(NamedTuple):
    """A secret in a text, from `start` to `end`.

    One that is `certain` is looked for everywhere else, too; another may be a usual word, which is
    one only where it stands.
    """

    kind: str
    start: int
    end: int
    certain: bool


Span = tuple[int, int]
Ask = Callable[[str], Iterable[str]]
Find = Callable[[str], Iterable[Span]]

_OWN: Final = (
    ("API key", r"sk-(?:ant|or|proj|svcacct)-[A-Za-z0-9_-]{16,}|\bsk-[A-Za-z0-9_-]{20,}"),
    ("API key", r"\b(?:xai-|gsk_|hf_|pplx-|r8_|AIza|ya29\.|glsa_|dop_v1_)[A-Za-z0-9_.-]{28,}"),
    ("JSON Web Token", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    ("GitHub Token", r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
    ("Private Key", r"\bAGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    (
        "Private Key",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        # Up to its end, or if that was left out, as far as it looks like one.
        r"(?:(?:(?!-----BEGIN)[\s\S]){0,20000}?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:(?:\\[nr]|\s)+[A-Za-z0-9+/=]{16,})*)",
    ),
    (
        "Secret Keyword",
        r"(?i)--?(?:password|passwd|pwd|token|secret|api-?key)(?:\s+|=)(?!-)(\S{4,})",
    ),
    ("Basic Auth Credentials", r"(?:\s-u|--user)(?:\s*|=)[\"']?[^\s:\"'/]+:([^\s\"']{4,})"),
    ("Bearer Token", r"(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/-]{16,}=*)"),
    (
        "Token",
        r"(?i)(?:token|cookie|authorization|credentials?|api[_-]?key|passphrase)\w*[\"']?"
        r"\s{0,4}(?::=|=>|[:=])\s{0,4}[\"'`]?([A-Za-z0-9._~+/%-]{16,}=*)",
    ),
)
"""What transcripts of coding agents hold and detect-secrets 1.5 does not find."""

_NO_SECRETS: Final = frozenset(
    {
        *("str", "string", "text", "bytes", "bool", "boolean", "int", "integer", "number"),
        *("float", "object", "any", "none", "null", "undefined", "true", "false", "self", "this"),
        *("required", "optional", "default", "empty", "unset", "hidden", "changeme", "input"),
        *("password", "passwd", "secret", "getpass", "prompt"),
    }
)
"""What stands behind `password:` in code and in prose and is none."""

_PREFIXES: Final = ("$", "${", "{", "<", "%", "*", "[removed")
"""How a value begins that only stands for a secret."""

_TAKEN_OUT: Final = "\N{REPLACEMENT CHARACTER}"
"""In the place of a value that was told, while the rest of its line is looked at."""

_ENTROPY: Final = ("Base64 High Entropy String", "Hex High Entropy String")
_KEYWORD: Final = "Secret Keyword"
_LEFT_OUT: Final = frozenset({_KEYWORD, *_ENTROPY, "Public IP (ipv4)"})
"""Rules that are asked in another way, or by `personal`."""


def secrets(text: str) -> Iterator[Finding]:
    """The secrets in a text; they may overlap, and each may be told several times."""
    for kind, find in _own_rules():
        for start, end in find(text):
            yield Finding(kind, start, end, _is_certain(text[start:end]))
    for start in range(0, max(1, len(text) - OVERLAP), WINDOW - OVERLAP):
        for kind, at, end, certain in _in_window(text[start : start + WINDOW]):
            yield Finding(kind, start + at, start + end, certain)


def assigned(name: str, value: str) -> Finding | None:
    """Whether a value is a secret because of its name: `{"password": "…"}`; all of it, then."""
    if not _words().search(name) or "\n" in value or len(value) > WINDOW:
        return None
    if not _may_be_secret(value, ""):
        return None
    return Finding(_KEYWORD, 0, len(value), _is_certain(value))


def _in_window(text: str) -> Iterator[Finding]:
    for kind, find in _rules():
        for start, end in find(text):
            yield Finding(kind, start, end, _is_certain(text[start:end]))
    if _words().search(text):
        place = 0
        for line in text.splitlines(keepends=True):
            for value in _after_keyword(line):
                for start, end in _all(value, line):
                    yield Finding(_KEYWORD, place + start, place + end, _is_certain(value))
            place += len(line)


def _all(value: str, text: str) -> Iterator[Span]:
    """Where a value stands in a text."""
    start = text.find(value)
    while start >= 0:
        yield start, start + len(value)
        start = text.find(value, start + len(value))


@cache
def _own_rules() -> list[tuple[str, Find]]:
    return [(kind, _matches(re.compile(pattern))) for kind, pattern in _OWN]


@cache
def _rules() -> list[tuple[str, Find]]:
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    kinds: dict[str, Any] = get_mapping_from_secret_type_to_class()
    rules: list[tuple[str, Find]] = []
    for kind, made in kinds.items():
        if issubclass(made, RegexBasedDetector) and kind not in _LEFT_OUT:
            rules += [(kind, _matches(pattern)) for pattern in made().denylist]
    unknown = [kind for kind in kinds if kind not in _LEFT_OUT | {rule for rule, _ in rules}]
    if unknown:
        raise RedactionError(f"this detect-secrets has rules that acphold cannot ask: {unknown}")
    return rules + [(kind, _high_entropy(kinds[kind]())) for kind in _ENTROPY]


def _matches(pattern: re.Pattern[str]) -> Find:
    """What a pattern finds: its groups, but where one is only how the secret begins, all of it."""

    def find(text: str) -> Iterator[Span]:
        for found in pattern.finditer(text):
            groups = [group for group in range(1, pattern.groups + 1) if found[group]]
            if not groups or any(found.start(group) == found.start() for group in groups):
                yield found.span()
            else:
                yield from map(found.span, groups)

    return find


def _high_entropy(plugin: Any) -> Find:
    from detect_secrets.filters.heuristic import is_potential_uuid, is_sequential_string

    def find(text: str) -> Iterator[Span]:
        for value in plugin.analyze_string(text):
            if (
                plugin.calculate_shannon_entropy(value) > plugin.entropy_limit
                and not is_potential_uuid(value)
                and not is_sequential_string(value)
            ):
                yield from _all(value, text)

    return find


# -- what its name gives away -------------------------------------------------------------------


@cache
def _words() -> re.Pattern[str]:
    """The names that the keyword rule knows, so that most texts need not be asked about it."""
    from detect_secrets.plugins.keyword import DENYLIST

    return re.compile("|".join(DENYLIST), re.IGNORECASE)


@lru_cache(SEEN)
def _after_keyword(line: str) -> tuple[str, ...]:
    """The values in a line that stand behind such a name."""
    if not _words().search(line):
        return ()
    found: list[str] = []
    rest = line
    # The rule tells the first value of a line only; so what was told is taken out and it is
    # asked again.
    while told := [value for value in _told(rest) if value not in found]:
        found += told
        for value in told:
            rest = rest.replace(value, _TAKEN_OUT)
    return tuple(value for value in found if _may_be_secret(value, line))


def _told(line: str) -> Iterator[str]:
    quoted, bare = _keyword_rules()
    yield from (value for value in quoted(line) if value and _TAKEN_OUT not in value)
    for value in bare(line):
        # Without quotes the rule takes all that is left of the line.
        if (first := re.match(r"[^\s,;)\]}]+", value)) and _TAKEN_OUT not in first[0]:
            yield first[0]


@cache
def _keyword_rules() -> tuple[Ask, Ask]:
    from detect_secrets.plugins import keyword

    plugin = keyword.KeywordDetector()
    config = keyword.CONFIG_DENYLIST_REGEX_TO_GROUP

    def bare(line: str) -> Iterable[str]:
        found: Iterable[str] = plugin.analyze_string(line, denylist_regex_to_group=config)
        return found

    return plugin.analyze_string, bare


def _may_be_secret(value: str, line: str) -> bool:
    from detect_secrets.filters.heuristic import is_indirect_reference

    plain = value.strip().lower()
    return (
        len(plain) >= 4
        and plain not in _NO_SECRETS
        and not plain.startswith(_PREFIXES)
        and any(map(str.isalnum, plain))
        # `password = ask()` names no password.
        and not (value in line and _is_call(value) and is_indirect_reference(line))
    )


def _is_call(value: str) -> bool:
    return re.match(r"[\w.]+[(\[]", value) is not None


def _is_certain(value: str) -> bool:
    """Whether a value is so unlike a word that it can be looked for elsewhere."""
    kinds = (str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum())
    mixed = sum(any(map(kind, value)) for kind in kinds)
    return (len(value) >= 8 and mixed >= 3) or (len(value) >= 16 and mixed >= 2)
