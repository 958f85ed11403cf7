"""Secrets with a recognisable form: vendors' keys, private keys, webhooks, hashes.

The forms are facts documented by the vendors; the rules are ours.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from typing import Final

from acphold.redaction.rules import (
    HASH,
    KEY,
    PRIVATE_KEY,
    TOKEN,
    WEBHOOK,
    Found,
    SecretRule,
    SecretRules,
)

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
        "gho_ ghp_ ghr_ ghs_ ghu_ gsk_ hf_ ico- lin_api_ lin_oauth_ nfb_ nfc_ nfo_ nfp_ nfu_ npm_ "
        "ntn_ oy2 p8e- pha_ phr_ phs_ phx_ pnu_ pplx- r8_ rdme_ shpat_ shpca_ shppa_ shpss_ shpua_ "
        "sk_prod_ vca_ vci_ vck_ vcp_ vcr_ xai-"
    ),
    r"[A-Za-z0-9]{10,}": (
        "FLWSECK- FLWSECK_TEST- npg_ rk_live_ rk_test_ sk_live_ sk_test_ sm_aat_ sm_pat_ sm_sat_"
    ),
    # The same, and `-` and `_`.
    r"[A-Za-z0-9_-]{20,}": (
        "AIza AQVN BBDC- EAAA GOCSPX- GR1348941 HRKU- SWMKEY-1- SWMTKN-1- access-development- "
        "access-production- access-sandbox- akab- bkua_ cfat_ cfk_ cfut_ dckr_oat_ dckr_pat_ "
        "dnkey- figd_ figo_ figor_ fio-u- fo1_ github_pat_ glagent- glcbt- gldt- glffct- glft- "
        "glimt- gloas- glptt- glrt- glrtr- glsoat- glwt- hvb. hvr. hvs. jina_ llx- lsv2_pt_ "
        "lsv2_sk_ nvapi- pcsk_ sb_secret_ sgp_ shippo_live_ shippo_test_ sk-admin- sk-ant- sk-lf- "
        "sk-or-v1- sk-proj- sk-svcacct- sntryu_ sq0atp- sq0csp- sqa_ sqp_ squ_ tfp_ tgp_v1_ tk-us- "
        "tskey- tvly- whsec_ xkeysib-"
    ),
    r"[A-Za-z0-9_.-]{20,}": "glpat-",
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

_FORMS: Final = (
    SecretRule(KEY, "sk-", _BEGINS + r"sk-(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{20,}"),
    SecretRule(KEY, "T3BlbkFJ", r"[A-Za-z0-9_-]{18,}T3BlbkFJ[A-Za-z0-9_-]{18,}", back=100),
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
    SecretRule(KEY, "JQQJ99", r"[A-Za-z0-9]{20,}JQQJ99[A-Za-z0-9]{20,}", back=60),
    SecretRule(KEY, "_mmk", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk", back=36),
    SecretRule(KEY, "v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}"),
    SecretRule(KEY, "sl.", _BEGINS + r"sl\.(?:u\.)?[A-Za-z0-9_-]{120,}"),
    SecretRule(KEY, ":APA91b", r"[A-Za-z0-9_-]{8,}:APA91b[A-Za-z0-9_-]{100,}", back=30),
    SecretRule(KEY, "A" * 21, r"A{21,}[A-Za-z0-9%]{60,}"),
    SecretRule(KEY, "xprv", r"xprv[1-9A-HJ-NP-Za-km-z]{100,}"),
    SecretRule(KEY, "secret-token:", r"secret-token:[A-Za-z0-9%._~+/=-]{8,}"),
    SecretRule(TOKEN, "sha256~", r"sha256~[A-Za-z0-9_-]{43}"),
    SecretRule(
        TOKEN,
        "eyJ",
        _BEGINS + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}",
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
        r"(?:(?:(?!-----)[\s\S]){16,20000}+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:(?:\\+[nr]|\s)+[A-Za-z0-9+/=]{16,})+)",
    ),
    SecretRule(
        PRIVATE_KEY,
        "b3BlbnNzaC1rZXktdjE",
        r"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=]*(?:(?:\\+[nr]|\s)+[A-Za-z0-9+/=]{40,})*",
    ),
    SecretRule(
        PRIVATE_KEY, "Private-Lines:", r"Private-Lines: *[0-9]+((?:\s+[A-Za-z0-9+/=]{16,})+)"
    ),
    SecretRule(PRIVATE_KEY, _ENCODED, _ENCODED + r"[A-Za-z0-9+/_-]{24,}={0,2}"),
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
def _rules() -> SecretRules:
    keys = (
        SecretRule(KEY, prefix, ("" if prefix[-1] in "_-." else _APART) + re.escape(prefix) + rest)
        for rest, prefixes in _KEYS.items()
        for prefix in prefixes.split()
    )
    return SecretRules((*keys, *_FORMS))


def by_form(text: str) -> Iterator[Found]:
    """Yield the secrets that are recognisable by their form."""
    for kind, start, end in _rules().find(text):
        if text.startswith(_ENCODED, start):  # a private key or a certificate
            head = text[start:end][:36].translate({ord("-"): "+", ord("_"): "/"})
            if b"PRIVATE" not in b64decode(head):
                continue
        yield kind, start, end
    # And private keys whose beginning is missing.
    for last in _END.finditer(text):
        begin = last.start()
        # No further back than a key may reach: text before the previous end was searched already.
        while begin > max(0, last.start() - LONGEST_KEY) and text[begin - 1] in _IN_KEYS:
            begin -= 1
        if found := _LINES.search(text, begin, last.start()):
            yield PRIVATE_KEY, found.start(), last.end()
