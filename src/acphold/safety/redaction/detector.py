"""Detection of secrets in text, by form, name or place.

A name is found by one of the stems that all such names have. Its value may be quoted or bare in an
assignment, in JSON, even inside JSON, in XML, after an option, in a sentence.

Nothing is sent anywhere to check a secret.
"""

# See docs/decisions.md, 30.

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from acphold.safety.budget import Budget
from acphold.safety.redaction.names import (
    HIDDEN,
    LONGEST,
    STEMS,
    SURE,
    UNSURE,
    Least,
    Strength,
    is_code,
    is_random,
    look,
    strength,
)
from acphold.safety.redaction.rules import PASSWORD, SECRET, FoundSecret, by_form, by_place
from acphold.safety.redaction.texts import TextCut, apart, without

ROUNDS: Final = 4
"""Passes over a text, as long as the rest still has findings."""

NAME_CHARACTERS: Final = 64
"""Longest part of a name before and after its stem."""

BEFORE: Final = 400
"""Characters examined before a name: the start of its line, a value that comes first."""

# -- a value after its name ---------------------------------------------------------------------

# As many backslashes as nested JSON has before a quote, and all up to the next such quote.
_QUOTED: Final = (
    rf"(?:(?P<q>[\"'`])(?P<quoted>(?:\\.|(?!(?P=q))[^\\\n]){{1,{LONGEST}}})(?P=q)"
    rf"|(?P<e>\\+)(?P<p>[\"'])(?P<escaped>[^\n]{{1,{LONGEST}}}?)(?<!\\)(?P=e)(?P=p))"
)
_BARE: Final = rf"[\"'`]?(?P<bare>[^\s\"'`<>]{{1,{LONGEST}}})"
_CLOSED: Final = r"\\*[\"'`]?\]?"
_TYPE: Final = r"(?:\s?:\s?&?[\w' ]{0,12}(?:str|String|string)\b[^=\n\"']{0,12}(?==))?"
_ASSIGNS: Final = r"\s*(?::=|=>|\?\?=|\|\|=|!==?|={1,3}|[:\uff1a])\s*"
_AND_VALUE: Final = r"[\s,]{1,40}\\*[\"']?[Vv]alue\\*[\"']?\s*[:=]\s*"

_TO_QUOTED: Final = re.compile(
    rf"{_CLOSED}{_TYPE}(?:{_ASSIGNS}|{_AND_VALUE})"
    rf"(?:[fFbBuU@]{{0,2}}|(?:String::)?from\(|new \w+\(){_QUOTED}"
)
_TO_DEFAULT: Final = re.compile(
    rf"{_CLOSED}{_ASSIGNS}[\w.$(){{\"'\[\]}}-]{{3,100}}\s*(?:\bor\b|\|\||\?\?)\s*{_QUOTED}"
)
_TO_EQUAL_OPTION: Final = re.compile(rf"=(?:{_QUOTED}|(?!-){_BARE})")
_TO_OPTION: Final = re.compile(rf"\s+(?:{_QUOTED}|(?!-){_BARE})")
_TO_BARE: Final = re.compile(
    rf"{_CLOSED}(?: \[[\w*]{{0,24}}\])?"  # what it is now, as `aws configure` asks for another
    rf"(?P<sign>\s{{0,4}}(?::=|=>|[:=\uff1a]|%3[Dd]|%22%3[Aa]%22)[ \t]{{0,8}}(?:\n[ \t]+)?"
    rf"|\s+value:[ ]){_BARE}"
)
_TO_ELEMENT: Final = re.compile(r"[\"']?>\s*(?P<bare>[^<>\s](?:[^<>\n]{0,200}[^<>\s])?)\s*<")
_TO_ARGUMENT: Final = re.compile(
    rf"(?:\(|(?P<list>[\"']?[ \t]*,[ \t]*)|(?:[ \t]|\\t)+)(?!`){_QUOTED}"
)
_TO_CELL: Final = re.compile(rf"[\"'`*]*\s*\|\s*{_BARE}")
_TO_SENTENCE: Final = re.compile(
    r"[\"'`*]*(?: (?:for|of|to|on|in|f\u00fcr|zu|de|para|pour) [^\n:=.,]{1,40}?)?"
    rf"(?: (?:is|was|lautet|ist|es|est|\u00e8|now)[ :]+|(?<=[^\"'`]):[ ]*){_BARE}"
)
_TO_NEXT: Final = re.compile(rf"\s+{_BARE}")
_TO_ANYTHING: Final = re.compile("")

