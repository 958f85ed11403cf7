"""`acphold serve` on a terminal: the pairing link stays in sight."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import acphold
from tests.editor import scripted_agent
from tests.web.conftest import ACPHOLD

pytestmark = pytest.mark.slow

SECONDS = 30.0


class Screen:
    """All that a program has written on its terminal."""

    def __init__(self, ours: int) -> None:
        os.set_blocking(ours, False)
        self._ours = ours
        self.text = ""

    def until(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + SECONDS
        while (found := re.search(pattern, self.read())) is None:
            assert time.monotonic() < deadline, self.text
            time.sleep(0.05)
        return found

    def read(self) -> str:
        try:
            while piece := os.read(self._ours, 65536):
                self.text += piece.decode()
        except OSError:  # there is no more for now
            pass
        return self.text


@pytest.fixture(params=["warning", "debug"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def screen(tmp_path: Path, level: str) -> Iterator[Screen]:
    ours, theirs = pty.openpty()
    env = {
        **os.environ,
        "ACPHOLD_JOURNAL": str(tmp_path / "journal.db"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    command = [*ACPHOLD, "serve", "--listen", "127.0.0.1:0", "--log-level", level]
    process = subprocess.Popen(
        [*command, "--", *scripted_agent()], env=env, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        yield Screen(ours)
    finally:
        process.terminate()
        process.wait(SECONDS)
        os.close(ours)


async def test_what_agents_write_on_stderr_does_not_push_the_pairing_link_away(
    screen: Screen, level: str, tmp_path: Path
) -> None:
    url, code = screen.until(r"(http://\S+?)/#pair=(\w+)").groups()
    shown = screen.read()
    async with httpx2.AsyncClient(timeout=SECONDS) as web:
        paired = await web.post(f"{url}/pair", json={"code": code, "name": "here"})
    async with acphold.connect(url, token=paired.json()["token"]) as agent:
        session = await agent.new_session(cwd=tmp_path)
        noise = [{"stderr": f"noise {number}\n"} for number in range(50)]
        await session.prompt(json.dumps([*noise, {"say": "done"}]))
    if level == "debug":
        screen.until("noise 49")
    else:
        assert "noise" not in screen.read().removeprefix(shown)
