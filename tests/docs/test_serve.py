"""The lines of docs/serve.md that make a service of `serve`, run as they are."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import stat
import sys
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest

LINES = re.findall(
    r"^```sh\n(.*?)^```$",
    (Path(__file__).parents[2] / "docs/serve.md").read_text("utf-8"),
    re.M | re.S,
)


@pytest.mark.skipif(sys.platform != "linux", reason="a unit of systemd")
def test_the_twelve_lines_write_a_unit_that_serves_and_enable_it(tmp_path: Path) -> None:
    (lines,) = LINES
    assert len(lines.splitlines()) == 12
    bin = tmp_path / "my bin"
    bin.mkdir()
    for name in ("systemctl", "loginctl", "acphold"):
        words = [sys.executable, "-P", "-m", "acphold"] if name == "acphold" else ["echo", name]
        (bin / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (bin / name).chmod(0o755)
    home = {"HOME": str(tmp_path), "PATH": f"{bin}:{os.environ['PATH']}"}
    done = run(["sh", "-euc", lines], env=home, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "systemctl --user enable --now acphold-serve",
        "loginctl enable-linger",
    ]
    unit = tmp_path / ".config/systemd/user/acphold-serve.service"
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    settings = dict(
        line.split("=", 1) for line in unit.read_text().splitlines() if not line.startswith("[")
    )
    assert settings["WantedBy"] == "default.target"
    if verify := shutil.which("systemd-analyze"):  # nothing is started
        told = run(
            [verify, "--user", "verify", str(unit)],
            env={**home, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert "acphold-serve" not in told.stderr, told.stderr
    # As the manager starts it: in the home folder, with its variables and few others.
    name, _, value = shlex.split(settings["Environment"])[0].partition("=")
    env = {name: value, "HOME": str(tmp_path), "ACPHOLD_JOURNAL": str(tmp_path / "journal.db")}
    env |= {it: os.environ[it] for it in ("PYTHONPATH",) if it in os.environ}
    words = [*shlex.split(settings["ExecStart"]), "--listen=127.0.0.1:0", "--json", "demo"]
    with Popen(words, env=env, cwd=tmp_path, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert '"url":"https://desk.example"' in process.stdout.readline().replace(" ", "")
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
