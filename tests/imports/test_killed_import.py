"""An import that is killed with SIGKILL, at any point, and run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.imports.soak import Soak


@pytest.mark.slow
def test_an_import_killed_at_random_and_run_again_makes_the_journal_of_one_in_one_go(
    tmp_path: Path,
) -> None:
    soak = Soak(tmp_path, seed=7)
    soak.run(2)
    assert soak.points >= 2
