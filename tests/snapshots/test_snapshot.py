"""Taking snapshots: their content, the files left out, and the things left untouched."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from acp_wire.surroundings import Surroundings
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots.bounds import SnapshotLimits
from acphold.safety.snapshots.checkouts import Checkout, checkout_of, object_format
from acphold.safety.snapshots.git import Git
from acphold.safety.snapshots.packs import has_base
from acphold.safety.snapshots.sieve import Sieve
from acphold.safety.snapshots.snapshot import NotTaken, Taken, take

from .conftest import Project, age, digest, files, patch

TAKE = """
import sys, time
import msgspec
from acp_wire.surroundings import Surroundings
from acphold.safety.snapshots.checkouts import checkout_of
from acphold.safety.snapshots.store import Stores
from acphold.safety.snapshots.bounds import SnapshotLimits
from acphold.safety.snapshots.snapshot import take
stores, top = sys.argv[1:]
taken = take(Stores(stores), checkout_of(top), Surroundings.here(), limits=SnapshotLimits(free=0),
             deadline=time.monotonic() + 30)
sys.stdout.buffer.write(msgspec.json.encode(taken))
"""


def taking(project: Project, *front: str) -> subprocess.Popen[bytes]:
    """Start another process that takes a snapshot and prints it."""
    words = [*front, sys.executable, "-c", TAKE, project.stores.folder, str(project.top)]
    return subprocess.Popen(words, stdout=subprocess.PIPE)


def taken_by(running: subprocess.Popen[bytes]) -> Taken:
    return msgspec.json.decode(running.communicate(timeout=60)[0], type=Taken)


def objects(project: Project) -> int:
    return sum(len(names) for _, _, names in os.walk(project.stores.folder))


def test_an_unchanged_project_has_the_same_snapshot_and_nothing_is_written(
    project: Project,
) -> None:
    first = project.take()
    project.take()  # what is remembered of the folders
    before = objects(project)
    third = project.take()
    assert (third.tree, third.added) == (first.tree, 0)
    assert objects(project) == before


def test_the_names_that_are_ignored_everywhere_are_those_of_whoever_asked_for_the_agent(
    project: Project, tmp_path: Path
) -> None:
    checkout = checkout_of(str(project.top))
    assert checkout is not None
    found = {}
    for person in ("ann", "ben"):
        ignored = tmp_path / person / ".config" / "git" / "ignore"
        ignored.parent.mkdir(parents=True)
        ignored.write_text(f"of-{person}\n")
        project.write(f"of-{person}")
    for person in ("ann", "ben", "ann"):
        around = Surroundings({"HOME": str(tmp_path / person)}, "/")
        taken = take(project.stores, checkout, around, limits=SnapshotLimits(free=0))
        assert not isinstance(taken, NotTaken)
        found[person] = project.names(taken) - {"a.txt", "folder/b.txt"}
    assert found == {"ann": {"of-ben"}, "ben": {"of-ann"}}


def test_changed_new_deleted_and_renamed_files_are_in_the_next_snapshot(project: Project) -> None:
    project.take()
    project.write("a.txt", "other\n")
    project.write("new/deep/c.txt")
    (project.top / "folder/b.txt").rename(project.top / "moved.txt")
    taken = project.take()
    assert project.names(taken) == {"a.txt", "new/deep/c.txt", "moved.txt"}
    assert files(Path(project.lay(taken).folder)) == files(project.top)


@pytest.mark.usefixtures("quick_clock")
def test_a_file_that_was_read_before_is_read_again_once_it_has_changed_again(
    project: Project,
) -> None:
    project.take()
    for text in ("once\n", "again\n", "and again\n"):
        project.write("a.txt", text)
        age()
        taken = project.take()
        assert project.holds(taken, text.encode())
    assert files(Path(project.lay(taken).folder)) == files(project.top)


def test_the_repository_stays_byte_for_byte_as_it_was(project: Project) -> None:
    project.git("status")  # writes the index now, not later
    lock = project.write(".git/index.lock", "of another program")
    before = digest(project.top / ".git")
    for number in range(100):
        project.write("a.txt", f"{number}\n")
        project.take()
    assert digest(project.top / ".git") == before
    lock.unlink()
    assert project.git("for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
    other = project.folder / "mirror.git"
    project.git("init", "-q", "--bare", str(other))
    project.git("push", "-q", "--mirror", str(other))
    assert project.git("for-each-ref", "--format=%(refname)", at=other) == "refs/heads/main\n"


def test_the_surroundings_of_the_process_change_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = project.take()
    shutil.rmtree(project.stores.folder)
    (other := project.folder / "other").mkdir()
    project.git("init", "-q", at=other)
    before = digest(other)
    for name, value in {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git" / "objects"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.autocrlf",
        "GIT_CONFIG_VALUE_0": "input",
        "TZ": "Asia/Tokyo",
        "LANG": "de_DE.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)
    assert project.take().tree == taken.tree
    assert digest(other) == before


MARKER = b"only-in-what-is-ignored"


def test_ignored_files_of_all_four_sources_are_never_in_the_store(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = project.folder / "home"
    (home / "xdg" / "git").mkdir(parents=True)
    (home / "xdg" / "git" / "ignore").write_text("never\n")
    (home / "mine").write_text("*.mine\n")
    (home / ".gitconfig").write_text(f"[core]\n\texcludesFile = {home}/mine\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    project.write(".gitignore", "*.log\n/build/\n")
    project.write("folder/.gitignore", "here.txt\n")
    (project.top / ".git/info/exclude").write_text("private\n")
    ignored = ("x.log", "build/out", "folder/here.txt", "private", "deep/private", "x.mine")
    for name in ignored:
        project.write(name, MARKER)
    project.write("seen.txt")
    assert "x.mine" not in project.status()
    taken = project.take()
    assert project.names(taken) == {
        ".gitignore",
        "a.txt",
        "folder/.gitignore",
        "folder/b.txt",
        "seen.txt",
    }
    assert not project.holds(taken, MARKER)


def test_a_tracked_file_that_is_also_ignored_is_in(project: Project) -> None:
    project.write(".gitignore", "*.log\n")
    project.write("kept.log", "tracked")
    project.git("add", "-f", "kept.log")
    assert "kept.log" in project.names(project.take())
    project.write("later.log", "tracked later")
    project.git("add", "-f", "later.log")
    assert "later.log" in project.names(project.take())
    project.write("kept.log", "changed")
    taken = project.take()
    assert files(Path(project.lay(taken).folder))[b"kept.log"] == ("file", b"changed")


def test_a_tracked_file_that_comes_back_is_in_though_its_name_is_ignored(project: Project) -> None:
    project.write(".gitignore", "*.log\n")
    project.write("kept.log", "first")
    project.git("add", "-f", "kept.log")
    (project.top / "kept.log").unlink()
    assert "kept.log" not in project.names(project.take())
    for content in ("second", "third"):
        project.write("kept.log", content)
        taken = project.take()
        laid = project.lay(taken, content)
        assert files(Path(laid.folder))[b"kept.log"] == ("file", content.encode())
        (project.top / "kept.log").unlink()
        assert "kept.log" not in project.names(project.take())


def test_a_file_that_is_ignored_from_now_on_is_in_no_later_snapshot(project: Project) -> None:
    project.write("tmp.txt")
    assert "tmp.txt" in project.names(project.take())
    project.write(".gitignore", "tmp.txt\n")
    assert "tmp.txt" not in project.names(project.take())
    assert "tmp.txt" not in project.names(project.take())
    (project.top / ".gitignore").unlink()
    assert "tmp.txt" in project.names(project.take())
    (project.top / ".git/info/exclude").write_text("tmp.txt\n")
    assert "tmp.txt" not in project.names(project.take())


def test_large_untracked_files_are_left_out_and_larger_tracked_ones_too(project: Project) -> None:
    limits = SnapshotLimits(untracked_file=1000, tracked_file=2000, free=0)
    project.write("large.bin", b"x" * 1001)
    project.write("a.txt", b"x" * 1999)
    taken = project.take(limits)
    assert project.names(taken) == {"a.txt", "folder/b.txt"}
    assert [one.path for one in taken.left_out] == ["large.bin"]
    project.write("a.txt", b"x" * 2001)
    taken = project.take(limits)
    assert project.names(taken) == {"folder/b.txt"}
    assert taken.left_out_count == 2
    project.write("a.txt", b"small")
    assert project.names(project.take(limits)) == {"a.txt", "folder/b.txt"}


def test_bounds_on_files_new_bytes_store_and_free_space_refuse(project: Project) -> None:
    assert "2 files are tracked" in project.refused(SnapshotLimits(tracked_files=1, free=0))
    for number in range(30):
        project.write(f"new/{number}", b"x" * 100)
    assert "30 new files" in project.refused(SnapshotLimits(new_files=29, free=0))
    assert "are new" in project.refused(SnapshotLimits(new_bytes=2000, free=0))
    project.write("top")  # otherwise it is left alone for a day
    assert "free on the disk" in project.refused(SnapshotLimits(free=1 << 60))
    project.take()
    project.write("new/more")
    assert "store is full" in project.refused(SnapshotLimits(store=1, free=0))


def test_new_files_of_a_repository_inside_count_and_tracked_ones_do_not(project: Project) -> None:
    for number in range(40):
        project.write(f"tracked/{number}")
    project.commit()
    project.git("init", "-q", str(project.top / "inside"))
    for number in range(30):
        project.write(f"inside/{number}")
    assert "30 new files" in project.refused(SnapshotLimits(new_files=29, free=0))
    project.write("tracked/0", "changed")  # otherwise it is left alone for a day
    assert len(project.names(project.take(SnapshotLimits(new_files=30, free=0)))) == 72
    for number in range(30):
        project.write(f"inside/{number}", "no longer new")
        project.write(f"tracked/more/{number}")
    project.git("add", "tracked")
    assert len(project.names(project.take(SnapshotLimits(new_files=29, free=0)))) == 102


def test_tracked_files_of_a_repository_inside_count_among_the_tracked_ones(
    project: Project,
) -> None:
    inside = project.top / "inside"
    project.git("init", "-q", str(inside))
    project.write("inside/one")
    project.git("add", "one", at=inside)
    assert "3 files are tracked" in project.refused(SnapshotLimits(tracked_files=2, free=0))


def test_the_home_folder_and_all_above_it_are_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project.top / "folder"))
    assert "home folder" in project.refused()
    monkeypatch.setenv("HOME", str(project.top))
    assert "home folder" in project.refused()
    refused = take(project.stores, Checkout("/"), Surroundings.here())
    assert isinstance(refused, NotTaken)
    assert not os.path.exists(project.stores.folder)


def test_without_git_nothing_is_kept_and_it_says_so(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(project.folder))
    assert project.refused() == "git is not installed"
    assert not os.path.exists(project.stores.folder)


# -- hostile and odd ------------------------------------------------------------------------


HOOKS = ("post-checkout", "pre-commit", "post-index-change", "reference-transaction")


@pytest.fixture
def hostile(project: Project) -> tuple[Project, Path]:
    """A project that runs a program by every way that git has, and the proof that it ran."""
    proof = project.folder / "it-ran"
    script = project.write(".git/evil", f"#!/bin/sh\necho ran >>{proof}\ncat\n")
    script.chmod(0o755)
    evil = str(script)
    for hook in HOOKS:
        path = project.write(f".git/hooks/{hook}", f"#!/bin/sh\necho ran >>{proof}\n")
        path.chmod(0o755)
    project.write(".gitattributes", "* filter=evil diff=evil text eol=crlf\n")
    project.commit()
    for key, value in {
        "filter.evil.clean": evil,
        "filter.evil.smudge": evil,
        "filter.evil.process": evil,
        "filter.evil.required": "true",
        "core.fsmonitor": evil,
        "diff.external": evil,
        "diff.evil.textconv": evil,
        "diff.evil.command": evil,
        "core.hooksPath": str(project.top / ".git/hooks"),
        "core.sshCommand": evil,
        "core.pager": evil,
        "core.editor": evil,
        "core.alternateRefsCommand": evil,
        "uploadpack.packObjectsHook": evil,
        "credential.helper": evil,
        "gpg.program": evil,
        "post-checkout.command": evil,
        **{f'hook.it="{hook}".event': hook for hook in HOOKS},  # git 2.54
        **{f'hook.it="{hook}".command': evil for hook in HOOKS},
    }.items():
        project.git("config", key, value)
    return project, proof


def test_a_hostile_project_runs_nothing(hostile: tuple[Project, Path]) -> None:

    project, proof = hostile
    proof.unlink(missing_ok=True)
    project.write("a.txt", "one\n")
    first = project.take()
    project.write("a.txt", "two\r\n")
    project.write("new.txt", "new")
    tame = ("-c", "filter.evil.required=false")
    project.git(*tame, "add", "-N", "new.txt")
    blob = project.blob("staged only\n")
    project.git(*tame, "update-index", "--cacheinfo", f"100644,{blob},a.txt")
    proof.unlink(missing_ok=True)
    second = project.take()
    store = project.store(second)
    assert b"+two" in patch(store, first.tree, second.tree)
    laid = project.lay(second)
    assert laid.why_plain == ""
    assert (Path(laid.folder) / "a.txt").read_bytes() == b"two\r\n"
    assert not proof.exists()


def test_each_hook_in_the_configuration_of_a_hostile_project_is_off(
    hostile: tuple[Project, Path],
) -> None:
    """Also by its name: git 2.54 knows no other way."""
    project, _ = hostile
    with ProgramGroup(time.monotonic() + 30) as group:
        git = Git.within(group, str(project.top), str(project.folder))
        for hook in HOOKS:
            assert git.run("config", f'hook.it="{hook}".enabled') == b"false\n"
        for event in ("post-checkout", "post-index-change", "reference-transaction"):
            assert git.run("config", f"hook.{event}.enabled") == b"false\n"


def test_configuration_that_hangs_git_hangs_nothing_here(project: Project) -> None:
    fifo = project.folder / "fifo"
    os.mkfifo(fifo)
    project.git("config", "core.excludesFile", str(fifo))
    assert project.names(project.take()) == {"a.txt", "folder/b.txt"}
    project.git("config", "include.path", str(fifo))
    assert project.names(project.take()) == {"a.txt", "folder/b.txt"}


@pytest.mark.parametrize("text", ["..\0", "a/" * (1 << 20)], ids=["no path", "a long one"])
def test_a_hostile_path_in_a_git_folder_is_neither_followed_nor_an_error(
    project: Project, text: str
) -> None:
    (project.top / ".git" / "commondir").write_text(text)
    found = checkout_of(str(project.top))
    assert found is None or found.common == found.git_folder


def test_a_long_configuration_without_content_is_read_at_once(project: Project) -> None:
    with open(project.top / ".git" / "config", "a") as file:
        file.write("\n" * (4 << 20))
    found = checkout_of(str(project.top))
    assert found is not None
    assert object_format(found) == "sha1"


@pytest.mark.parametrize("name", [".gitignore", "folder/.gitattributes"])
def test_a_pipe_that_hangs_git_is_refused_at_the_deadline_and_no_process_is_left(
    project: Project, name: str
) -> None:
    os.mkfifo(project.top / name)
    began = time.monotonic()
    taken = project.attempt(seconds=1.0)
    assert time.monotonic() - began < 5
    if name == ".gitignore":
        assert isinstance(taken, NotTaken)
        assert "too long" in taken.reason
    (project.top / name).unlink()
    project.write("top")  # otherwise it is left alone for a day
    assert project.names(project.take()) == {"a.txt", "folder/b.txt", "top"}
    ps = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(project.top) not in ps


def test_bytes_come_back_as_they_were_whatever_the_attributes_say(project: Project) -> None:
    project.write(
        ".gitattributes",
        "*.crlf text eol=lf\n*.u16 working-tree-encoding=UTF-16\n*.big filter=lfs -text\n"
        "*.c ident\n*.secret filter=git-crypt diff=git-crypt\n",
    )
    contents = {
        "x.crlf": b"one\r\ntwo\r\n",
        "x.u16": "zwei".encode("utf-16"),
        "x.big": bytes(range(256)) * 10,
        "x.c": b"$Id$\n",
        "x.secret": b"plain\r",
    }
    for name, content in contents.items():
        project.write(name, content)
    taken = project.take()
    laid = Path(project.lay(taken).folder)
    assert {name: (laid / name).read_bytes() for name in contents} == contents


def test_a_repository_inside_is_kept_with_its_files_and_not_with_its_git_folder(
    project: Project,
) -> None:
    (nested := project.top / "nested").mkdir()
    project.git("init", "-q", at=nested)
    project.write("nested/one.txt", "one")
    project.write("nested/.gitignore", "*.o\n")
    project.write("nested/x.o", MARKER)
    project.git("add", "-A", at=nested)
    project.git("commit", "-qm", "x", at=nested)
    (nested / ".git/info/exclude").write_text("private\n")
    project.write("nested/private", MARKER)
    before = digest(nested / ".git")
    own = {"a.txt", "folder/b.txt", "nested/one.txt", "nested/.gitignore"}
    assert project.names(project.take()) == own
    project.write("nested/deeper/two.txt")
    project.write("nested/one.txt", "changed")
    project.write("nested/again/private", MARKER)
    taken = project.take()
    assert project.names(taken) == own | {"nested/deeper/two.txt"}
    assert files(Path(project.lay(taken).folder))[b"nested/one.txt"] == ("file", b"changed")
    (nested / "one.txt").unlink()
    taken = project.take()
    assert project.names(taken) == (own | {"nested/deeper/two.txt"}) - {"nested/one.txt"}
    assert not project.holds(taken, MARKER)
    assert digest(nested / ".git") == before


def test_a_repository_inside_without_a_commit_is_kept_too(project: Project) -> None:
    (fresh := project.top / "fresh").mkdir()
    project.git("init", "-q", at=fresh)
    project.take()
    project.write("fresh/one.txt")
    assert "fresh/one.txt" in project.names(project.take())
    (deeper := project.top / "fresh" / "deeper").mkdir()
    project.git("init", "-q", at=deeper)
    project.write("fresh/deeper/two.txt")
    assert "fresh/deeper/two.txt" in project.names(project.take())


def test_the_files_of_a_submodule_are_in(project: Project) -> None:
    (other := project.folder / "other").mkdir()
    project.git("init", "-q", at=other)
    (other / "inner.txt").write_text("inner")
    project.git("add", "-A", at=other)
    project.git("commit", "-qm", "x", at=other)
    project.git("submodule", "--quiet", "add", str(other), "sub")
    project.commit()
    project.write("sub/inner.txt", "changed")
    project.write("sub/new.txt")
    taken = project.take()
    assert {"sub/inner.txt", "sub/new.txt", ".gitmodules"} <= project.names(taken)
    assert files(Path(project.lay(taken, plain=True).folder)) == files(project.top)


def test_links_stay_links_and_bring_in_nothing_from_outside(project: Project) -> None:
    (outside := project.folder / "outside").mkdir()
    (outside / "secret.txt").write_bytes(MARKER)
    (project.top / "to-folder").symlink_to(outside)
    (project.top / "to-file").symlink_to(outside / "secret.txt")
    (project.top / "dangling").symlink_to("nowhere")
    taken = project.take()
    assert not project.holds(taken, MARKER)
    assert files(Path(project.lay(taken).folder)) == files(project.top)


def test_a_folder_that_becomes_a_link_brings_in_nothing(project: Project) -> None:
    (outside := project.folder / "outside").mkdir()
    (outside / "b.txt").write_bytes(MARKER)
    project.take()
    shutil.rmtree(project.top / "folder")
    (project.top / "folder").symlink_to(outside)
    taken = project.take()
    assert project.names(taken) == {"a.txt", "folder"}
    assert not project.holds(taken, MARKER)
    (project.top / "folder").unlink()
    project.write("folder/b.txt", "back")
    assert project.names(project.take()) == {"a.txt", "folder/b.txt"}


def test_files_and_folders_change_places(project: Project) -> None:
    project.take()
    (project.top / "a.txt").unlink()
    project.write("a.txt/inner")
    shutil.rmtree(project.top / "folder")
    project.write("folder", "a file now")
    taken = project.take()
    assert project.names(taken) == {"a.txt/inner", "folder"}
    assert files(Path(project.lay(taken).folder)) == files(project.top)


def test_odd_names_and_programs_survive(project: Project) -> None:
    for name in (b"new\nline", b"\xff\xfe", b"-x", b":(top)x", b" ", b"\xc3\xa9", b"e\xcc\x81"):
        project.write(os.fsdecode(name), name)
    project.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    taken = project.take()
    assert files(Path(project.lay(taken).folder)) == files(project.top)
    (project.top / "run.sh").chmod(0o644)
    assert project.take().tree != taken.tree


def test_pipes_sockets_and_empty_folders_are_left_out(project: Project) -> None:
    os.mkfifo(project.top / "pipe")
    (project.top / "empty").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(project.top / "socket"))
        (project.top / "a.txt").unlink()
        os.mkfifo(project.top / "a.txt")
        taken = project.take()
    assert project.names(taken) == {"folder/b.txt"}
    assert "a.txt" in {one.path for one in taken.left_out}


def test_a_file_that_cannot_be_read_is_left_out_and_named(project: Project) -> None:
    # Root reads everything, unless it gives that right up.
    rights = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    as_others = rights if os.getuid() == 0 else []
    project.take()
    project.write("mine").chmod(0)
    (project.top / "folder").chmod(0)
    taken = taken_by(taking(project, *as_others))
    (project.top / "folder").chmod(0o700)
    assert project.names(taken) == {"a.txt"}
    reason = "cannot be read"
    assert [(it.path, it.why) for it in taken.left_out] == [
        ("folder/b.txt", reason),
        ("mine", reason),
    ]


def test_a_link_is_found_above_any_number_of_folders(project: Project) -> None:
    (project.top / "link").symlink_to("folder")
    sieve = Sieve(str(project.top), SnapshotLimits(), ())
    assert sieve.is_behind_link("link/" + "d/" * 1500 + "f")
    assert not sieve.is_behind_link("folder/" + "d/" * 1500 + "f")


def test_a_name_that_git_has_for_itself_is_left_out_and_named(project: Project) -> None:
    refused = {".GIT", ".git .", "git~1", "b\\.Git", "x/GIT~1/y", ".git:stream"}
    fine = {".gitx", "git~10", "a.git", ".git\n", "x\\git", ".g\u0131t", ".g\u0130t"}
    for name in refused | fine:
        project.write(name)
    for _ in range(2):
        taken = project.take()
        assert {it.path for it in taken.left_out} == refused
        assert project.names(taken) == {"a.txt", "folder/b.txt"} | fine
    assert taken.added == 0


def test_a_failed_call_of_git_gives_no_tree(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = project.take()
    real = shutil.which("git")
    (fake := project.folder / "bin").mkdir()
    for failing in ("ls-files", "update-index", "write-tree"):
        (fake / "git").write_text(
            f'#!/bin/sh\ncase " $* " in *" {failing} "*) echo fatal: broken >&2; exit 128;; esac\n'
            f'exec {real} "$@"\n'
        )
        (fake / "git").chmod(0o755)
        project.write("a.txt", failing)
        with monkeypatch.context() as patched:
            patched.setenv("PATH", f"{fake}:{os.environ['PATH']}")
            assert project.refused() == "fatal: broken"
    taken = project.take()
    assert taken.tree != good.tree
    assert files(Path(project.lay(taken).folder)) == files(project.top)


def test_a_folder_without_a_repository_is_kept_by_itself(folder: Project) -> None:
    assert checkout_of(str(folder.top)) is None
    folder.write("one.txt")
    folder.write(".gitignore", "*.log\n")
    folder.write("x.log")
    taken = take(
        folder.stores, Checkout(str(folder.top)), Surroundings.here(), limits=SnapshotLimits(free=0)
    )
    assert not isinstance(taken, NotTaken)
    assert folder.names(taken) == {"one.txt", ".gitignore"}


@pytest.mark.parametrize(
    "words", [(), ("--object-format=sha256",), ("--separate-git-dir=../elsewhere.git",)]
)
def test_other_kinds_of_repositories_are_kept(folder: Project, words: tuple[str, ...]) -> None:
    folder.git("init", "-q", "-b", "main", *words)
    folder.write("one.txt")
    taken = folder.take()
    assert (taken.head.commit, taken.head.branch) == (None, "main")
    commit = folder.commit()
    folder.git("pack-refs", "--all")
    folder.write("two.txt")
    taken = folder.take()
    assert (taken.head.commit, taken.head.branch) == (commit, "main")
    assert folder.names(taken) == {"one.txt", "two.txt"}
    folder.git("checkout", "-q", "--detach")
    assert folder.take().head.branch == ""


def test_work_trees_of_one_repository_share_a_store(project: Project) -> None:
    other = project.folder / "other"
    project.git("worktree", "add", "-q", str(other))
    taken = project.take()
    checkout = checkout_of(str(other / "folder"))
    assert checkout is not None
    assert checkout.top == str(other)
    beside = take(project.stores, checkout, Surroundings.here(), limits=SnapshotLimits(free=0))
    assert not isinstance(beside, NotTaken)
    assert (beside.store, beside.tree) == (taken.store, taken.tree)
    assert beside.head.branch == "other"


@pytest.mark.parametrize("kind", ["split", "sha256"])
def test_a_tracked_file_that_is_ignored_is_in_whatever_kind_of_index_has_it(
    folder: Project, kind: str
) -> None:
    folder.git("init", "-q", *(["--object-format=sha256"] if kind == "sha256" else []))
    folder.write(".gitignore", "*.log\n")
    folder.write("tracked.log")
    folder.write("other.log")
    folder.git("add", "-f", "tracked.log")
    if kind == "split":
        folder.git("update-index", "--split-index")
    assert folder.names(folder.take()) == {".gitignore", "tracked.log"}


def test_our_own_files_in_a_project_are_not_in_its_snapshots(tmp_path: Path) -> None:
    made = Project(tmp_path)
    made.git("init", "-q")
    made.write("a.txt")
    made.stores.folder = str(made.top / "journal.db-files")
    made.write("journal.db")
    checkout = checkout_of(str(made.top))
    assert checkout is not None
    for _ in range(2):
        taken = take(
            made.stores,
            checkout,
            Surroundings.here(),
            limits=SnapshotLimits(free=0),
            spared=[str(made.top / "journal.db")],
        )
        assert not isinstance(taken, NotTaken)
        assert made.names(taken) == {"a.txt"}


# -- killed, and at once ----------------------------------------------------------------------


def test_eight_processes_at_once_in_one_folder_get_the_same_snapshot(project: Project) -> None:
    for number in range(300):
        project.write(f"many/{number}", f"{number}\n")
    running = [taking(project) for _ in range(8)]
    assert {taken_by(one).tree for one in running} == {project.take().tree}
    assert len(list(project.stores)) == 1


@pytest.mark.parametrize("round", range(6))
def test_killed_anywhere_the_next_one_works_without_help(project: Project, round: int) -> None:
    for number in range(400):
        project.write(f"many/{number}", f"{number}\n" * 50)
    if round % 2:
        project.take()
        for number in range(0, 400, 2):
            project.write(f"many/{number}", f"{number} changed\n")
    killed = taking(project)
    until = time.monotonic() + 0.12 + round * 0.04  # python has to start first
    while killed.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    killed.kill()
    killed.communicate(timeout=30)
    taken = project.take()
    assert files(Path(project.lay(taken).folder)) == files(project.top)
    store = project.store(taken)
    store.keep([taken.tree], time.monotonic() + 60)
    assert "error" not in project.git("-C", store.path, "fsck", "--full", "--strict")
    assert not [one for one in os.listdir(f"{store.path}/objects/pack") if "tmp" in one]


def test_a_git_that_does_not_know_of_lazy_fetches_fetches_nothing_either(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = project.take()
    mark = project.folder / "fetched"
    for name, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "far",
        "remote.far.promisor": "true",
        "remote.far.url": f"ext::touch {mark}",
        "protocol.ext.allow": "always",
    }.items():
        project.git("config", name, value)
    missing = project.git("rev-parse", "HEAD:folder").strip()
    (project.top / ".git/objects" / missing[:2] / missing[2:]).unlink()
    (old := project.folder / "bin").mkdir()
    (old / "git").write_text(
        f'#!/bin/sh\nunset GIT_NO_LAZY_FETCH\nexec {shutil.which("git")} "$@"\n'
    )
    (old / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{old}:{os.environ['PATH']}")
    assert taken.head.commit is not None
    assert not has_base(project.store(taken), str(project.top), taken.head.commit)
    assert "folder/b.txt" in project.names(project.take())
    assert not mark.exists()
