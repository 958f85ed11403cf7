"""`acphold connect NAME`: a server is found by the names that people call it by."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_wire.transports.known_servers import known_servers
from acphold.errors import SettingsError
from acphold.faces.cli.servers import FarServer, server_at, server_names


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_server_is_found_by_its_host_with_or_without_the_port_or_by_its_first_word() -> None:
    known_servers().keep("https://desk.example:8260/acp/claude", "one")
    known_servers().keep("http://localhost:8260", "two")
    for name in ("desk", "Desk", "desk.example", "desk.example:8260", "https://desk.example:8260"):
        assert server_at(name) == FarServer("https://desk.example:8260")
    assert server_names() == ["desk.example", "localhost"]


def test_a_name_that_may_be_several_servers_or_none_is_refused_with_what_there_is() -> None:
    with pytest.raises(SettingsError, match="paired with none"):
        server_at("desk")
    known_servers().keep("https://desk.a:1", "one")
    known_servers().keep("https://desk.b:1", "two")
    known_servers().keep("https://desk.b:2", "three")
    with pytest.raises(SettingsError, match=r"desk\.a.*desk\.b"):
        server_at("desk")
    with pytest.raises(SettingsError, match=r"paired with https://desk\.a:1"):
        server_at("cellar")
    assert server_names() == ["desk.a", "desk.b:1", "desk.b:2"]
