"""The notes about a work tree: what is known of it, and refusals."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from acphold.safety.snapshots.checkouts import Checkout, checkout_of
from acphold.safety.snapshots.store import tree_of
from acphold.safety.snapshots.tree_notes import Ahead, KnownTree, TreeNotes

TREE = "7" * 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (folder := tmp_path / "root").mkdir()
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    subprocess.run(["git", "init", "-q", tmp_path / "project"], check=True, timeout=60)
    found = checkout_of(str(tmp_path / "project"))
    assert found is not None
    return found


def test_what_is_noted_is_known_to_the_next_process(root: Path) -> None:
    known = KnownTree(inside=["vendor/"], ahead={"a.txt": Ahead("100644", TREE, (1, 2))})
    TreeNotes(str(root)).note(TREE, known)
    assert TreeNotes(str(root)).known() == known
    assert tree_of(str(root)) == TREE


def test_the_tree_is_noted_as_that_of_our_index_only_if_nothing_is_ahead_of_it(root: Path) -> None:
    notes = TreeNotes(str(root))
    notes.note(TREE, KnownTree())
    notes.note("8" * 40, KnownTree(ahead={"a.txt": Ahead()}))
    assert (tree_of(str(root)), tree_of(str(root), "base")) == ("8" * 40, TREE)


def test_a_damaged_note_is_none(root: Path, checkout: Checkout) -> None:
    notes = TreeNotes(str(root))
    notes.note(TREE, KnownTree(inside=["vendor/"]))
    notes.refuse(checkout, "too many", None)
    for name in ("known", "given-up"):
        (root / name).write_bytes((root / name).read_bytes()[:-1])
    assert notes.known() == KnownTree()
    assert notes.refusal(checkout) is None


def test_any_name_of_a_file_can_be_noted(root: Path) -> None:
    name = os.fsdecode(b"caf\xc3\xa9 \xff.txt")
    TreeNotes(str(root)).note(TREE, KnownTree(inside=[name]))
    [noted] = TreeNotes(str(root)).known().inside
    assert noted == name


@pytest.mark.parametrize("name", ["new.txt", ".gitignore", ".git/info/exclude"])
def test_a_refusal_ends_when_the_folder_or_its_ignored_names_change(
    root: Path, checkout: Checkout, name: str
) -> None:
    path = Path(checkout.top, name)
    if name != "new.txt":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("/old\n")
    notes = TreeNotes(str(root))
    notes.refuse(checkout, "too many", None)
    path.write_text("/new and longer\n")
    assert notes.refusal(checkout) is None
