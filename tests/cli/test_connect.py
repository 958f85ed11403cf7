"""`acphold connect HOST`: the command that ssh gets for the other machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from acphold.faces.cli import packed_words
from acphold.faces.cli.packed_words import pack, unpack
from acphold.faces.cli.ssh import host_option
from tests.cli.command_line import CommandLine

SSH = """\
#!/bin/sh
for word; do echo "$word" >&2; done
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
    given = [line for line in done.err.splitlines() if line]
    assert given[given.index("--") + 1] == "me@there"
    with monkeypatch.context() as patch:
        patch.setattr(packed_words, "typed_host", "")
        assert unpack(given[-1].rpartition("' acphold ")[2].split()) == runs
        assert packed_words.typed_host == (typed or "")


def test_the_typed_machine_is_named_whenever_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed_words, "typed_host", "")
    assert host_option() == ""
    assert unpack(pack("me@there", ["list"]).split()) == ["list"]
    assert [host_option(), host_option()] == [" --host me@there"] * 2
