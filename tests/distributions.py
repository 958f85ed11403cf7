"""The distributions of this repository, as their project files describe them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

FOLDERS = {"acp_wire": ROOT / "wire", "acp_check": ROOT / "check", "acphold": ROOT}
"""By the package that each installs; each stands on those before it only."""

PROJECTS = {
    package: tomllib.loads((folder / "pyproject.toml").read_text())
    for package, folder in FOLDERS.items()
}


def required(project: Mapping[str, Any]) -> list[str]:
    """Return all that a project requires, with its extras, but for the others of this repository
    that its build adds."""
    static = project["project"]
    listed = static.get("dependencies") or _hook(project)["dependencies"]
    return [*listed, *chain(*static.get("optional-dependencies", {}).values())]


def _hook(project: Mapping[str, Any]) -> Mapping[str, Any]:
    hook: Mapping[str, Any] = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    return hook
