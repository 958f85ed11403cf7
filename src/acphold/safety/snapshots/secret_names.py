"""Names of files that usually contain secrets, in any letter case.

Programs keep credentials under these names; scanners for leaked secrets look for most of them.
Names that are rather of public halves (`id_rsa.pub`, `*.crt`) and of sources (`secrets.py`) are not
among them.
"""

from __future__ import annotations

import re
from functools import cache

RULES = 3
"""To be raised with each change here: what is kept under such a name is then left out."""

_CONFIGURATION = r"\.(json|ya?ml|toml|ini|cfg|conf|env|properties|xml|txt|csv|db)"
"""Endings with which an otherwise harmless word is a file of values and not a source."""

_ENDINGS = (
    # keys and stores of keys
    *("pem", "key", "p8", "p12", "pfx", "pkcs12", "ppk", "jks", "keystore", "bks", "agekey"),
    *("keytab", "kdb", "kdbx", "psafe3", "keychain", "agilekeychain", "kwallet"),
    *("keypair", "ovpn", "tblk"),
    # values
    *("env", r"tfstate(\..*)?", r"tfvars(\.json)?", "kubeconfig", "publishsettings", "cscfg"),
)

_NAMES = (
    r"\.env(\..*)?|\.envrc|\.dev\.vars|\.secrets?|\.credentials?|\.vault[-_]?(pass.*|token)",
    r"id_(rsa|dsa|ecdsa|ed25519|xmss)([-_.].*)?(?<!\.pub)|secring\..*|otr\.private_key",
    r"[._]netrc|\.pgpass|pgpass\.conf|\.my\.cnf|\.mylogin\.cnf|\.?htpasswd|\.dbshell",
    r"\.git-credentials|\.npmrc|\.yarnrc|\.pypirc|\.?pip\.conf|\.?s3cfg|\.boto|\.gemrc",
    r"\.dockercfg|\.dockerconfigjson|\.?kube-?config|\.terraformrc|terraform\.rc|\.tugboat",
    r"credentials|credentials\.tfrc\.json|rootkey\.csv|access_?keys?\.csv",
    rf"(.*[-_.])?(access|api|auth|bearer|bot|github|gitlab|oauth|refresh)[-_]?(tokens?|keys?)"
    rf"{_CONFIGURATION}",
    rf"\.?token({_CONFIGURATION})?|tokens\.txt|(.*[-_.])?wallet\.(dat|json|key|txt)",
    rf".*(service[-_]?account|client[-_]secret|firebase[-_]adminsdk).*{_CONFIGURATION}",
    rf"(.*[-_.])?(secrets?|credentials?|passwords?){_CONFIGURATION}",
    r"\.?(aws|gcp|gcloud|azure|google)[-_.]?(credentials?|keys?)(\..*)?|\.?(gcloud|gcp)\.json",
    r"application_default_credentials\.json|local\.settings\.json|auth\.json|heroku\.json",
    r"\.?(sftp|ftp)[-_]?(sync|config|deploy)?\.json|\.ftpconfig|\.remote-sync\.json",
    r"(filezilla|recentservers|sitemanager|webservers)\.xml|deployment-config\.json",
    r"logins\.json|key[34]\.db|wp-config\.php|localsettings\.php|secret_token\.rb",
    r"proftpdpasswd|ventrilo_srv\.ini|robomongo\.json|\.?dbeaver-data-sources\.xml",
    r"\.(bash|zsh|sh|psql|mysql|sqlite|rediscli|irb|python|node_repl)_history|\.rediscli_auth",
    r"\.(esmtp|msmtp|mutt|fetchmail|trc)rc?|shadow|gshadow",
)

_PLACES = (
    r"\.(ssh|gnupg|azure|password-store)/.*(?<!\.pub)|\.config/gcloud/.*",
    r"\.kube/config|\.aws/(credentials|config)|\.docker/config\.json|\.bundle/config",
    r"\.config/(gh/hosts\.yml|hub|glab-cli/config\.yml|rclone/rclone\.conf)|\.?rclone\.conf",
    r"\.m2/settings(-security)?\.xml|\.gem/credentials|\.cargo/credentials(\.toml)?",
    r"\.(claude|codex|gemini)/(\.credentials|auth|oauth_creds)\.json",
    r"\.chef/.*|\.fly/config\.yml|\.databrickscfg|\.snowsql/config|\.purple/accounts\.xml",
)


@cache  # when it is first needed: compiling takes ten milliseconds
def _secrets() -> re.Pattern[str]:
    return re.compile(
        rf"(?:.*/)?(?:(?:[^/]*\.(?:{'|'.join(_ENDINGS)}))|(?:{'|'.join((*_NAMES, *_PLACES))}))",
        re.IGNORECASE | re.DOTALL,
    )


def may_hold_secret(path: str) -> bool:
    """True for the path of a file, below its project, that by its name may contain a secret."""
    return _secrets().fullmatch(path) is not None
