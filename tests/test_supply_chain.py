"""What builds and publishes acphold, and what it is installed with: nothing moves by itself."""

from __future__ import annotations

import os
import re
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import acphold
from tests.distributions import FOLDERS, PROJECTS, required

ROOT = Path(__file__).parents[1]

DEPENDENCIES = sorted(
    {
        one
        for project in PROJECTS.values()
        for one in [*project["build-system"]["requires"], *required(project)]
        if not one.startswith("acp-")
    }
)

WITHOUT_KNOWN_FAULTS = {"cryptography": (44, 0, 1), "pyjwt": (2, 10, 1)}
"""The first releases above faults that were published. Sources: CVE-2024-12797, CVE-2024-53861."""


def used_actions() -> list[tuple[str, str]]:
    """Each action that a workflow or an action of ours runs: the file, and what follows `uses:`."""
    found = [
        (str(file.relative_to(ROOT)), used)
        for file in sorted((ROOT / ".github").rglob("*.y*ml"))
        for used in re.findall(r"^\s*(?:- )?uses:\s*(.+?)\s*$", file.read_text(), re.MULTILINE)
        if not used.startswith("./")
    ]
    assert len(found) > 10
    return found


def test_every_action_is_pinned_to_a_commit_and_names_its_release() -> None:
    pinned = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [used for used in used_actions() if not pinned.fullmatch(used[1])] == []


def test_one_action_is_pinned_to_one_commit() -> None:
    commits: dict[str, set[str]] = {}
    for _, used in used_actions():
        name, _, commit = used.partition("@")
        commits.setdefault(name, set()).add(commit)
    assert {name: found for name, found in commits.items() if len(found) > 1} == {}


def test_the_image_is_pushed_after_the_upload_and_so_behind_the_same_approval() -> None:
    jobs = dict(
        re.findall(
            r"^  (\w+):\n((?:    .*\n|\n)+)",
            (ROOT / ".github/workflows/release.yml").read_text(),
            re.M,
        )
    )
    assert "environment: pypi" in jobs["publish"]
    assert re.search(r"^    needs: publish\b", jobs["image"], re.M)


@pytest.mark.parametrize("dependency", DEPENDENCIES)
def test_what_is_installed_has_an_upper_bound_and_no_fault_that_was_published(
    dependency: str,
) -> None:
    name, _, bounds = re.fullmatch(r"([\w.-]+)(\[[\w,-]+\])?([^;]*)(?:;.*)?", dependency).groups()  # type: ignore[union-attr]
    if name == "acphold":
        return
    assert re.search(r"<\d|==", bounds), f"{dependency}: the next major release may break us"
    floor = re.search(r">=([\d.]+)", bounds)
    assert floor is not None
    least = WITHOUT_KNOWN_FAULTS.get(name.lower(), ())
    assert tuple(int(part) for part in floor[1].split(".")) >= least


def test_all_distributions_have_one_version() -> None:
    versions = {import_module(f"{package}.version").__version__ for package in FOLDERS}
    assert versions == {acphold.__version__}
    assert f"acp-wire=={acphold.__version__}" in required(PROJECTS["acp_check"])


@pytest.mark.parametrize(("switch", "names"), [(None, "pins"), ("0", "pins"), ("1", "folders")])
def test_a_wheel_names_releases_unless_folders_are_asked_for(
    switch: str | None, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACPHOLD_FOLDERS", raising=False)
    if switch is not None:
        monkeypatch.setenv("ACPHOLD_FOLDERS", switch)
    hook = hook_of_the_build()
    metadata: dict[str, Any] = {"version": "1.2.3"}
    hook.Siblings(str(ROOT), {"dependencies": ["msgspec"]}).update(metadata)
    said = {
        "pins": ["acp-wire==1.2.3", "acp-check==1.2.3", "msgspec"],
        "folders": [
            *(f"acp-{it} @ {(ROOT / it).as_uri()}" for it in ("wire", "check")),
            "msgspec",
        ],
    }
    assert metadata["dependencies"] == said[names]


@pytest.mark.parametrize("made", ["build_editable", "prepare_metadata_for_build_editable"])
@pytest.mark.parametrize(("given", "used"), [(None, "1"), ("0", "0")])
def test_an_editable_install_names_folders_unless_pins_are_asked_for(
    made: str, given: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACPHOLD_FOLDERS", given or "")
    if given is None:
        monkeypatch.delenv("ACPHOLD_FOLDERS")
    hook, seen = hook_of_the_build(), list[str]()

    def build(folder: str) -> str:
        seen.append(os.environ["ACPHOLD_FOLDERS"])
        return "wheel"

    monkeypatch.setattr(hook.backend, made, build)
    assert getattr(hook, made)("folder") == "wheel"
    assert seen == [used]


def hook_of_the_build() -> Any:
    """`hatch_build.py`, as the build imports it."""
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
