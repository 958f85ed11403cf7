"""Rules for secrets with a recognisable form or place, and a fast search for many rules at once.

Each rule names letters with which its pattern begins, or which are near. A text is searched once
for the letters of all rules, and a pattern is tried only where its own letters occur.

The forms are facts documented by the vendors; the rules are ours.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from acphold.safety.budget import Budget
from acphold.safety.redaction.names import Look, look

KEY: Final = "API key"
TOKEN: Final = "token"
PASSWORD: Final = "password"
PRIVATE_KEY: Final = "private key"
WEBHOOK: Final = "webhook"
HASH: Final = "password hash"
SECRET: Final = "secret"


class FoundSecret(NamedTuple):
    """A secret in a text, by its kind, from `start` to `end`."""

    kind: str
    start: int
    end: int


class SecretRule(NamedTuple):
    """A kind of secret, letters that are in it, and the pattern, which begins with them.

    With `back`, it begins up to that many characters before them. If the pattern has groups, the
    last one that matches is the secret, and has to look like `least`. Whether there is one shows in
    `reach` characters; only a secret may be longer.
    """

    kind: str
    letters: str
    pattern: str
    back: int = 0
    least: Look = Look.NO_SECRET
    reach: int = 256


def spotter(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for the starts of these words, each of at least two characters.

    It consumes one character, so that a word may begin inside another one. Words with the same
    start are tried together: a hundred words are as fast as ten.
    """
    endings: dict[str, set[str]] = defaultdict(set)
    for word in words:
        endings[word[0]].add(word[1:])
    return re.compile(
        "|".join(
            f"{re.escape(letter)}(?={'|'.join(map(re.escape, sorted(rest)))})"
            for letter, rest in sorted(endings.items())
        )
    )


class SecretRules:
    """Rules that are searched together."""

    def __init__(self, rules: Sequence[SecretRule]) -> None:
        self._letters = spotter(rule.letters for rule in rules)
        self._by_letters: dict[str, list[SecretRule]] = defaultdict(list)
        for rule in rules:
            self._by_letters[rule.letters[:2]].append(rule)

    def find(self, text: str, budget: Budget) -> Iterator[FoundSecret]:
        """Yield the findings of these rules, which may overlap; raises OutOfStepsError."""
        budget.spend(len(text))
        done: dict[SecretRule, int] = {}
        for hit in self._letters.finditer(text):
            place = hit.start()
            for rule in self._by_letters[text[place : place + 2]]:
                if not text.startswith(rule.letters, place) or place < done.get(rule, 0):
                    continue
                if (found := self._match(rule, text, place, budget)) is None:
                    continue
                start, end = found.span(found.lastindex or 0)
                if not rule.least or look(text[start:end]) >= rule.least:
                    done[rule] = end
                    yield FoundSecret(rule.kind, start, end)

    def _match(
        self, rule: SecretRule, text: str, place: int, budget: Budget
    ) -> re.Match[str] | None:
        """Return the match of a rule around its letters."""
        pattern, begin, reach = _compile(rule.pattern), max(0, place - rule.back), rule.reach
        look_for = pattern.search if rule.back else pattern.match
        while True:
            end = min(place + reach, len(text))
            budget.spend((1 + place - begin) * (_LEAST_STEPS + end - place))
            found = look_for(text, begin, end)
            if found is None or end == len(text) or found.end() + _NEAR < end:
                return found
            reach *= 4


_LEAST_STEPS: Final = 16
"""Steps to try a pattern where it cannot match."""

_NEAR: Final = 128
"""A secret that ends so near to where it was cut off may be longer: lines of a key are shorter."""

_compile: Final[Callable[[str], re.Pattern[str]]] = cache(re.compile)
"""Compiles a pattern on first use: most are never needed."""


_BEGINS: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-F][0-9A-F]))"
"""Not inside a word; but right after `\\n` in JSON inside JSON, or after `%3D`."""

_ENDS: Final = r"(?![A-Za-z0-9])"

_APART: Final = r"(?:(?<![A-Za-z0-9+/])|(?<=\\[nrt])|(?<=%[0-9A-F][0-9A-F]))"
"""Not inside base64 either, such as a picture's, where any few letters occur."""

