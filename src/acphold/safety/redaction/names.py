"""Names of secrets and the looks of their values: `DB_PASSWORD=…`, `"apiToken": "…"`.

The strength of the name and the look of the value decide, and how the two are written together:
see `redaction.detector`. A placeholder for a secret (`$TOKEN`, `<your key>`, `getpass()`) is none.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final

SEEN: Final = 10_000
"""Cached names and values: agents read the same files again and again."""

LONGEST: Final = 4096
"""Longest value examined, in characters; a private key is found by its form."""

SHOWS: Final = 128
"""Characters of a value used to judge its look."""

HIDDEN: Final = "\U0010ffff"
"""Replaces each removed character while the rest is examined."""


class Strength(IntEnum):
    """Strength of a name's hint that its value is secret."""

    NOTHING = 0
    MAYBE = 1
    """`key`, `auth`, `cookie`: secret if the value is random."""
    SECRET = 2
    """`token`, `api_key`, `credentials`: secret unless it is a word."""
    PASSWORD = 3
    """Secret whatever the value is, unless it is a placeholder."""


class Look(IntEnum):
    """The look of a value."""

    NO_SECRET = 0
    """A placeholder, a path, a type, a piece of code."""
    WORD = 1
    """Words, or a number."""
    MIXED = 2
    """Letters, digits and signs; or many words with signs between them."""
    RANDOM = 3
    """Like the output of a generator."""


Least = dict[Strength, Look]
"""The least secret-looking value accepted after a name of each strength."""

SURE: Final[Least] = {
    Strength.PASSWORD: Look.WORD,
    Strength.SECRET: Look.MIXED,
    Strength.MAYBE: Look.RANDOM,
}
"""For places that clearly are a name and its value."""

UNSURE: Final[Least] = {**SURE, Strength.PASSWORD: Look.MIXED}
"""For places where a sentence, or a piece of a program, may look the same."""


# -- names ------------------------------------------------------------------------------------

_RUSSIAN: Final = "\u043f\u0430\u0440\u043e\u043b\u044c"
_ABROAD: Final = (
    "contraseña",
    "hasło",
    "haslo",
    "kennwort",
    "lösenord",
    "passe",
    "passord",
    "senha",
)
_IN_ASIA: Final = ("密码", "密碼", "口令", "パスワード", "비밀번호")
"""Words for password in other scripts."""

STEMS: Final = (
    *("pass", "pwd", "pw", "psw", "secret", "token", "key", "cred", "auth", "cookie", "salt"),
    *("jwt", "bearer", "mnemonic", "seed", "api", "contrasena", "wachtwoord", _RUSSIAN),
    *_ABROAD,
    *_IN_ASIA,
)
"""Every relevant name contains one of these."""

_PASSWORDS: Final = (
    *("password", "passwords", "passwd", "passwrd", "passw", "pwd", "pswd", "pswrd", "psswd"),
    *("passphrase", "passcode", "passwort", "contrasena", "wachtwoord", _RUSSIAN),
    *_ABROAD,
    *_IN_ASIA,
)
"""Endings of the last word of a password's name."""

_SECRETS: Final = frozenset(
    {
        *("secret", "secrets", "token", "apikey", "credential", "credentials", "creds", "cred"),
        *("jwt", "bearer", "salt", "mnemonic", "passkey", "authkey", "accesskey"),
        *("secretkey", "privatekey", "sharedkey", "licensekey", "authtoken", "accesstoken"),
        *("apitoken", "apisecret", "clientsecret"),
    }
)
_MAYBE: Final = frozenset({"key", "keys", "auth", "authentication", "cookie", "seed", "api"})

_KEYS: Final = frozenset(
    {
        *("api", "access", "private", "secret", "client", "app", "application", "auth", "server"),
        *("encryption", "encrypt", "encrypted", "signing", "sign", "master", "account", "shared"),
        *("license", "service", "deploy", "ssh", "rsa", "aes", "hmac", "jwt", "session", "cipher"),
        *("preshared", "psk", "storage", "admin", "user", "write", "consumer", "security", "vapid"),
        *("integration", "ingest", "license", "recovery", "wallet", "deployer", "root", "rails"),
    }
)
"""Words before `key` that make it one that opens something."""

