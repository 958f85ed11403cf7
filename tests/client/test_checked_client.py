"""Our own client, before the checker of clients."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

import acphold


@pytest.mark.slow
async def test_our_own_client_breaks_no_rule_on_a_tour(tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    watcher = (sys.executable, "-m", "acp_check", "--client", "--report", str(report))
    async with (
        asyncio.timeout(60),
        acphold.connect(
            *watcher,
            cwd=tmp_path,
            on_permission=lambda question: True,
            files=True,
            terminals=True,
        ) as agent,
    ):
        session = await agent.new_session()
        assert (await session.prompt("go")).stop_reason == "end_turn"
    told = report.read_text()
    assert "✗" not in told, told
    assert os.listdir(tmp_path) == ["report.txt"]
