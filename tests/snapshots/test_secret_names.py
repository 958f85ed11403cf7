"""Untracked files that may hold a secret are in no snapshot."""

from __future__ import annotations

import pytest

from acphold.safety.snapshots import sieve, snapshot

from .conftest import Project

MARKER = b"only-in-a-secret"

SECRETS = """
.env .ENV sub/.env.local sub/.Env.Production .envrc prod.env .dev.vars .git-credentials .npmrc
.pypirc .netrc _netrc .pgpass .my.cnf .htpasswd .kube/config deep/.kube/config kubeconfig
prod.kubeconfig .aws/credentials .aws/config .azure/accessTokens.json .config/gcloud/x.db
application_default_credentials.json service-account.json my-service_account-prod.json
serviceAccountKey.json client_secret_1.json .docker/config.json .dockercfg .s3cfg .boto
terraform.tfstate terraform.tfstate.backup prod.tfvars .terraformrc id_rsa ID_RSA id_rsa.bak
id_ed25519 id_ed25519_work .ssh/deploy secring.gpg server.pem server.PEM tls.key store.p12 a.pfx
debug.keystore a.jks putty.ppk AuthKey.p8 vault.kdbx .vault-token .vault_pass config/master.key
credentials credentials.json Secrets.yml app-secrets.yaml api_token.txt .m2/settings.xml
.gem/credentials .cargo/credentials.toml .config/gh/hosts.yml .codex/auth.json sftp-config.json
token.txt sub/TOKEN.txt token.json .token tokens.txt github-token.txt wallet.dat old-wallet.dat
gcloud.json .aws.credentials aws.credentials .vscode/sftp.json filezilla.xml wp-config.php
logins.json rclone.conf .psql_history
"""

HARMLESS = """
env.txt src/env.py secrets.py credentials.ts id_rsa.pub .ssh/id_rsa.pub server.crt tokenizer.json
tokens.json token.py token.ts wallet.py src/wallet.ts google.ts gcloud.py config.json
kube/config.py docker/config.json settings.xml keyboard.md environment.yml
"""


def test_untracked_files_that_may_hold_a_secret_are_left_out_and_named(project: Project) -> None:
    for name in SECRETS.split():
        project.write(name, MARKER)
    for name in HARMLESS.split():
        project.write(name)
    taken = project.take()
    assert project.names(taken) == {"a.txt", "folder/b.txt", *HARMLESS.split()}
    assert {one.path for one in taken.left_out} == {*SECRETS.split()}
    assert not project.holds(taken, MARKER)


def test_a_secret_that_is_kept_goes_once_its_name_is_known_or_git_forgets_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(sieve, "may_hold_secret", lambda _: False)
        earlier.setattr(snapshot, "RULES", 0)
        project.write(".npmrc", MARKER)
        assert ".npmrc" in project.names(project.take())
    assert ".npmrc" not in project.names(project.take())
    project.git("add", "-f", ".npmrc")
    assert ".npmrc" in project.names(project.take())
    project.git("rm", "-q", "--cached", ".npmrc")
    assert ".npmrc" not in project.names(project.take())
