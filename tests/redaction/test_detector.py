"""Secrets in text: known by their form, by their name, by where they stand."""

from __future__ import annotations

import socket
import string
from base64 import encodebytes

import pytest
from hypothesis import given, strategies as st

from acphold.safety.budget import Budget
from acphold.safety.redaction.detector import is_certain, secret_by_name, secrets

LETTERS = "abCD12efGH34ijKL56mnOP78qrST90uvWX12"

SECRETS = {
    "OpenAI": "sk-proj-" + LETTERS,
    "Anthropic": "sk-ant-api03-" + LETTERS,
    "Google": "AIzaSy" + LETTERS[:33],
    "GitHub": "ghp_" + LETTERS,
    "GitHub, fine-grained": "github_pat_" + LETTERS,
    "AWS": "AKIA" + LETTERS.upper()[:16],
    "JSON Web Token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "npm": "//registry.npmjs.org/:_authToken=npm_" + LETTERS,
    "Slack": "xoxb-123456789012-123456789012-" + LETTERS[:24],
    "Stripe": "sk_live_" + LETTERS[:24],
    "acphold": "acphold_0a1b2c3d_" + LETTERS + "-_Ab12x",
    "Resend": "re_9dYSBUup_" + LETTERS[:24],
    "Doppler": "dp.st.dev_personal." + LETTERS + "ab12CD",
    "Doppler, of no configuration": "dp.st." + LETTERS + "ab12CD",
    "age": "AGE-SECRET-KEY-1" + (LETTERS * 2).upper()[:58],
}

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\nx+/=\n-----END RSA PRIVATE KEY-----"


def found(text: str) -> set[str]:
    return {text[finding.start : finding.end] for finding in secrets(text, Budget(10**9))}


BODY = "\n".join(f"MIIEpAIBAAKCAQEA{number:048d}" for number in range(9))


@pytest.mark.parametrize(
    "key",
    [
        "\n".join(
            f"{n:6}\u2192{it}"
            for n, it in enumerate(["-----BEGIN RSA PRIVATE KEY-----", *BODY.split()])
        ),
        "\n".join(
            f"{n:6}\t{it}" for n, it in enumerate(["-----BEGIN PRIVATE KEY-----", *BODY.split()])
        ),
        "".join(f"-{it}\n" for it in ["-----BEGIN PRIVATE KEY-----", *BODY.split()]),
        "".join(
            f"-{it}\n"
            for it in ["-----BEGIN PRIVATE KEY-----", *BODY.split(), "-----END PRIVATE KEY-----"]
        ),
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n"
        + BODY,
        encodebytes(f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n".encode()).decode(),
    ],
)
def test_a_private_key_is_found_in_whatever_form_a_tool_shows_it(key: str) -> None:
    shown = f"cat id\n{key}\n\nDone."
    last = max(secrets(shown, Budget(10**9)), key=lambda it: it.end)
    assert last.kind == "private key"
    assert shown[last.end :].split() == ["Done."]
    assert not set(BODY.split()) & set(shown[: last.start].split())


@pytest.mark.parametrize("name", SECRETS)
def test_a_key_is_found_wherever_it_stands(name: str) -> None:
    value = SECRETS[name].rpartition("=")[2] if name == "npm" else SECRETS[name]
    for text in (SECRETS[name], f"here: {SECRETS[name]}, ok", f'{{"x":"{SECRETS[name]}"}}\n'):
        assert value in found(text), text


def test_all_of_a_private_key_is_found_not_only_its_first_line() -> None:
    assert KEY in found(f"cat key\n{KEY}\ndone")
    assert KEY.replace("\n", "\\n") in found(KEY.replace("\n", "\\n"))


def test_a_private_key_without_its_end_is_found_as_far_as_it_goes() -> None:
    cut = KEY[:52] + "A" * 40 + "\n" + "B" * 64
    assert cut in found(f"{cut}\nand the rest of a sentence")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("password: hunter2, user: x", "hunter2"),
        ('{"password": 84627153, "port": 5432}', "84627153"),
        ('db_password = "correct horse"', "correct horse"),
        ("PASSWORD=hunter2 make", "hunter2"),
        ("export API_KEY='abcd 1234'", "abcd 1234"),
        ("mysql --password hunter2 db", "hunter2"),
        ("tool --token=abcd1234", "abcd1234"),
        ("curl -u ada:hunter2 https://x", "hunter2"),
        ("https://ada:hunter2@example.org", "hunter2"),
        ("Authorization: Bearer abcdefghijklmnop", "abcdefghijklmnop"),
        ('token = "abcdefghijklmnop1234"', "abcdefghijklmnop1234"),
        ("AWS Secret Access Key [None]: wJalrXUtnFEMI/K7MDENG/bPx", "wJalrXUtnFEMI/K7MDENG/bPx"),
        ("%22password%22%3A%22correct7horse%22", "correct7horse%22"),
    ],
)
def test_a_value_is_found_by_what_it_is_called(text: str, value: str) -> None:
    assert value in found(text)


def test_several_secrets_on_one_line_are_all_found() -> None:
    assert {"one1one", "two2two22", "three333"} <= found(
        "password=one1one secret=two2two22 api_key=three333"
    )


@pytest.mark.parametrize(
    "text",
    [
        "def login(user: str, password: str = None) -> None:",
        "password = getpass()",
        '{"password": text_value, "passwordLength": 1024}',
        "secret = os.environ['SECRET']",
        "password: ${DB_PASSWORD}",
        "password = <your password>",
        "The key is under the mat.",
        "commit 3f2a91bc3f2a91bc3f2a91bc3f2a91bc3f2a91bc",
        "id 5f0c954c-ef32-4b2d-8a8e-1f0c954cef32",
        "import secrets",
    ],
)
def test_what_is_no_secret_is_left(text: str) -> None:
    assert found(text) == set()


def test_a_name_makes_a_value_a_secret() -> None:
    assert secret_by_name("password", "hunter two") is not None
    assert secret_by_name("DB_PASSWORD", 'with "quotes"') is not None
    assert secret_by_name("path", "hunter2") is None
    assert secret_by_name("password", "") is None


def test_only_what_is_unlike_a_word_is_looked_for_elsewhere() -> None:
    assert not is_certain(*found("password: hunter"))
    assert is_certain(*found(SECRETS["AWS"]))


def test_nothing_is_sent_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("somebody connects")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for text in SECRETS.values():
        assert found(text)


@given(
    st.text(st.sampled_from(string.ascii_letters + string.digits + "=:'\"\\\n -/@."), max_size=99)
)
def test_any_text_can_be_looked_through(text: str) -> None:
    for finding in secrets("password " + text, Budget(10**9)):
        assert 0 <= finding.start < finding.end <= len(text) + 9


@pytest.mark.parametrize(
    "text",
    [
        "  http://127.0.0.1:9470/#pair=CODE\n",
        "[open](https://box.tail1234.ts.net/#pair=CODE)",
        "https://qr.example/?data=https%3A%2F%2Fbox%2F%23pair%3DCODE&size=200",
        '{"url": "http://127.0.0.1:9470", "pair": "CODE", "agents": []}',
        r'"{\"pair\": \"CODE\"}"',
    ],
)
def test_a_pairing_link_of_our_own_is_a_secret(text: str) -> None:
    code = "7KQ2M9XWT4"
    assert code in found(text.replace("CODE", code))