_KEYS: Final = {
    # Letters and digits: `ghp_0123…`.
    r"[A-Za-z0-9]{28,}": (
        "AKCp CLOJARS_ EAAB EAAC EAAG EAAM EZAK EZTK IGQV LTAI4 LTAI5 PMAT- SUA api_org_ cmVmdGtu "
        "cosmo_ csk- dp.audit. dp.ct. dp.pt. dp.sa. dp.scim. dp.st. duffel_live_ duffel_test_ e2b_ "
        "crsr_ fco_ fcr_ gho_ ghp_ ghr_ ghs_ ghu_ gsk_ hf_ ico- lin_api_ lin_oauth_ napi_ nfb_ "
        "nfc_ nfo_ nfp_ nfu_ npm_ "
        "ntn_ oy2 p8e- pha_ phr_ phs_ phx_ pnu_ pplx- r8_ rdme_ shpat_ shpca_ shppa_ shpss_ shpua_ "
        "sk_prod_ vca_ vci_ vck_ vcp_ vcr_ xai-"
    ),
    r"[A-Za-z0-9]{10,}": (
        "FLWSECK- FLWSECK_TEST- npg_ rk_live_ rk_test_ sk_live_ sk_test_ sm_aat_ sm_pat_ sm_sat_"
    ),
    # The same, and `-` and `_`.
    r"[A-Za-z0-9_-]{20,}": (
        "bb_live_ bb_test_ ctx7sk- "
        "AIza AQVN BBDC- EAAA GOCSPX- GR1348941 HRKU- SWMKEY-1- SWMTKN-1- access-development- "
        "access-production- access-sandbox- akab- bkua_ cfat_ cfk_ cfut_ dckr_oat_ dckr_pat_ "
        "dnkey- figd_ figo_ figor_ fio-u- fo1_ github_pat_ glagent- glcbt- gldt- glffct- glft- "
        "glimt- gloas- glptt- glrt- glrtr- glsoat- glwt- hvb. hvr. hvs. jina_ llx- lsv2_pt_ "
        "lsv2_sk_ nvapi- pcsk_ sb_secret_ sgp_ shippo_live_ shippo_test_ sk-admin- sk-ant- sk-lf- "
        "sk-or-v1- sk-proj- sk-svcacct- sntryu_ sq0atp- sq0csp- sqa_ sqp_ squ_ tfp_ tgp_v1_ tk-us- "
        "tskey- tvly- whsec_ xkeysib-"
    ),
    r"[A-Za-z0-9_.-]{20,}": "glpat-",
    r"[0-9a-f]{8}_[A-Za-z0-9_-]{20,}": "acphold_",
    # The same, with all characters of base64 variants.
    r"[A-Za-z0-9+/=_.-]{24,}": (
        "1//0 ABSK ATATT3 ATBB ATCTT3 ATSTT3 FwoGZXIvYXdzE IQoJb3JpZ2luX2 bedrock-api-key- "
        "eyJrIjoi fm1a_ fm1r_ fm2_ glc_ glsa_ ops_eyJ pscale_oauth_ pscale_pw_ pscale_tkn_ "
        "pypi-AgE sntrys_ ya29."
    ),
    r"[0-9A-Fa-f]{32,}(?:-[0-9]{1,2}(?![0-9]))?": (
        "dapi doo_v1_ dop_v1_ dor_v1_ pul- rubygems_ sbp_ sbp_v0_"
    ),
    r"[A-Z0-9]{16}(?![A-Za-z0-9])": "ABIA ACCA AKIA ASIA",
    r"[A-Z0-9]{17}(?![A-Za-z0-9])": "A3T",
}
"""Keys with distinctive prefixes: prefixes by the pattern of the rest."""

_ENCODED: Final = "LS0tLS1CRUdJTi"
"""`-----BEGIN ` in base64, of a private key or of a certificate."""

_NEXT_LINE: Final = r"(?:\\+[nr]|\s)+(?:[0-9]{1,6}(?:\\+t|[\t\u2192|:])[ \t]*|[+>|-][ \t]?)?"
"""To the next line, behind its number or mark, as tools show files and changes."""

_WHOLE_KEY: Final = 8_192
_LINES_OF_KEY: Final = 2_048
"""Characters in which a private key ends, and lines of one are recognised."""

_MIXED: Final = r"(?=[A-Za-z_-]{0,20}[0-9])(?=[a-z0-9_-]{0,20}[A-Z])"
"""Before random letters and digits, and no word."""

_WITHOUT_PREFIX: Final = re.compile(
    rf"(?<![A-Za-z0-9_])(?:[0-9a-f]{{32}}\.{_MIXED}[A-Za-z0-9]{{16}}"  # Z.ai
    r"|[1-4][A-Za-z0-9]{26}_[A-Za-z0-9]{20,22})(?![A-Za-z0-9_])"  # ngrok
)
"""Keys that nothing begins but themselves."""

