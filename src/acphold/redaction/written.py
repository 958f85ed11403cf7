"""Secrets recognised by their place: in URLs, in headers, after options of certain programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from acphold.redaction.names import Look, look
from acphold.redaction.rules import PASSWORD, SECRET, TOKEN, Found, SecretRule, SecretRules

_OPTION: Final = r"(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`]+))"
_BEHIND_USER: Final = r"(?:\"[^:\"\n]*:([^\"\n]+)\"|'[^:'\n]*:([^'\n]+)'|[^\s:\"']*:([^\s\"'`]+))"
_ON: Final = r"\b(?:[^\n|;&]|\\\n){0,300}?\s"
"""The rest of a command, which may continue on the next line."""

_RULES: Final = (
    # The part of a URL before its host: a password, or a token in place of the user.
    SecretRule(
        PASSWORD, "://", r"://[^\s:/\"'`<>\\]{0,80}:([^\s/@\"'`<>\\]{1,200})@", least=Look.WORD
    ),
    SecretRule(TOKEN, "://", r"://([A-Za-z0-9_.~-]{20,200})(?::[\w-]*)?@", least=Look.RANDOM),
    SecretRule(TOKEN, "sig=", r"(?<=[?&;-])sig=([A-Za-z0-9%+/=_-]{20,})"),
    SecretRule(TOKEN, "ignature=", r"(?<=[sS])ignature=([A-Za-z0-9%+/=_-]{20,})"),
    SecretRule(TOKEN, "key=", r"(?<=[?&;])key=([A-Za-z0-9%+/_-]{20,})", least=Look.MIXED),
    SecretRule(
        TOKEN,
        "earer ",
        r"(?<=[Bb])earer +(?=[A-Za-z._~+/-]{0,60}[0-9])([A-Za-z0-9._~+/-]{12,}=*)",
        least=Look.MIXED,
    ),
    SecretRule(
        TOKEN,
        "uthorization",
        r"uthorization\\*[\"']?\s*[:=,]\s*\\*[\"']?"
        r"(?:[Bb]asic|[Tt]oken|[Aa]pi-?[Kk]ey|Bot|[Kk]ey|NTLM)[ =]+([^\s\"'`\\,;(){}<>$]{8,})",
        least=Look.MIXED,
    ),
    SecretRule(
        TOKEN,
        "uthorization",
        r"uthorization\\*[\"']?\s*[:=,]\s*\\*[\"']?[Bb]earer +([A-Za-z0-9._~+/-]{12,}=*)",
        least=Look.WORD,
    ),
    SecretRule(
        TOKEN,
        "uthorization",
        r"uthorization\\*[\"']?\s*[:=]\s*\\*[\"']?([^\s\"'`\\,;(){}<>$]{16,})",
        least=Look.RANDOM,
    ),
    SecretRule(
        PASSWORD,
        "curl",
        rf"curl{_ON}(?:-u\s*|--(?:proxy-)?user[ =]){_BEHIND_USER}",
        least=Look.WORD,
    ),
    SecretRule(PASSWORD, "mysql", rf"mysql\w*{_ON}-p{_OPTION}", least=Look.MIXED),
    SecretRule(PASSWORD, "mariadb", rf"mariadb\S*{_ON}-p{_OPTION}", least=Look.MIXED),
    SecretRule(PASSWORD, "sshpass", rf"sshpass\s+-p\s*{_OPTION}", least=Look.WORD),
    SecretRule(PASSWORD, "login", rf"login{_ON}-p\s*{_OPTION}", least=Look.WORD),
    SecretRule(PASSWORD, "mongo", rf"mongo\w*{_ON}-p\s+{_OPTION}", least=Look.MIXED),
    SecretRule(PASSWORD, "redis-cli", rf"redis-cli{_ON}-a\s+{_OPTION}", least=Look.MIXED),
    SecretRule(PASSWORD, "ldap", rf"ldap\w+{_ON}-w\s+{_OPTION}", least=Look.MIXED),
    SecretRule(PASSWORD, "zip ", rf"zip{_ON}-P\s*{_OPTION}", least=Look.MIXED),
    SecretRule(PASSWORD, "pass:", r"(?<![\w-])pass:([^\s\"'`]+)", least=Look.MIXED),
    SecretRule(
        PASSWORD,
        "echo ",
        rf"echo\s+(?:-n\s+)?{_OPTION}\s*\|[^\n]{{0,200}}(?:--(?:password-)?stdin|sudo -S)",
        least=Look.WORD,
    ),
    *(
        SecretRule(
            PASSWORD,
            letters,
            rf"{letters} (?i:(?:with \S+ )?(?:by|as) (?:password )?)(?=\S{{0,40}}[0-9]){_OPTION}",
            least=Look.MIXED,
        )
        for letters in ("IDENTIFIED", "identified", "Identified")
    ),
    SecretRule(
        PASSWORD,
        "ConvertTo-SecureString",
        r"ConvertTo-SecureString\s+(?:-\w+\s+)*\\*(?:\"([^\"\\\n]+)|'([^'\n]+)|([^\s\"'`]+))",
        least=Look.MIXED,
    ),
    # A line of .pgpass, and of the same format.
    *(
        SecretRule(
            PASSWORD, port, rf"{re.escape(port)}[\w.*-]+:[\w.*-]+:([^\s:\"']{{6,}})(?=\n|\Z)"
        )
        for port in (":5432:", ":5433:", ":6432:", ":*:")
    ),
    *(
        SecretRule(
            SECRET,
            word,
            word + r"(?: phrase| words)?\\*[\"']?\s*(?:is\s*)?[:=]\s*\\*[\"']?"
            r"((?:[a-z]{3,8}[ \n]+){11,23}[a-z]{3,8})",
        )
        for word in ("eed", "nemonic", "phrase", "words")
    ),
)

_COOKIES: Final = re.compile(r"(?<=[Cc])ookie\\*[\"']?\s*[:=]\s*([^\n\"']{1,8000})")
_COOKIE: Final = re.compile(r"=([^;\s\"'\\]{16,})")
_DIGEST: Final = re.compile(r"[0-9a-f-]{32,}")

_MANIFEST: Final = re.compile(r"(?m)^kind:\s*[\"']?Secret\b")
_DATA: Final = re.compile(r"(?m)^(?:stringD|d)ata:[ \t]*\n((?:[ \t]+\S.*\n?)+)")
_DATUM: Final = re.compile(r"(?m)^[ \t]+[\w.-]+:[ \t]+[\"']?([^\s\"']{4,})[\"']?[ \t]*$")


@cache
def _rules() -> SecretRules:
    return SecretRules(_RULES)


def by_place(text: str) -> Iterator[Found]:
    """Yield the texts that are secret because of their place."""
    yield from _rules().find(text)
    if "ookie" in text:
        for cookies in _COOKIES.finditer(text):
            for found in _COOKIE.finditer(text, *cookies.span(1)):
                if look(found[1]) is Look.RANDOM or _DIGEST.fullmatch(found[1]):
                    yield TOKEN, *found.span(1)
    if "Secret" in text and _MANIFEST.search(text):
        for data in _DATA.finditer(text):
            for found in _DATUM.finditer(text, *data.span(1)):
                if look(found[1]):
                    yield SECRET, *found.span(1)
