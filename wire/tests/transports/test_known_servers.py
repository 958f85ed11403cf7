"""The servers that this user has paired with: found by the names that people call them by."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from acp_wire.errors import SettingsError
from acp_wire.transports.known_servers import local_tokens, names, remember, token_for, url_of


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_server_is_found_by_its_host_with_or_without_the_port_or_by_its_first_word() -> None:
    remember("https://desk.example:8260/acp/claude", "one")
    remember("http://localhost:8260", "two")
    for name in ("desk", "Desk", "desk.example", "desk.example:8260", "https://desk.example:8260"):
        assert url_of(name) == "https://desk.example:8260"
    assert names() == ["desk.example", "localhost"]
    remember("http://localhost:9000", "three")
    assert local_tokens() == ["three", "two"]
    assert token_for("https://desk.example:8260/acp") == "one"
    assert token_for("https://cellar.example:8260/acp") is None


def test_a_name_that_may_be_several_servers_or_none_is_refused_with_what_there_is() -> None:
    with pytest.raises(SettingsError, match="paired with none"):
        url_of("desk")
    remember("https://desk.a:1", "one")
    remember("https://desk.b:1", "two")
    remember("https://desk.b:2", "three")
    with pytest.raises(SettingsError, match=r"desk\.a.*desk\.b"):
        url_of("desk")
    with pytest.raises(SettingsError, match=r"paired with https://desk\.a:1"):
        url_of("cellar")
    assert names() == ["desk.a", "desk.b:1", "desk.b:2"]


def test_servers_that_are_paired_with_at_the_same_time_are_all_kept() -> None:
    paired = [f"https://desk-{number:02}.example:8260" for number in range(100)]
    with ThreadPoolExecutor(8) as threads:
        for remembering in [threads.submit(remember, url, "one") for url in paired]:
            remembering.result()
    assert sorted(f"https://{name}:8260" for name in names()) == paired


def test_what_is_not_in_utf_8_is_refused_and_nothing_that_was_kept_is_lost(tmp_path: Path) -> None:
    remember("https://desk.example:8260", "one")
    ca = os.fsdecode(os.fsencode(tmp_path) + b"/\xff/ca.pem")
    with pytest.raises(SettingsError, match=r"ca\.pem' is not in UTF-8"):
        remember("https://cellar.example:8260", "two", ca)
    assert names() == ["desk.example"]
    assert token_for("https://desk.example:8260") == "one"
