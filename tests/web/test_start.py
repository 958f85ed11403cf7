"""Nothing is printed before it is true: a server that cannot accept anybody says why, and ends."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from subprocess import run

import pytest

from tests.cli.command_line import run_here
from tests.web.certificates import Authority, new_authority
from tests.web.conftest import ACPHOLD, AGENT, serving

SECONDS = 60.0
"""For a server that cannot begin to say so: one that waits for its end is found by it."""


SERVE = ("serve", "--listen", "127.0.0.1:0")


def environment(folder: Path, journal: str | None = None) -> dict[str, str]:
    return {
        **os.environ,
        "ACPHOLD_JOURNAL": journal or str(folder / "journal.db"),
        "XDG_STATE_HOME": str(folder / "state"),
    }


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"), "localhost")


def test_a_certificate_or_a_key_that_cannot_be_used_is_said_and_nothing_is_printed(
    tmp_path: Path, authority: Authority
) -> None:
    (other := tmp_path / "other").mkdir()
    strange = new_authority(other, "localhost").key
    missing = tmp_path / "missing.pem"
    for certificate, key, told in (
        (missing, authority.key, f"{missing} cannot be read: No such file"),
        (authority.certificate, missing, f"{missing} cannot be read: No such file"),
        (authority.certificate, tmp_path, f"{tmp_path} cannot be read: Is a directory"),
        (authority.certificate, strange, f"{strange} is not the key of {authority.certificate}"),
        (authority.key, authority.key, "must be PEM files"),
    ):
        words = (*SERVE, "--tls-cert", str(certificate), "--tls-key", str(key), "--", *AGENT)
        ended = run_here(words, environment(tmp_path))
        assert (ended.code, ended.out) == (2, "")
        assert told in ended.err


def test_an_address_for_clients_that_none_can_use_is_refused(tmp_path: Path) -> None:
    for told, urls in {
        "not the address of a server": ("desk.example", "ftp://a", "https://", ""),
        "name the server alone": ("https://a/acphold/", "https://a?b", "https://a b"),
    }.items():
        for url in urls:
            ended = run_here((*SERVE, "--url", url, "--", *AGENT), environment(tmp_path))
            assert (ended.code, ended.out) == (2, "")
            assert repr(url) in ended.err
            assert told in ended.err


def test_a_port_in_use_and_a_journal_that_cannot_be_reached_are_said_before_anything(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = (*SERVE, "--listen", f"127.0.0.1:{port}", "--", *AGENT)
        ended = run_here(words, environment(tmp_path))
    assert (ended.code, ended.out) == (2, "")
    assert f"port {port} is already in use; choose another with --listen" in ended.err
    (tmp_path / "words").write_text("this is no journal, but words of somebody")
    for journal in (str(tmp_path / "words"), "postgresql://127.0.0.1:1/none"):
        ended = run_here((*SERVE, "--", *AGENT), environment(tmp_path, journal))
        assert (ended.code != 0, ended.out) == (True, "")
        assert "journal" in ended.err


def test_a_server_that_fails_as_it_begins_to_accept_prints_no_address(tmp_path: Path) -> None:
    program = (
        "from acphold.web import server\n"
        "async def fail(*_, **__):\n"
        "    raise RuntimeError('it cannot accept')\n"
        "server._CountedServer.startup = fail\n"
        "from acphold.__main__ import main\n"
        "main()\n"
    )
    words = [sys.executable, "-c", program, *SERVE, "--", *AGENT]
    env = environment(tmp_path)
    ended = run(words, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "it cannot accept" in ended.stderr


def test_each_start_serves_the_agents_on_path_and_takes_the_token_of_the_one_before(
    tmp_path: Path,
) -> None:
    (programs := tmp_path / "bin").mkdir()
    for name in ("gemini", "codex-acp", "some-other"):
        (programs / name).write_text(f"#!/bin/sh\nexec {' '.join(AGENT)}\n")
        (programs / name).chmod(0o755)
    env = {"PATH": f"{programs}:/bin", "ACPHOLD_SETTINGS": str(tmp_path / "none.toml")}
    for _ in range(2):
        with serving(tmp_path, agent=(), variables=env) as served:
            assert served.agents == ["codex", "gemini"]
            assert served.agents_running == []
            listed = served.run("access", "list", "--json").splitlines()
            assert "pair" in served.run("access", "pair", "--json")  # it is good for that
    assert [json.loads(line)["name"] for line in listed] == ["this machine"]


def test_a_code_is_not_sent_to_another_machine_in_clear(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    words = [*ACPHOLD, "connect", "http://desk.example:8260/#pair=0123456789"]
    ended = run(words, env=env, capture_output=True, text=True, timeout=SECONDS, input="")
    assert ended.returncode != 0
    assert ended.stdout == ""
    assert "ssh -L 8260:localhost:8260 desk.example" in ended.stderr