_FORMS: Final = (
    SecretRule(KEY, "sk-", _BEGINS + r"sk-(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{20,}"),
    # ElevenLabs, Cursor, Firecrawl, Modal, Composio (and of ngrok's API), Convex.
    SecretRule(KEY, "sk_", _BEGINS + r"sk_[0-9a-f]{48}" + _ENDS),
    SecretRule(KEY, "key_", _BEGINS + r"key_[0-9a-f]{64}" + _ENDS),
    SecretRule(KEY, "fc-", _BEGINS + r"fc-[0-9a-f]{32}" + _ENDS),
    *(
        SecretRule(KEY, letters, rf"{_BEGINS}{letters}{_MIXED}[A-Za-z0-9]{{22}}{_ENDS}")
        for letters in ("ak-", "as-", "wk-", "ws-")
    ),
    SecretRule(KEY, "ak_", rf"{_BEGINS}ak_{_MIXED}[A-Za-z0-9_-]{{16,}}"),
    SecretRule(KEY, "|eyJ", r"(?<=[a-z0-9])\|(eyJ[A-Za-z0-9+/=_-]{20,})"),
    SecretRule(KEY, "re_", _BEGINS + r"re_(?=\w{0,12}[0-9])[A-Za-z0-9]{6,16}_[A-Za-z0-9]{16,}"),
    # With the name of a configuration.
    SecretRule(KEY, "dp.st.", _BEGINS + r"dp\.st\.[a-z0-9_-]{1,60}\.[A-Za-z0-9]{20,}"),
    SecretRule(KEY, "T3BlbkFJ", r"[A-Za-z0-9_-]{18,100}T3BlbkFJ[A-Za-z0-9_-]{18,}", back=100),
    SecretRule(KEY, "xox", _BEGINS + r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}"),
    SecretRule(KEY, "xapp-", r"xapp-[0-9]-[A-Za-z0-9-]{20,}"),
    SecretRule(KEY, "SG.", _BEGINS + r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    SecretRule(KEY, "-us", r"(?<![A-Za-z0-9])[0-9a-f]{32}-us[0-9]{1,2}" + _ENDS, back=33),
    SecretRule(KEY, "SK", _BEGINS + r"SK(?:[0-9a-f]{32}|[0-9A-F]{32})" + _ENDS),
    SecretRule(KEY, "NRAL", r"(?<![A-Za-z0-9])[0-9a-z]{36}NRAL" + _ENDS, back=36),
    SecretRule(KEY, "access_token$", r"access_token\$[a-z]+\$[a-z0-9]+\$[0-9a-f]{32}"),
    SecretRule(KEY, "|", r"(?<=[0-9]{15})\|([A-Za-z0-9_-]{27})(?![A-Za-z0-9_-])"),
    SecretRule(
        KEY, "AAAAAAAAAA", r"(?<![A-Za-z0-9])[A-Za-z0-9]{11}A{10}[A-Za-z0-9_=-]{40,}", back=11
    ),
    SecretRule(KEY, "00D", _BEGINS + r"00D[A-Za-z0-9]{12,15}![A-Za-z0-9._]{60,}"),
    SecretRule(KEY, ":AA", r"(?<![0-9])[0-9]{8,12}:AA[A-Za-z0-9_-]{32,}", back=12),
    SecretRule(KEY, "Q~", r"(?<![\w~.-])[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}", back=4),
    SecretRule(KEY, ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,}", back=14),
    SecretRule(KEY, "key-", r"(?<![A-Za-z0-9-])key-[0-9a-f]{32}" + _ENDS),
    SecretRule(KEY, "pat", _BEGINS + r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    SecretRule(KEY, "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    SecretRule(KEY, "CCIP", r"CCIP(?:AT|RJ)_[A-Za-z0-9]{16,}_[0-9a-f]{40}"),
    SecretRule(KEY, "NR", _BEGINS + r"NR(?:AK|II|JS|AA|SP|BR)-[A-Za-z0-9-]{19,}"),
    SecretRule(KEY, "k.eyJ", r"[st]k\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{16,}", back=1),
    SecretRule(KEY, "secret_", _BEGINS + r"secret_[A-Za-z0-9]{43}" + _ENDS),
    SecretRule(KEY, "cio", _BEGINS + r"cio[A-Za-z0-9]{32}" + _ENDS),
    SecretRule(KEY, "s.", r"(?<![A-Za-z0-9.])s\.(?=[A-Za-z]{0,23}[0-9])[A-Za-z0-9]{24}" + _ENDS),
    SecretRule(KEY, "dt0", _BEGINS + r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    SecretRule(KEY, "A3-", _BEGINS + r"A3-[A-Z0-9]{6}(?:-[A-Z0-9]{5,11}){4,5}"),
    SecretRule(KEY, "API-", _BEGINS + r"API-[A-Z0-9]{26}" + _ENDS),
    SecretRule(KEY, "AZDO", r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}", back=76),
    SecretRule(KEY, "JQQJ99", r"[A-Za-z0-9]{20,60}JQQJ99[A-Za-z0-9]{20,}", back=60),
    SecretRule(KEY, "_mmk", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk", back=36),
    SecretRule(KEY, "v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}"),
    SecretRule(KEY, "sl.", _BEGINS + r"sl\.(?:u\.)?[A-Za-z0-9_-]{120,}"),
    SecretRule(KEY, ":APA91b", r"[A-Za-z0-9_-]{8,30}:APA91b[A-Za-z0-9_-]{100,}", back=30),
    SecretRule(KEY, "A" * 21, r"A{21,}[A-Za-z0-9%]{60,}"),
    SecretRule(KEY, "xprv", r"xprv[1-9A-HJ-NP-Za-km-z]{100,}"),
    SecretRule(KEY, "secret-token:", r"secret-token:[A-Za-z0-9%._~+/=-]{8,}"),
    SecretRule(TOKEN, "sha256~", r"sha256~[A-Za-z0-9_-]{43}"),
    SecretRule(
        TOKEN,
        "eyJ",
        _BEGINS + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}",
        reach=4096,
    ),
    *(
        # A number in base64, a time, a digest.
        SecretRule(
            TOKEN,
            letters,
            rf"{letters}[A-Za-z0-9_-]{{20,26}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,}}",
        )
        for letters in ("MD", "MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT")
    ),
    SecretRule(WEBHOOK, "hooks.slack.com/", r"hooks\.slack\.com/[a-z]+/([A-Za-z0-9+/_-]{20,})"),
    SecretRule(WEBHOOK, ".com/api/webhooks/", r"\.com/api/webhooks/([0-9]+/[A-Za-z0-9_-]{20,})"),
    SecretRule(WEBHOOK, "webhook.office.com/", r"webhook\.office\.com/\w+/([A-Za-z0-9@/_-]{20,})"),
    SecretRule(
        WEBHOOK, "hooks.zapier.com/", r"hooks\.zapier\.com/hooks/catch/([0-9]+/[A-Za-z0-9]+)"
    ),
    SecretRule(WEBHOOK, "/with/key/", r"/with/key/([A-Za-z0-9_-]{16,})"),
    SecretRule(PRIVATE_KEY, "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-[A-Z0-9-]{50,}"),
    SecretRule(PRIVATE_KEY, "AGE-PLUGIN-", r"AGE-PLUGIN-[A-Z0-9-]{20,}"),
    SecretRule(
        PRIVATE_KEY,
        "-----BEGIN ",
        # Up to its end, or if that is missing, as far as it looks like one.
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?>(?:(?!-----)[\s\S]){16,20000})-?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        rf"|(?:{_NEXT_LINE}(?:Proc-Type|DEK-Info|Version|Comment):[^\n\\]{{0,80}})*"
        rf"(?:{_NEXT_LINE}[A-Za-z0-9+/=]{{16,}})+)",
        reach=_WHOLE_KEY,
    ),
    SecretRule(
        PRIVATE_KEY,
        "b3BlbnNzaC1rZXktdjE",
        rf"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=]*(?:{_NEXT_LINE}[A-Za-z0-9+/=]{{40,}})*",
        reach=_LINES_OF_KEY,
    ),
    SecretRule(
        PRIVATE_KEY,
        "Private-Lines:",
        r"Private-Lines: *[0-9]+((?:\s+[A-Za-z0-9+/=]{16,})+)",
        reach=_LINES_OF_KEY,
    ),
    SecretRule(
        PRIVATE_KEY,
        _ENCODED,
        rf"{_ENCODED}[A-Za-z0-9+/_-]{{24,}}={{0,2}}(?:{_NEXT_LINE}[A-Za-z0-9+/_-]{{16,}}={{0,2}})*",
        reach=_LINES_OF_KEY,
    ),
    SecretRule(HASH, "$2", r"\$2[abxy]?\$[0-9]{2}\$[./A-Za-z0-9]{53}"),
    *(
        SecretRule(HASH, f"${way}$", rf"\${way}\$[./A-Za-z0-9$=,]{{2,80}}\$[./A-Za-z0-9+=]{{20,}}")
        for way in ("1", "5", "6", "7", "y", "gy", "sha1", "apr1")
    ),
    SecretRule(HASH, "$argon2", r"\$argon2[a-z]{1,2}(?:\$[A-Za-z0-9=,+/]+){3,4}"),
    SecretRule(HASH, "pbkdf2", r"pbkdf2[_:]sha[0-9]+[$:][0-9]+\$[^\s$\"']+\$[A-Za-z0-9+/=]{16,}"),
    SecretRule(HASH, "scrypt:", r"scrypt:[0-9]+:[0-9]+:[0-9]+\$[^\s$\"']+\$[0-9a-f]{32,}"),
    SecretRule(HASH, "SHA", r"\{SS?HA(?:256|512)?\}[A-Za-z0-9+/]{20,}={0,2}", back=2),
)


LONGEST_KEY: Final = 8_000
"""Characters of a private key in lines of base64."""

_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_IN_KEYS: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/= \r\n\t\\"
)
_LINES: Final = re.compile(
    r"(?:(?<![A-Za-z0-9+/=])|(?<=\\[nr]))(?:[A-Za-z0-9+/=]{16,}+(?:\\+[nr]|\s)++)++\Z"
)


@cache
def _form_rules() -> SecretRules:
    keys = (
        SecretRule(KEY, prefix, ("" if prefix[-1] in "_-." else _APART) + re.escape(prefix) + rest)
        for rest, prefixes in _KEYS.items()
        for prefix in prefixes.split()
    )
    return SecretRules((*keys, *_FORMS))


def by_form(text: str, budget: Budget) -> Iterator[FoundSecret]:
    """Yield the secrets that are recognisable by their form; raises OutOfStepsError."""
    for kind, start, end in _form_rules().find(text, budget):
        if text.startswith(_ENCODED, start):  # a private key or a certificate
            head = text[start:end][:36].translate({ord("-"): "+", ord("_"): "/"})
            if b"PRIVATE" not in b64decode(head):
                continue
        yield FoundSecret(kind, start, end)
    budget.spend(4 * len(text))
    for key in _WITHOUT_PREFIX.finditer(text):
        yield FoundSecret(KEY, *key.span())
    # And private keys whose beginning is missing.
    for last in _END.finditer(text):
        begin = last.start()
        # No further back than a key may reach: text before the previous end was searched already.
        while begin > max(0, last.start() - LONGEST_KEY) and text[begin - 1] in _IN_KEYS:
            begin -= 1
        budget.spend((last.start() - begin) * (1 + text.count("\n", begin, last.start())))
        if found := _LINES.search(text, begin, last.start()):
            yield FoundSecret(PRIVATE_KEY, found.start(), last.end())


_OPTION: Final = r"(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`]+))"
_BEHIND_USER: Final = r"(?:\"[^:\"\n]*:([^\"\n]+)\"|'[^:'\n]*:([^'\n]+)'|[^\s:\"']*:([^\s\"'`]+))"
_ON: Final = r"\b(?:[^\n|;&]|\\\n){0,300}?\s"
"""The rest of a command, which may continue on the next line."""

_PLACES: Final = (
    # The part of a URL before its host: a password, or a token in place of the user.
    SecretRule(
        PASSWORD, "://", r"://[^\s:/\"'`<>\\]{0,80}:([^\s/@\"'`<>\\]{1,200})@", least=Look.WORD
    ),
    SecretRule(TOKEN, "://", r"://([A-Za-z0-9_.~-]{20,200})(?::[\w-]*)?@", least=Look.RANDOM),
    # What `acphold serve` and `acphold access pair` print.
    SecretRule(TOKEN, "#pair=", r"#pair=([\w-]{4,40})"),
    SecretRule(TOKEN, "%23pair%3D", r"%23pair%3D([\w-]{4,40})"),
    SecretRule(TOKEN, "pair", r"pair\\*\"\s*:\s*\\*\"([0-9A-Z]{10})\\*\""),
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
def _place_rules() -> SecretRules:
    return SecretRules([rule._replace(reach=1024) for rule in _PLACES])


def by_place(text: str, budget: Budget) -> Iterator[FoundSecret]:
    """Yield the texts that are secret because of their place; raises OutOfStepsError."""
    yield from _place_rules().find(text, budget)
    budget.spend(4 * len(text))
    if "ookie" in text:
        for cookies in _COOKIES.finditer(text):
            for found in _COOKIE.finditer(text, *cookies.span(1)):
                if look(found[1]) is Look.RANDOM or _DIGEST.fullmatch(found[1]):
                    yield FoundSecret(TOKEN, *found.span(1))
    if "Secret" in text and _MANIFEST.search(text):
        for data in _DATA.finditer(text):
            for found in _DATUM.finditer(text, *data.span(1)):
                if look(found[1]):
                    yield FoundSecret(SECRET, *found.span(1))