_TO_FALLBACK: Final = re.compile(r":?[-=](?P<bare>[^\s}]+)")

_LISTED: Final = re.compile(r"[\w.:/ -]*")
"""Text that a list of names may have in between."""

# -- the text before a name ----------------------------------------------------------------------

_VALUE_FIRST: Final = re.compile(
    rf"[Vv]alue\\*[\"']?\s*[:=]\s*{_QUOTED}\s*,"
    r"\s*\\*[\"']?(?:name|key|id)\\*[\"']?\s*[:=]\s*\\*[\"']?\Z"
)
_QUALIFIED: Final = re.compile(r"(?i)\b(api|access|secret|private|auth|license|master)[ -]\Z")
_LINE_BEGINS: Final = re.compile(
    # grep's file and line number; a line's marker; the start of an assignment.
    r"(?:^|\n|\\n)[\w./-]{0,80}(?::?\d+[:\t])?[ \t+>$#-]*"
    r"(?:(?:export|set|setx|declare -x|env|ENV|ARG|local|readonly)\s+)?[\"']?\Z"
)
_IN_ELEMENT: Final = re.compile(r"(?:<[\w.-]*:?|(?:name|key|id)=[\"'])\Z")
_IN_TABLE: Final = re.compile(r"(?:^|\n)[ \t]*\|[^\n]*\Z")
_AFTER_USER: Final = re.compile(
    r"(?i)\b(?:login|user(?:name)?|account|role|with|encrypted)\b[^\n;]{0,60}\s\Z"
)

_WORDY: Final = re.compile(r"[\w.-]+")

# -- the end of a value ---------------------------------------------------------------------------

_ENDS: Final = re.compile(r"[,;)\]}|&]|%26")
_ENDS_LINE: Final = re.compile(r"[ \t\r\"']*(?:\n|\\n|#|\Z)")
_NEXT: Final = re.compile(r"[;&,](?=[\w.%-]{3,40}[=:])")
"""The start of another name after a value."""

# -- searches ------------------------------------------------------------------------------------

_NOTE: Final = re.compile(r"\[removed: [A-Za-z ]{1,40}\]")
"""The note that replaces a removed text; it is not searched."""


def secrets(text: str, budget: Budget) -> list[FoundSecret]:
    """Return the secrets in a text, in order; raises OutOfStepsError. They may overlap: a cookie's
    value, and the cookie with its name.

    One that `is_certain` is searched for everywhere else, too; another may be a common word that is
    secret only in this place. The rest is searched again without them, in up to ROUNDS passes.
    """
    rest = _NOTE.sub(lambda note: HIDDEN * len(note[0]), text)
    all_found: list[FoundSecret] = []
    for _ in range(ROUNDS):
        spans = (*by_form(rest, budget), *by_place(rest, budget), *by_name(rest, budget))
        found = apart(TextCut(start, end, kind) for kind, start, end in spans)
        if not found:
            break
        all_found += spans
        hidden = (cut._replace(replacement=HIDDEN * (cut.end - cut.start)) for cut in found)
        rest = without(rest, hidden)
    return sorted(all_found, key=lambda it: (it.start, -it.end))


