"""`acphold connect HOST`: the command that ssh gets for the other machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acphold.faces.cli.packed_words import TYPED_HOST, unpack
from tests.cli.command_line import CommandLine

SSH = """\
#!/bin/sh
for word; do echo "$word"; done
"""


@pytest.mark.parametrize(
    ("words", "runs", "typed"),
    [
        (["connect", "me@there", "claude"], ["wrap", "claude"], None),
        (["connect", "me@there", "--", "it", "--acp"], ["wrap", "--", "it", "--acp"], None),
        (["list", "--host", "me@there", "--json"], ["list", "--json"], "me@there"),
    ],
)
def test_only_commands_that_print_commands_learn_how_the_machine_is_called_here(
    acphold: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    runs: list[str],
    typed: str | None,
) -> None:
    """An editor that connects starts agents there, which would inherit the name."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    done = acphold.run_as_process(*words, PATH=f"{tmp_path}:/usr/bin:/bin")
    given = done.out.splitlines()
    assert given[given.index("--") + 1] == "me@there"
    with monkeypatch.context() as patch:
        patch.setenv(TYPED_HOST, "")
        assert unpack(given[-1].rpartition("' acphold ")[2].split()) == runs
        assert os.environ[TYPED_HOST] == (typed or "")
