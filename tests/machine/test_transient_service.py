"""The user's manager starts a program of ours, or it is started without."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from acphold.machine import transient_service
from acphold.machine.transient_service import start_as_service

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd")


@pytest.mark.parametrize(
    ("does", "is_started"), [("exit 0", True), ("exit 1", False), ("exec sleep 60", False)]
)
def test_a_program_is_started_only_by_a_manager_that_says_so_in_time(
    does: str, is_started: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run := tmp_path / "systemd-run").write_text(f"#!/bin/sh\n{does}\n")
    run.chmod(0o755)
    monkeypatch.setattr(transient_service, "_is_ours", lambda _: True)
    if not is_started:
        monkeypatch.setattr(transient_service, "ANSWER_SECONDS", 0.3)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert start_as_service(["true"], env, 0, 1) is is_started
