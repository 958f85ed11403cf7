"""The start of `acphold wrap`: the agent is started before anything that takes time is imported."""

from __future__ import annotations

import subprocess
import sys

from tests.distributions import FOLDERS

SOURCES = [folder / "src" for folder in FOLDERS.values()]


def test_nothing_that_takes_milliseconds_is_imported_before_the_agent_starts() -> None:
    heavy = {"asyncio", "contextlib", "enum", "importlib", "logging", "msgspec", "re", "signal"}
    code = "import sys, acphold.faces.cli.start; print(*sys.modules)"
    # Without site, which may import anything; so the package is found by its folder.
    command = [sys.executable, "-S", "-c", code]
    env = {"PYTHONPATH": ":".join(map(str, SOURCES))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, env=env)
    assert not heavy & set(done.stdout.split())


def test_a_front_imports_few_modules_beside_pythons_own() -> None:
    heavy = {"collections", "contextlib", "enum", "msgspec", "re", "typing"}
    code = (
        "import sys; before = {*sys.modules}; import acphold.__main__, acphold.faces.cli.front; "
        "print(*{*sys.modules} - before)"
    )
    command = [sys.executable, "-S", "-c", code]
    env = {"PYTHONPATH": ":".join(map(str, SOURCES))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, env=env)
    imported = {*done.stdout.split()}
    assert not heavy & imported
    assert len([name for name in imported if name.startswith("acp")]) <= 21
