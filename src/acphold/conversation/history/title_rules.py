"""The rules by which a title is made: a sentence of a prompt, what the person asks for. It comes
without pleasantries, without what they pasted, the folders of paths and an agent's elements, and
without secrets, as by `import --redact`.

Compiling these patterns takes a tenth of a start: they are imported at the first title.
"""

from __future__ import annotations

import re
from typing import Final

from acphold.safety.budget import Budget
from acphold.safety.errors import OutOfStepsError
from acphold.safety.redaction.detector import secrets
from acphold.safety.redaction.texts import TextCut, apart, seen_text, without

MADE_UP: Final = re.compile(
    r"(?i)(?:New|Child|ACP|Untitled) (?:Session|Chat|Thread|Agent|Agent Thread)\b[\W\dA-FTZ]*"
    r"(?:\(fork[ #\d]*\))?"
)
"""Matches a title that a program gives a conversation before it has one, or its fork."""

_ELEMENTS: Final = re.compile(
    r"(?ms)^[ \t]*<([A-Za-z][\w:-]{3,})(?: [^<>\n]*)?>(?:(?!</\1>).)*(?:</\1>|\Z)"
)
"""Elements that begin a line: an agent's context, or a file that was pasted. One within a line is
what the person writes about, and so is a short one: `<b>`."""

_BY_PROGRAM: Final = re.compile(_ELEMENTS.pattern.replace(r"[\w:-]{3,}", r"[a-z]*[_-][\w:-]+"))
"""Those that a program wrote: their names have two words, those of HTML have one."""

_TRACEBACK: Final = re.compile(
    r"(?m)^([ \t]*)Traceback \(most recent call last\):.*\n(?:\1[ \t]+.*\n|[ \t]*\n)*(.*)"
    r"(?:\s+(?:During handling of|The above exception).*:\s)?"
)
"""A traceback of Python: its last line says the most."""

_FENCED: Final = re.compile(r"(?ms)^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1|\Z)")

_PASTED: Final = re.compile(
    r"\s*(?:>|\||\$ |\+\+\+|---|@@|at \S+\(|File \"|Traceback"
    r"|\d{4}-\d\d-\d\d[ T]\d|\[\d|[{}\[\]();]+$)"
)
"""The beginnings of lines that were pasted: quotes, tables, commands, patches, logs and code."""

_LINK: Final = re.compile(r"\b[a-z][a-z+.-]{0,30}://[^\s/?#]+([^\s?#]*)[^\s]*")
_PATH: Final = re.compile(
    r"(?<![\w/.~@])(?:@?[\w.+~-]+(?:[/\\][\w.+@-]+){2,}|@[\w.+~-]+[/\\][\w.+@-]+"
    r"|(?:~|[A-Za-z]:)?(?:[/\\][\w.+@-]+){2,}|(?:~|\.{1,2})[/\\][\w.+@-]+)[/\\]?(?![\w<>])"
)
"""A path, and no command such as `/compact`, and no `and/or`."""

_PLEASANTRY: Final = re.compile(
    r"(?ix)^(?:"
    r"(?:hi|hello|hey|hallo|moin|bonjour|hola|good\ (?:morning|afternoon|evening))"
    r"(?:\ (?:there|all|again|claude|codex|gemini))?(?=[\s,.!:;]|$)"
    r"|(?:please|pls|plz|kindly|bitte|ok|okay|so|now|well|great|perfect|thanks|thank\ you|danke)"
    r"(?=[\s,.!:;]|$)"
    r"|(?:can|could|kannst|könntest|können|könnten)\ (?:you|u|du|sie)\b"
    r"(?:\ (?:please|maybe|mir|uns|bitte|mal|kurz|vielleicht)\b)*"
    r"|(?:would|will)\ you\ (?:please|kindly)\b"
    r"|i(?:\ would|'d|\u2019d)\ like\ (?:you\ )?to\b|i\ (?:want|need)\ (?:you\ )to\b"
    r"|(?:help\ me(?:\ to)?|let\ us|let['\u2019]s(?!\ encrypt\b))(?=\s)"
    r")[\s,.!:;\u2013\u2014-]*"
)

_THANKS: Final = re.compile(
    r"(?i)[\s,.!;\u2013\u2014-]{0,20}"
    r"\b(?:please|thanks(?: a lot| in advance)?|thank you|bitte|danke)\W*$"
)

_SENTENCE: Final = re.compile(
    r"(?<=[.!?])\s+(?=[^\Wa-z_]|[\"'(“])|(?<=[。\uff01\uff1f])|(?<=\w[.:]) *$"
)
_LINE: Final = re.compile(r"^\s*(?:#{1,6}\s+|[-*+]\s+|\d{1,2}[.)]\s+)")
"""The sign of a heading, or of an entry of a list."""