def secret_by_name(name: str, value: str) -> FoundSecret | None:
    """Return a finding for the whole value if its name makes it secret: `{"password": "…"}`."""
    how_strong = strength(name)
    if how_strong is Strength.NOTHING or "\n" in value or len(value) > LONGEST:
        return None
    if look(value) < SURE[how_strong]:
        return None
    return FoundSecret(_kind(how_strong), 0, len(value))


def _kind(how_strong: Strength) -> str:
    return PASSWORD if how_strong is Strength.PASSWORD else SECRET


def is_certain(value: str) -> bool:
    """Return True if a value is so unlike a word that it can be searched for elsewhere."""
    value = value[:LONGEST]
    kinds = (str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum())
    mixed = sum(any(map(kind, value)) for kind in kinds)
    return (len(value) >= 8 and mixed >= 3) or (len(value) >= 16 and mixed >= 2)


Candidates = Iterator[tuple[Least, int, int]]
"""Candidates for a value: the required looks, and the span."""


def by_name(text: str, budget: Budget) -> Iterator[FoundSecret]:
    """Yield values that are secret because of their names; raises OutOfStepsError."""
    budget.spend(len(STEMS) * len(text))
    low = text.lower()
    if len(low) != len(text):  # each character has to keep its place
        low = "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
    hits: set[int] = set()
    for stem in STEMS:
        place = low.find(stem)
        while place >= 0:
            hits.add(place)
            place = low.find(stem, place + 1)
    done = 0
    for hit in sorted(hits):
        if hit < done:
            continue
        # The name around it, from `start` to `done`.
        budget.spend(2 * NAME_CHARACTERS)
        start = done = hit
        while start > 0 and hit - start < NAME_CHARACTERS and _is_in_name(text[start - 1]):
            start -= 1
        while done < len(text) and done - hit < NAME_CHARACTERS and _is_in_name(text[done]):
            done += 1
        done = start + len(text[start:done].rstrip(".-$"))
        if text[start - 1 : start] == "\\" and text[start] in "nrt" and start < hit:
            start += 1  # the rest of `\n` in nested JSON before a name
        name = text[start:done]
        how_strong = strength(name)
        if how_strong < Strength.SECRET and (
            word := _QUALIFIED.search(text, max(0, start - 12), start)
        ):
            how_strong = strength(f"{word[1]} {name}")
        if how_strong is Strength.NOTHING:
            continue
        budget.spend(BEFORE + LONGEST)
        for least, at, until in _values_after(text, start, done, how_strong):
            if look(text[at:until]) >= least[how_strong]:
                yield FoundSecret(_kind(how_strong), at, until)
                break


class _Name(NamedTuple):
    """A name in a text, from `start` to `end`, and as much before it as is examined."""

    text: str
    start: int
    end: int
    before: str
    how_strong: Strength

    @property
    def word(self) -> str:
        return self.text[self.start : self.end]


def _values_after(text: str, start: int, end: int, how_strong: Strength) -> Candidates:
    """Yield candidates for the value of the name from `start` to `end`."""
    before = text[max(0, start - BEFORE) : start]
    if first := _VALUE_FIRST.search(before):
        shift = start - len(before)
        at, until = _value_span(first)
        yield SURE, at + shift, until + shift
    name = _Name(text, start, end, before, how_strong)
    for after, take, is_possible in _IN_BRACES if before.endswith("${") else _PLACES:
        if (found := after.match(text, end)) and is_possible(name):
            yield from take(name, found)
            return


def _take_sure(name: _Name, found: re.Match[str]) -> Candidates:
    yield SURE, *_value_span(found)


def _take_unsure(name: _Name, found: re.Match[str]) -> Candidates:
    yield UNSURE, *_value_span(found)


def _take_word(name: _Name, found: re.Match[str]) -> Candidates:
    yield UNSURE, *_trim(name.text, found)