_HARMLESS: Final = frozenset(
    {
        *("public", "pub", "primary", "foreign", "sort", "partition", "cache", "hash", "row"),
        *("column", "idempotency", "translation", "object", "dict", "map", "index", "publishable"),
        *("host", "known", "hot", "short", "shift", "arrow", "group", "composite", "range"),
        *("i18n", "locale", "routing", "config", "setting", "json", "yaml", "registry", "unique"),
        *("max", "min", "num", "total", "input", "output", "prompt", "completion", "pad", "eos"),
        *("bos", "unk", "mask", "sep", "cls", "next", "page", "continuation", "cancellation"),
        *("design", "sync", "start", "end", "stop", "special", "parent", "trace", "span"),
        *("authorized", "allowed", "event", "extra", "field", "lookup", "join", "metric", "label"),
    }
)
"""Words after which neither a key nor a token opens anything."""

_PASSED: Final = frozenset(
    {
        *("base", "value", "val", "text", "string", "str", "data", "plain", "plaintext", "raw"),
        *("clear", "production", "prod", "staging", "stage", "dev", "development", "test", "live"),
        *("old", "new", "current", "default", "previous", "base64", "b64", "hex", "pem", "env"),
        *("bedrock", "main", "primary", "secondary"),
    }
)
"""Words at the end of a name that change nothing."""

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\dA-Za-z_]+")


@lru_cache(SEEN)
def strength(name: str) -> Strength:
    """Return how strongly a name suggests that its value is secret."""
    words = [word.lower() for word in _WORDS.findall(name.rpartition(".")[2])]
    while len(words) > 1 and (words[-1] in _PASSED or words[-1].isdigit()):
        words.pop()
    if not words:
        return Strength.NOTHING
    *before, last = words
    whole = "".join(words)
    if last.endswith(_PASSWORDS) or whole.endswith(_PASSWORDS) or last in ("pw", "psw"):
        return Strength.PASSWORD
    if last.endswith("pass") and last not in ("bypass", "compass", "surpass", "trespass"):
        return Strength.PASSWORD
    if not _HARMLESS.isdisjoint(before[-1:]):
        return Strength.NOTHING
    if last in _SECRETS or last.endswith(("token", "secret", "apikey")):
        return Strength.SECRET
    if last in ("key", "keys", "pat") and not _KEYS.isdisjoint(before):
        return Strength.SECRET
    if last in _MAYBE:
        is_variable = bool(before) and name.isupper()
        return Strength.SECRET if is_variable and last == "key" else Strength.MAYBE
    return Strength.NOTHING


# -- values -----------------------------------------------------------------------------------

_NO_SECRETS: Final = frozenset(
    {
        *("str", "string", "text", "bytes", "bool", "boolean", "int", "integer", "number"),
        *("float", "object", "any", "none", "null", "nil", "undefined", "true", "false", "self"),
        *("required", "optional", "default", "empty", "unset", "hidden", "changeme", "input"),
        *("this", "value", "yes", "no", "on", "off", "never", "always", "wrong", "invalid"),
        *("incorrect", "missing", "expired", "valid", "correct", "enabled", "disabled", "set"),
        *("read", "write", "include", "omit", "same-origin", "unknown", "basic", "bearer"),
        *("header", "prompt", "hash", "hashed", "ask", "test", "admin", "root", "user", "name"),
        *("and", "or", "the", "is", "not", "for", "with", "from", "must", "should", "can", "in"),
    }
)
"""Texts after `password:` in code and prose that are none."""

_STANDS_FOR: Final = re.compile(
    r"""
      \$[A-Za-z_][\w:.]*$ | \$[({] | \{.*\}$ | \{\{ | <[^<>]*>?$ | %\w*%?$ | %\(\w+\)
    | \#\{ | @\w+@$
    | \[.*\]?$ | [*x•.●_-]+$ | (.)\1+$ | .*(?:\.\.\.|…) | process\.env | os\.environ | env\.
    | ENV\[ | secrets\. | vars\. | var\. | local\. | data\. | self\. | this\. | module\.
    """,
    re.VERBOSE,
)
"""Placeholders for a value, and the starts of references to one."""

