"""Kept files without a text that a person has removed."""

from __future__ import annotations

from acphold.safety.redaction.forgotten import Blanking, ForgottenTexts, mark_of
from acphold.safety.snapshots.rewriting import rewrite

from .conftest import Project, is_there
from .test_store import holds, soon

SECRET = "sk-SEKRET77xyz"


def test_a_text_goes_from_the_kept_files_and_all_else_stays(project: Project) -> None:
    first = project.take()
    project.write("deep/below/key.txt", f"the key {SECRET}\n".encode())
    project.write("other.txt", b"other\xff\n")
    second = project.take()
    store = project.store(second)
    change = Blanking(ForgottenTexts([mark_of(SECRET)])).blank_file
    found, too_large = rewrite(store, [first.tree, second.tree], change, 60)
    assert ([*found], too_large) == ([second.tree], 0)
    new = found[second.tree]
    store.was_named(second.tree)
    store.keep([first.tree, new], soon())
    assert (is_there(store, new), is_there(store, second.tree)) == (True, False)
    assert not holds(project, SECRET.encode())
    git = ("-C", store.path)
    shown = project.git(*git, "show", f"{new}:deep/below/key.txt")
    assert shown == "the key [removed: forgotten]\n"
    lists = ("ls-tree", "-r", "--name-only")
    names = [{*project.git(*git, *lists, it).split()} for it in (new, first.tree)]
    assert names[0] - names[1] == {"deep/below/key.txt", "other.txt"}
