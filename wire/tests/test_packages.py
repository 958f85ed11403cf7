"""Optional packages are looked for as Python does."""

from __future__ import annotations

import sys

import pytest

from acp_wire.extras import has_packages


def test_a_finder_without_find_spec_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [object(), *sys.meta_path])
    assert not has_packages("no_such_package")
