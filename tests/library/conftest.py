"""Fixtures shared by the tests of the library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acp_wire.schema import EnvVariable, McpServerStdio

SERVER = Path(__file__).with_name("mcp_server.py")


def mcp_server(name: str = "test", *args: str, **env: str) -> McpServerStdio:
    """A server of tests/library/mcp_server.py."""
    return McpServerStdio(
        name=name,
        command=sys.executable,
        args=("-S", "-E", str(SERVER), *args),
        env=tuple(EnvVariable(name=key, value=value) for key, value in env.items()),
    )


def broken_server(name: str = "broken") -> McpServerStdio:
    """A server whose program ends at once."""
    return McpServerStdio(
        name=name, command=sys.executable, args=("-c", "raise SystemExit('no config')"), env=()
    )


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working directory of a session."""
    (folder := tmp_path / "work").mkdir()
    return folder