_BOLD: Final = re.compile(r"\*\*(?=[^\s*])(.{1,300}?)(?<=\S)\*\*")
_INLINE: Final = re.compile(
    r"[`\\!\[*~_](?:(?<=`)(?<!``)(`*+)(.+?)(?<!`)`\1(?!`)|(?<=\\)([\\`*_\[\]()#+.!~<>-])"
    r"|(?:(?<=!)\[|(?<=\[))([^\[\]]{1,300})\]\([^()\s]*\)"
    r"|(?<=\*)\*(?=[^\s*])(.{1,300}?)(?<=\S)\*\*|(?<=~)~(?=[^\s~])(.{1,300}?)(?<=\S)~~"
    r"|(?<=\*)(?<![\w*]\*)(?![\s*])(.{1,300}?)(?<![\s*])\*(?![\w*])"
    r"|(?<=_)(?<!\w_)(?![\s_])(.{1,300}?)(?<![\s_])_(?!\w))"
)
"""Code, a sign that stands for itself, a link, and emphasis: a sign without its end is none."""

LINES: Final = 40
"""Lines of a prompt that are looked at."""

_LETTERS: Final = 9
"""A sentence of fewer letters says too little if another one follows."""


STEPS: Final = 2_000_000
"""Steps to find the secrets in a prompt: a prompt has a hundred for each character that is read."""

TOO_LONG: Final = "A prompt that is too long to check"


def title_by_rule(said: str, budget: Budget | None = None) -> str | None:
    """Return the sentence of these words that is the title, however long; None if there is none."""
    try:
        seen = seen_text(said)
        found = secrets(seen.text, budget or Budget(STEPS))
    except OutOfStepsError:
        return TOO_LONG
    cuts = [TextCut(*seen.original_span(s, e), kind, f"[removed: {kind}]") for kind, s, e in found]
    said = _BY_PROGRAM.sub("\n", without(said, apart(cuts)))
    if errors := [it[2] for it in _TRACEBACK.finditer(said)]:
        said = f"{_TRACEBACK.sub('', said)}\n{errors[-1]}"
    own = _FENCED.sub("\n", _ELEMENTS.sub("\n", said))
    # What is left of a prompt that is nothing but a pasted text says more than no title.
    for text in (own, said):
        lines = [line for line in text.splitlines() if any(map(str.isalnum, line))]
        written = [line for line in lines if not _PASTED.match(line)]
        for some in (written, lines):
            if titles := [it for line in _paragraphs(some[:LINES]) if (it := _title_of_line(line))]:
                return titles[0] if _tells(titles[0]) else ": ".join(titles[:2])
    return next((line for line in said.splitlines() if line.split()), None)


def as_drawn(said: str) -> str:
    """Return the text of some Markdown as it is drawn, on one line."""
    kept: list[str] = []
    is_code = False
    for line in said.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        else:
            kept.append(line if is_code else _drawn_line(_LINE.sub("", line.lstrip(" >"))))
    return " ".join(kept)


def _drawn_line(line: str) -> str:
    def shown(found: re.Match[str]) -> str:
        _, code, sign, *others = found.groups()
        return code or sign or _drawn_line(next(filter(None, others)))

    return _INLINE.sub(shown, line)


def _paragraphs(lines: list[str]) -> list[str]:
    """Each line, with the next one where it ends within a sentence."""
    return [
        f"{line} {after}" if line.rstrip()[-1:] in ",:" else line
        for line, after in zip(lines, [*lines[1:], ""], strict=False)
    ]


def _title_of_line(line: str) -> str | None:
    """Return what a line asks for; None if that is nothing but a pleasantry."""
    line = _LINK.sub(_last_of_link, _BOLD.sub(r"\1", _LINE.sub("", line)))
    line = " ".join(_PATH.sub(_last_part, line).split())
    sentences = [it for it in _SENTENCE.split(line) if it]
    told: list[str] = []
    for sentence in sentences:
        if words := _without_pleasantries(sentence):
            told.append(words)
            if _tells(" ".join(told)):
                break
    title = " ".join(told)
    if title.endswith(".") and not title.endswith(".."):
        title = title[:-1]
    return title if any(map(str.isalnum, title)) else None


def _tells(words: str) -> bool:
    return sum(map(str.isalnum, words)) >= _LETTERS


def _without_pleasantries(sentence: str) -> str:
    words, was = sentence, ""
    while words != was:
        words, was = _PLEASANTRY.sub("", words, 1), words
    words = _THANKS.sub("", words)
    first = words.partition(" ")[0].rstrip(",:;?!.")
    if words != sentence and first.isalpha() and first.islower():
        words = words[0].upper() + words[1:]
    if sentence.endswith("?") and not sentence.startswith(words) and words.endswith("?"):
        words = words[:-1]  # asked politely, it is no question
    return words


def _last_part(path: re.Match[str]) -> str:
    found = path[0].rstrip("/\\")
    return re.split(r"[/\\]", found)[-1] or path[0]


def _last_of_link(link: re.Match[str]) -> str:
    parts = [part for part in link[1].split("/") if part]
    return "/".join(parts[-2:]) or link[0].partition("://")[2]