def _take_bare(name: _Name, found: re.Match[str]) -> Candidates:
    """Yield a value without quotes: up to the next space, or to a sign that ends it in a line."""
    at, until = found.span("bare")
    text = name.text
    word = name.word
    sign = found["sign"]
    if is_code(text[at:until]) or (word.lower() == "pass" and sign.endswith(" ")):
        return
    if word.isupper() and sign == "=":  # as in an environment, where everything is a value
        yield SURE, *_trim(text, found)
        return
    begins_line = _LINE_BEGINS.search(name.before) is not None
    ends = None if begins_line else _ENDS.search(text, at + 1, until)
    at, until = _trim(text, found, ends.start() if ends else until)
    value = text[at:until]
    if (
        name.how_strong is not Strength.PASSWORD
        and not is_random(value)
        and (len(value) < 8 or (_WORDY.fullmatch(value) and sum(map(str.isdigit, value)) < 3))
    ):
        return  # names of variables in code have a digit or two
    is_json = name.before.endswith(("'", '"')) and value.isdecimal()
    is_sure = is_json or (begins_line and _ENDS_LINE.match(text, until))
    yield (SURE if is_sure else UNSURE), at, until


def _take_argument(name: _Name, found: re.Match[str]) -> Candidates:
    """Yield a quoted value, unless it is code or the next name in a list."""
    at, until = _value_span(found)
    is_name = found["list"] is not None and _LISTED.fullmatch(name.text, at, until)
    value = name.text[at:until]
    if is_random(value) or not (is_name or is_code(value)):
        yield UNSURE, at, until


def _take_sentence(name: _Name, found: re.Match[str]) -> Candidates:
    if not is_code(found["bare"]):
        yield from _take_word(name, found)


class _Place(NamedTuple):
    """A place of a value: the text after a name; `take` yields the value if it may be one."""

    after: re.Pattern[str]
    take: Callable[[_Name, re.Match[str]], Candidates]
    is_possible: Callable[[_Name], object] = bool  # of every name


_IN_BRACES: Final = (_Place(_TO_FALLBACK, _take_sure),)
"""The places after a name in `${…}`."""

_PLACES: Final = (
    _Place(_TO_QUOTED, _take_sure),
    _Place(_TO_DEFAULT, _take_sure),
    _Place(_TO_EQUAL_OPTION, _take_sure, lambda name: name.word.startswith("-")),
    _Place(_TO_OPTION, _take_unsure, lambda name: name.word.startswith("-")),
    _Place(_TO_BARE, _take_bare),
    _Place(_TO_ELEMENT, _take_sure, lambda name: _IN_ELEMENT.search(name.before)),
    # In a sentence it is an activity.
    _Place(_TO_ANYTHING, lambda *_: iter(()), lambda name: name.word.lower() == "pass"),
    _Place(_TO_ARGUMENT, _take_argument),
    _Place(_TO_CELL, _take_word, lambda name: _IN_TABLE.search(name.before)),
    _Place(_TO_SENTENCE, _take_sentence),
    _Place(_TO_NEXT, _take_sure, lambda name: name.before.endswith(("ENV ", "ARG "))),
    _Place(
        _TO_NEXT,
        _take_word,
        lambda name: name.how_strong is Strength.PASSWORD and _AFTER_USER.search(name.before),
    ),
)
"""All other places: the first that the text has is the one."""


def _value_span(found: re.Match[str]) -> tuple[int, int]:
    """Return the span of the value in a match, without its quotes."""
    groups = found.re.groupindex
    return next(
        found.span(group)
        for group in ("quoted", "escaped", "bare")
        if group in groups and found[group] is not None
    )


def _trim(text: str, found: re.Match[str], until: int | None = None) -> tuple[int, int]:
    """Return a bare value without punctuation at its end, and without another name."""
    at, end = found.span("bare")
    until = end if until is None else until
    if following := _NEXT.search(text, at + 1, until):
        until = following.start()
    return at, at + len(text[at:until].rstrip(".,;:)]}\\|"))


def _is_in_name(char: str) -> bool:
    return char.isalnum() or char in "_-.$"
