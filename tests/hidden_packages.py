"""An environment in which some packages are not installed, for real processes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SITE = """
from importlib.machinery import PathFinder

hidden, finds = {names}, PathFinder.find_spec

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else finds(name, path, target)

PathFinder.find_spec = staticmethod(find_spec)
"""


def without(packages: Iterable[str], folder: Path) -> dict[str, str]:
    """Variables under which no Python imports these packages; `folder` is made for them."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SITE.format(names={*packages}), encoding="utf-8")
    return {"PYTHONPATH": str(folder)}
