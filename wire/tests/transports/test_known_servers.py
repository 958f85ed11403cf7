"""The servers that this user has paired with, and their tokens."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from acp_wire.errors import SettingsError
from acp_wire.transports.known_servers import KnownServers, known_servers


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_the_token_is_that_of_the_origin_of_a_url() -> None:
    known_servers().keep("https://desk.example:8260/acp/claude", "one")
    assert known_servers().at("https://desk.example:8260/acp").token == "one"
    assert known_servers().at("https://cellar.example:8260/acp").token is None


def test_servers_that_are_paired_with_at_the_same_time_are_all_kept() -> None:
    paired = [f"https://desk-{number:02}.example:8260" for number in range(100)]
    with ThreadPoolExecutor(8) as threads:
        for remembering in [threads.submit(KnownServers().keep, url, "one") for url in paired]:
            remembering.result()
    assert sorted(known_servers()) == paired


def test_what_is_not_in_utf_8_is_refused_and_nothing_that_was_kept_is_lost(tmp_path: Path) -> None:
    known_servers().keep("https://desk.example:8260", "one")
    ca = os.fsdecode(os.fsencode(tmp_path) + b"/\xff/ca.pem")
    with pytest.raises(SettingsError, match=r"ca\.pem' is not in UTF-8"):
        known_servers().keep("https://cellar.example:8260", "two", ca)
    assert {url: it.token for url, it in known_servers().items()} == {
        "https://desk.example:8260": "one"
    }
