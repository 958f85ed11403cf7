"""Work trees with a branch of their own, and the way back, in real repositories."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from acp_wire.errors import WorkspaceError
from acp_wire.surroundings import Surroundings
from acphold.safety.snapshots.branches import (
    BranchTree,
    NewTree,
    commit_all,
    merge,
    new_tree,
    remove_tree,
    tree_of,
    way_back,
)
from tests.snapshots.conftest import Project, begun


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = begun(tmp_path)
    made.write("a.txt", "a\nb\nc\n")
    made.write("sub/b.txt", "b")
    made.commit()
    return made


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    """A person whose git knows their name."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.com\n")
    return Surroundings({"HOME": str(home), "PATH": os.environ["PATH"]}, str(tmp_path))


def its(tree: NewTree) -> BranchTree:
    found = tree_of(tree.cwd)
    assert found is not None
    return found


def branch(project: Project) -> str:
    return project.git("branch", "--show-current").strip()


def write(tree: NewTree, name: str, text: str) -> None:
    path = Path(tree.laid.folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def commit(project: Project, tree: NewTree, message: str = "Work") -> None:
    project.git("add", "-A", at=Path(tree.laid.folder))
    project.git("commit", "-q", "-m", message, at=Path(tree.laid.folder))


def test_a_new_tree_is_a_clean_one_on_a_branch_of_its_own_at_the_same_place(
    project: Project,
) -> None:
    project.write("a.txt", "not committed")
    project.write("new.txt", "neither")
    tree = new_tree(str(project.top / "sub"))
    assert tree.laid.folder == f"{project.top}-work"
    assert (tree.branch, tree.cwd) == ("acphold/work", f"{project.top}-work/sub")
    assert Path(tree.laid.folder, "a.txt").read_text() == "a\nb\nc\n"
    assert project.git("status", "--porcelain", "-b", at=Path(tree.cwd)) == "## acphold/work\n"
    assert tree.notes == (f"without the 2 uncommitted files of {project.top}",)
    other = new_tree(tree.cwd)  # from a tree, beside the project
    assert (other.branch, other.cwd) == ("acphold/work-2", f"{project.top}-work-2/sub")
    assert tree.is_unused()
    tree.remove()
    assert not os.path.exists(tree.laid.folder)
    assert project.git("branch", "--format=%(refname:short)").split() == [
        "acphold/work-2",
        branch(project),
    ]


def test_a_branch_of_somebody_else_is_left_alone(project: Project) -> None:
    project.git("branch", "acphold/work")
    tree = new_tree(str(project.top))
    assert (tree.branch, tree.laid.folder) == ("acphold/work-2", f"{project.top}-work-2")
    write(tree, "x", "said")
    assert not tree.is_unused()


def test_without_a_repository_or_a_commit_there_is_no_tree(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(WorkspaceError, match="in no git repository"):
        new_tree(str(tmp_path / "plain"))
    with pytest.raises(WorkspaceError, match="no commit yet"):
        new_tree(str(begun(tmp_path).top))


def test_a_tree_that_cannot_be_made_leaves_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = project.top / ".git" / "objects"
    blob = project.git("rev-parse", "HEAD:a.txt").strip()
    (objects / blob[:2] / blob[2:]).unlink()
    with pytest.raises(WorkspaceError, match="making a work tree"):
        new_tree(str(project.top))
    assert not os.path.exists(f"{project.top}-work")
    assert project.git("branch", "--format=x") == "x\n"
    assert not (project.top / ".git" / "worktrees").exists()


def test_the_way_back_says_what_would_come_and_merges_it(
    project: Project, here: Surroundings
) -> None:
    tree = new_tree(str(project.top))
    write(tree, "a.txt", "a\nB\nc\nd\n")
    commit(project, tree, "Change a")
    write(tree, "new/c.txt", "c\n")
    project.commit("Meanwhile")
    back = way_back(its(tree))
    assert (back.target, back.into) == (branch(project), str(project.top))
    assert back.commits == ("Change a",)
    assert back.files == (("a.txt", 2, 1),)
    assert back.uncommitted == ("new/c.txt",)
    assert (back.changed, back.conflicts, back.own_git) == ((), (), "")
    back = way_back(commit_all(back, "-m It's done", here))
    assert back.commits == ("-m It's done", "Change a")
    merge(back, "It's done", here)
    assert (project.top / "a.txt").read_text() == "a\nB\nc\nd\n"
    assert (project.top / "new" / "c.txt").read_text() == "c\n"
    assert project.git("status", "--porcelain") == ""
    authors = project.git("log", "-2", "--format=%an %ae %s").splitlines()
    assert authors[0] == "Ada ada@example.com Merge acphold/work: It's done"
    assert way_back(its(tree)).commits == ()


def test_changes_in_the_same_files_and_others_at_the_target_keep_it_from_being_merged(
    project: Project,
) -> None:
    tree = new_tree(str(project.top))
    write(tree, "a.txt", "theirs\n")
    write(tree, "new.txt", "theirs\n")
    commit(project, tree)
    project.write("new.txt", "mine, untracked")
    project.write("sub/b.txt", "mine")
    back = way_back(its(tree))
    assert back.changed == ("new.txt",)
    assert back.own_git == f"{project.top} has uncommitted changes"


def test_conflicts_are_found_before_anything_is_merged(
    project: Project, here: Surroundings
) -> None:
    tree = new_tree(str(project.top))
    write(tree, "a.txt", "theirs\n")
    commit(project, tree)
    project.write("a.txt", "mine\n")
    at = project.commit()
    back = way_back(its(tree))
    assert back.conflicts == ("a.txt",)
    assert back.command == f"git -C {project.top} merge acphold/work"
    with pytest.raises(WorkspaceError, match="merging"):
        merge(back, "T", here)  # something has changed since it was looked at
    assert project.git("status", "--porcelain") == ""
    assert project.git("rev-parse", "HEAD").strip() == at


def test_what_is_under_way_at_the_target_is_left_to_the_person(project: Project) -> None:
    tree = new_tree(str(project.top))
    write(tree, "c.txt", "c")
    commit(project, tree)
    (project.top / ".git" / "MERGE_HEAD").write_text(project.git("rev-parse", "HEAD"))
    assert way_back(its(tree)).own_git == f"a merge or rebase is under way in {project.top}"
    (project.top / ".git" / "MERGE_HEAD").unlink()
    target = branch(project)
    project.git("switch", "-q", "-c", "elsewhere")
    back = way_back(its(tree))
    assert (back.target, back.into) == (target, "")
    assert back.own_git == f"{target} is checked out nowhere"
    assert back.command.startswith(f"git -C {project.top} switch {target} && ")
    project.git("branch", "-D", target)
    with pytest.raises(WorkspaceError, match="is gone"):
        way_back(its(tree))


def test_a_tree_that_was_deleted_moved_or_locked_is_known(project: Project, tmp_path: Path) -> None:
    tree = new_tree(str(project.top / "sub"))
    write(tree, "c.txt", "c")
    commit(project, tree)
    project.git("worktree", "lock", "--reason", "on a stick", tree.laid.folder)
    assert its(tree).locked == "on a stick"
    assert "locked (on a stick)" in remove_tree(its(tree))
    assert os.path.isdir(tree.cwd)
    project.git("worktree", "unlock", tree.laid.folder)
    moved = tmp_path / "moved"
    project.git("worktree", "move", tree.laid.folder, str(moved))
    assert tree_of(tree.cwd) is None
    found = tree_of(str(moved / "sub"))
    assert found is not None
    assert (found.branch, found.is_ours) == ("acphold/work", True)
    project.git("worktree", "move", str(moved), tree.laid.folder)
    shutil.rmtree(tree.laid.folder)
    gone = its(tree)
    assert not gone.is_there
    assert (gone.branch, gone.top) == ("acphold/work", tree.laid.folder)
    back = way_back(gone)
    assert (back.commits, back.uncommitted) == (("Work",), ())
    assert remove_tree(gone) == ""
    assert project.git("branch", "--format=x") == "x\n"
    assert tree_of(tree.cwd) is None


def test_the_main_work_tree_and_one_of_a_person_are_not_ours(
    project: Project, tmp_path: Path
) -> None:
    assert tree_of(str(project.top)) is None
    project.git("worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))
    found = tree_of(str(tmp_path / "mine"))
    assert found is not None
    assert not found.is_ours
    assert remove_tree(found) == "the branch mine"


def test_submodules_are_said_to_be_empty_and_left_to_the_persons_git(
    project: Project, tmp_path: Path, here: Surroundings
) -> None:
    (tmp_path / "inner").mkdir()
    inner = begun(tmp_path / "inner")
    inner.write("i.txt", "i")
    inner.commit()
    project.git("submodule", "add", "-q", str(inner.top), "lib")
    project.commit()
    tree = new_tree(str(project.top))
    assert "submodules are empty" in tree.notes[0]
    project.git("submodule", "update", "-q", "--init", at=Path(tree.cwd))
    lib = Path(tree.cwd, "lib")
    Path(lib, "i.txt").write_text("changed")
    # Nothing is asked of the submodule: its configuration is its own.
    watched = tmp_path / "watched"
    project.git("config", "core.fsmonitor", f"touch {watched};", at=lib)
    assert way_back(its(tree)).uncommitted == ()
    assert not watched.exists()
    project.git("config", "--unset", "core.fsmonitor", at=lib)
    project.git("commit", "-qam", "inner", at=lib)
    commit(project, tree)
    assert way_back(its(tree)).own_git == "it changes a submodule"


def test_nothing_of_the_configuration_of_a_repository_runs(
    project: Project, tmp_path: Path, here: Surroundings
) -> None:
    """Hooks, filters, merge drivers, watchers, signatures, pagers, editors, ssh."""
    ran = tmp_path / "ran"
    program = tmp_path / "run"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >>{ran}\ncat\n')
    program.chmod(0o755)
    project.write(".gitattributes", "*.bin filter=evil\n*.txt merge=evil diff=evil\n")
    project.write("x.bin", "x")
    project.commit()
    hooks = project.top / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in (
        *("post-checkout", "pre-commit", "commit-msg", "prepare-commit-msg", "post-commit"),
        *("pre-merge-commit", "post-merge", "reference-transaction", "post-index-change"),
    ):
        shutil.copy(program, hooks / name)
    for key in (
        *("core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass"),
        *("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "merge.evil.driver"),
        *("diff.evil.textconv", "diff.evil.command", "diff.external", "gpg.program"),
        *("pager.log", "pager.status", "alias.status", "alias.merge", "sequence.editor"),
        *("uploadpack.packObjectsHook", "core.gitProxy", "gpg.ssh.program", "credential.helper"),
        *("hook.evil.command", "core.alternateRefsCommand"),
    ):
        project.git("config", key, str(program))
    for key in ("commit.gpgSign", "merge.verifySignatures", "log.showSignature"):
        project.git("config", key, "true")
    for key in ("filter.evil.required", "submodule.recurse", "status.submoduleSummary"):
        project.git("config", key, "true")
    project.git("config", "core.hooksPath", str(hooks))
    for event in ("post-checkout", "pre-commit", "post-commit", "reference-transaction"):
        project.git("config", "--add", "hook.evil.event", event)
    ran.unlink(missing_ok=True)

    tree = new_tree(str(project.top))
    write(tree, "y.md", "y")
    back = way_back(its(tree))
    assert back.uncommitted == ("y.md",)
    back = way_back(commit_all(back, "T", here))
    assert (back.conflicts, back.own_git) == ((), "")
    merge(back, "T", here)
    assert (project.top / "y.md").read_text() == "y"
    write(tree, "x.bin", "y")
    with pytest.raises(WorkspaceError, match=r"x\.bin has a filter of its own"):
        commit_all(way_back(its(tree)), "T", here)
    Path(tree.laid.folder, "x.bin").write_text("x")
    write(tree, "a.txt", "theirs")
    commit_all(way_back(its(tree)), "T", here)
    assert way_back(its(tree)).own_git == "a.txt has a way to merge of its own (evil)"
    assert tree.is_unused() is False
    assert remove_tree(its(tree)) == ""
    assert not ran.exists(), ran.read_text()


def test_a_work_tree_named_in_the_configuration_is_not_written_to(
    project: Project, tmp_path: Path, here: Surroundings
) -> None:
    tree = new_tree(str(project.top))
    write(tree, "c.txt", "c")
    commit(project, tree)
    other = tmp_path / "other"
    other.mkdir()
    project.git("config", "core.worktree", str(other))
    back = way_back(its(tree))
    assert not back.own_git
    merge(back, "T", here)
    assert os.listdir(other) == []
    assert (project.top / "c.txt").read_text() == "c"


def test_somebody_without_a_name_is_told_how_to_give_one(project: Project, tmp_path: Path) -> None:
    tree = new_tree(str(project.top))
    write(tree, "c.txt", "c")
    nobody = Surroundings({"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, str(tmp_path))
    with pytest.raises(WorkspaceError, match=r"git config --global user\.name"):
        commit_all(way_back(its(tree)), "T", nobody)


# -- other repositories, and other gits ------------------------------------------------------


def use_git(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this shell script in the place of git; `$git` is the real one."""
    folder.mkdir()
    real = shutil.which("git")
    (folder / "git").write_text(f'#!/bin/sh\ngit={real}\n{script}\nexec "$git" "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


OLD = """
case " $* " in
*" version "*) echo "git version 2.30.2"; exit;;
*" --write-tree "*) echo "usage: git merge-tree <base-tree> <branch1> <branch2>" >&2; exit 129;;
esac
unset GIT_CONFIG_COUNT
"""
"""The git of Debian 11."""


def test_a_git_that_finds_no_conflicts_merges_what_can_have_none(
    project: Project, here: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_git(tmp_path / "old", OLD, monkeypatch)
    ran = tmp_path / "ran"
    project.write(".gitattributes", "*.bin filter=evil\n")
    project.write("x.bin", "x")
    project.commit()
    tree = new_tree(str(project.top))
    project.write("sub/b.txt", "mine")
    project.git("commit", "-qam", "Mine")
    for key in ("filter.evil.smudge", "filter.evil.clean", "filter.evil.process"):
        project.git("config", key, f"touch {ran}; cat")
    write(tree, "new.txt", "theirs\n")
    commit_all(way_back(its(tree)), "T", here)
    back = way_back(its(tree))
    assert back.is_ready
    merge(back, "T", here)
    assert (project.top / "new.txt").read_text() == "theirs\n"
    assert new_tree(str(project.top)).is_unused()
    assert not ran.exists()
    for name in ("sub/b.txt", "sub/b.txt/below", "sub"):
        other = new_tree(str(project.top))
        if name != "sub/b.txt":
            shutil.rmtree(Path(other.cwd, "sub"))
        write(other, name, "theirs")
        commit_all(way_back(its(other)), "T", here)
        at = project.git("rev-parse", "HEAD").strip()
        project.write("sub/b.txt", f"mine, with {name}")
        project.git("commit", "-qam", "Mine")
        back = way_back(its(other))
        assert back.own_git.startswith("both sides changed sub")
        assert not back.is_ready
        project.git("reset", "-q", "--hard", at)


def test_a_setting_that_an_old_git_cannot_be_told_of_is_refused(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.git("config", "filter.a=b.smudge", "false")
    tree = new_tree(str(project.top))
    assert way_back(its(tree)).commits == ()
    use_git(tmp_path / "old", OLD, monkeypatch)
    with pytest.raises(WorkspaceError, match=r"needs git 2\.31"):
        way_back(its(tree))


def test_without_git_it_says_so(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = new_tree(str(project.top))
    found = its(tree)
    monkeypatch.setenv("PATH", "/nonexistent")
    for does in (way_back, remove_tree):
        with pytest.raises(WorkspaceError, match="git is not installed"):
            does(found)
    assert os.path.isdir(tree.cwd)


def test_a_repository_of_somebody_else_is_left_to_their_git(
    project: Project,
) -> None:
    found = its(new_tree(str(project.top)))
    if os.getuid():
        pytest.skip("only root can give files away")
    for place in (project.top, project.top / ".git"):
        os.chown(place, 12345, 12345)
    with pytest.raises(WorkspaceError, match="belongs to somebody else; use your own git"):
        way_back(found)


def test_the_work_of_a_shallow_clone_comes_back(
    project: Project, here: Surroundings, tmp_path: Path
) -> None:
    project.write("a.txt", "again")
    project.commit()
    (tmp_path / "there").mkdir()
    clone = Project(tmp_path / "there")
    project.git("clone", "-q", "--depth=1", f"file://{project.top}", str(clone.top))
    tree = new_tree(str(clone.top))
    write(tree, "b.txt", "b")
    back = way_back(commit_all(way_back(its(tree)), "T", here))
    clone.write("c.txt", "c")
    clone.commit()
    merge(way_back(back.tree), "T", here)
    assert (clone.top / "b.txt").read_text() == "b"


def test_a_bare_repository_with_work_trees_has_a_way_back(
    project: Project, here: Surroundings, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.git"
    project.git("clone", "-q", "--bare", str(project.top), str(bare))
    main = tmp_path / "main"
    project.git("worktree", "add", "-q", str(main), branch(project), at=bare)
    tree = new_tree(str(main))
    write(tree, "b.txt", "b")
    back = way_back(commit_all(way_back(its(tree)), "T", here))
    assert (back.target, back.into) == (branch(project), str(main))
    merge(back, "T", here)
    assert (main / "b.txt").read_text() == "b"
    assert remove_tree(its(tree)) == ""
    assert not os.path.exists(tree.laid.folder)
    gone = new_tree(str(main))
    shutil.rmtree(gone.cwd)
    assert way_back(its(gone)).commits == ()
    assert remove_tree(its(gone)) == ""
    assert "acphold" not in project.git("branch", at=bare)


def test_the_branch_is_merged_where_it_is_checked_out_by_now(
    project: Project, here: Surroundings, tmp_path: Path
) -> None:
    target = branch(project)
    tree = new_tree(str(project.top))
    write(tree, "b.txt", "b")
    commit(project, tree)
    project.git("switch", "-q", "--detach")
    assert way_back(its(tree)).own_git == f"{target} is checked out nowhere"
    project.git("worktree", "add", "-q", str(tmp_path / "elsewhere"), target)
    back = way_back(its(tree))
    assert back.into == str(tmp_path / "elsewhere")
    merge(back, "T", here)
    assert (tmp_path / "elsewhere" / "b.txt").read_text() == "b"
    assert not (project.top / "b.txt").exists()


def test_from_no_branch_there_is_no_way_back(project: Project) -> None:
    project.git("switch", "-q", "--detach")
    tree = new_tree(str(project.top))
    assert "no branch was checked out" in tree.notes[-1]
    with pytest.raises(WorkspaceError, match="it came from no branch"):
        way_back(its(tree))


def test_no_ignored_file_is_written_over(project: Project, here: Surroundings) -> None:
    project.write(".gitignore", ".env\nout\n")
    project.commit()
    tree = new_tree(str(project.top))
    for name in (".env", "out/x", "sub/new"):
        write(tree, name, "theirs")
    project.git("add", "-f", ".env", "out/x", "sub/new", at=Path(tree.cwd))
    commit(project, tree)
    project.write(".env", "mine")
    project.write("out", "mine")
    back = way_back(its(tree))
    assert (back.changed, back.is_ready) == ((".env", "out/x"), False)
    for name in (".env", "out"):
        (project.top / name).unlink()
    merge(way_back(its(tree)), "T", here)
    assert (project.top / "out" / "x").read_text() == "theirs"


def test_files_whose_changes_git_does_not_see_are_left_to_the_person(project: Project) -> None:
    tree = new_tree(str(project.top))
    write(tree, "a.txt", "theirs")
    commit(project, tree)
    project.git("update-index", "--assume-unchanged", "a.txt")
    project.write("a.txt", "mine")
    assert way_back(its(tree)).own_git == "a.txt is marked as assume-unchanged"
    project.git("update-index", "--no-assume-unchanged", "a.txt")
    project.git("update-index", "--skip-worktree", "a.txt")
    assert way_back(its(tree)).own_git == "a.txt is marked as skip-worktree"


def test_a_repository_inside_of_the_tree_is_not_committed_as_a_submodule(
    project: Project, here: Surroundings
) -> None:
    tree = new_tree(str(project.top))
    inner = Path(tree.cwd, "inner")
    project.git("init", "-q", str(inner))
    write(tree, "inner/x", "x")
    project.git("add", "-A", at=inner)
    project.git("commit", "-qm", "x", at=inner)
    with pytest.raises(WorkspaceError, match="inner/ is a repository of its own"):
        commit_all(way_back(its(tree)), "T", here)


def test_options_of_a_merge_in_the_configuration_do_not_count(
    project: Project, here: Surroundings
) -> None:
    target = branch(project)
    project.git("config", f"branch.{target}.mergeOptions", "--squash --no-commit")
    project.git("config", "pull.twohead", "ours")
    tree = new_tree(str(project.top))
    write(tree, "b.txt", "b")
    commit(project, tree)
    project.write("c.txt", "c")
    project.commit()
    merge(way_back(its(tree)), "T", here)
    assert (project.top / "b.txt").read_text() == "b"
    assert project.git("status", "--porcelain") == ""
    assert len(project.git("log", "-1", "--format=%P").split()) == 2


def test_a_branch_with_the_name_of_an_option_or_a_pattern_is_none(project: Project) -> None:
    tree = new_tree(str(project.top))
    write(tree, "b.txt", "b")
    commit(project, tree)
    found = its(tree)
    refs = project.top / ".git" / "refs" / "heads"
    (refs / "--upload-pack=x").write_text(f"{found.commit}\n")
    head = Path(found.git_folder, "HEAD")
    head.write_text("ref: refs/heads/--upload-pack=x\n")
    assert way_back(its(tree)).command == f"git -C {project.top} merge {found.commit}"
    Path(found.git_folder, "acphold-branch").write_text("*")
    with pytest.raises(WorkspaceError, match=r"the branch '\*', which it came from, is gone"):
        way_back(its(tree))