_PLACEHOLDER: Final = re.compile(
    r"(?i)(?<![a-z])(?:your|example|placeholder|change[-_ ]?me|replace|insert|dummy|redacted"
    r"|removed|todo|fixme|enter|fake|sample|xxx+|my[-_ ]?(?:super[-_ ]?)?(?:secret|pass|token|key))"
)
_NAMES_ITSELF: Final = re.compile(
    r"(?i)pass(?:word|wd|wort|phrase|code)?(?![a-z])|secret|token|credential|api.?key|\bkeys?\b"
)
_WORDY: Final = re.compile(r"[\w. -]+")
_PATH: Final = re.compile(
    r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\](?:[\w@. -]+[/\\])*[\w@. -]*$"
    r"|[\w.-]+(?:/[\w.-]+)+\.[a-z]{1,5}$"
    r"|[\w-]+\.(?:pem|key|crt|json|ya?ml|txt|py|[jt]sx?|env|sh|md|pub)$"
)
_SENTENCE: Final = re.compile(
    r"(?i)\b(?:the|a|an|your|is|are|be|must|to|of|and|or|for|not)\b|[.:?!]$"
)
_FILLED_IN: Final = re.compile(r"\{[A-Za-z_][\w.!\[\]'()]*\}|%\([a-z_]+\)s|\[[a-z][\w -]*\]")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_CHAIN: Final = r"[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)"
_CALL: Final = re.compile(rf"[!&*(]*{_CHAIN}*(?:[(\[{{]|<\w)|[(\[{{]|\\[A-Za-z]")
_ATTRIBUTE: Final = re.compile(rf"{_CHAIN}+[,;)]*$")
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_LICENSE: Final = re.compile(r"(?:[A-Z0-9]{5}-){3,}[A-Z0-9]{5}")
_HEX: Final = re.compile(r"(?:0x)?[0-9A-Fa-f]+")
_NUMBER: Final = re.compile(r"[0-9]+(?:[.,:_/ -][0-9]+)*(?:[a-z]{1,3}|%)?")
_RUN: Final = re.compile(r"[A-Z]?[a-z]{4,}|[A-Z]{4,}")


@lru_cache(SEEN)
def look(value: str) -> Look:
    """Return the look of a value."""
    plain = value[:SHOWS].strip()
    if len(plain) < 4 or HIDDEN in plain or not any(map(str.isalnum, plain)):
        return Look.NO_SECRET
    if plain.lower() in _NO_SECRETS or _STANDS_FOR.match(plain) or _URL.match(plain):
        return Look.NO_SECRET
    if is_random(plain):
        return Look.RANDOM
    if _PLACEHOLDER.search(plain) or _PATH.match(plain) or _FILLED_IN.search(plain):
        return Look.NO_SECRET
    digits = sum(map(str.isdigit, plain))
    if not digits and plain.endswith((":", "?")):
        return Look.NO_SECRET
    if _NAMES_ITSELF.search(plain) and (not digits or (_WORDY.fullmatch(plain) and digits < 3)):
        return Look.NO_SECRET
    if _NUMBER.fullmatch(plain):
        return Look.WORD
    if " " in plain and (_SENTENCE.search(plain) or (not digits and not plain.islower())):
        return Look.NO_SECRET
    if plain.replace(" ", "").isalpha():
        return Look.WORD
    if not digits and len(re.findall(r"[^\W_]+", plain)) < 4 and re.fullmatch(r"[\w.-]+=*", plain):
        return Look.WORD
    return Look.MIXED


def is_random(value: str) -> bool:
    """Return True if a value looks generated, rather than like one thing among many.

    A digest in hexadecimal and a UUID do not: most of them are no secrets.
    """
    return _is_random(value[:SHOWS])


@lru_cache(SEEN)
def _is_random(value: str) -> bool:
    if _LICENSE.fullmatch(value):
        return True
    if len(value) < 16 or " " in value or _UUID.fullmatch(value) or _HEX.fullmatch(value):
        return False
    if _PATH.match(value) and max(map(len, re.split(r"[/\\.]", value))) < 20:
        return False
    letters = [char for char in value if char.isalnum()]
    kinds = [0 if char.isdigit() else 1 if char.islower() else 2 for char in letters]
    changes = sum(one != other for one, other in pairwise(kinds))
    in_words = sum(len(found) for found in _RUN.findall(value))
    return (
        len(letters) >= len(value) * 0.6
        and changes >= (0.2 if kinds.count(0) >= 2 else 0.35) * len(letters)
        and (kinds.count(0) >= 2 or len(letters) >= 20)
        and in_words < 0.4 * len(value)
    )


def is_code(value: str) -> bool:
    """Return True if a value without quotes is a piece of a program."""
    value = value[:SHOWS]
    if _CALL.match(value):
        return True
    return _ATTRIBUTE.match(value) is not None and not is_random(value)
