"""git only reads where the repository names no program: real repositories, and git itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from acp_wire.surroundings import Surroundings
from acphold.safety.standing.asked_actions import RunAction
from acphold.safety.standing.decision import Circumstances, RuleDecision, decide, read_rule
from acphold.safety.standing.repositories import PersonalSettings, why_runs
from tests.standing.git_calls import git

WORKS = ("status", "log -p", "diff", "show", "blame a.txt", "grep -n one", "describe --always")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (folder := tmp_path.resolve() / "home" / "project").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "a.txt")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "a.txt").write_text("one\ntwo\n")
    git(folder, "commit", "-q", "-a", "-m", "second")
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    return folder


def judged(folder: Path, line: str, rule: str = "") -> RuleDecision:
    made = replace(
        read_rule(rule or f"run git {line.split()[1]} …"),
        folder=str(folder),
        number=1,
        places=("here",),
    )
    return decide(
        RunAction((line,)), [made], Circumstances("claude", str(folder), "s", "", 1, place="here")
    )


@pytest.mark.parametrize("work", WORKS)
def test_in_an_ordinary_repository_git_only_reads(work: str, repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://example.org/x.git")
    git(repository, "config", "branch.main.remote", "origin")
    git(repository, "config", "user.email", "a@x")
    assert judged(repository, f"git {work}").why == "allowed by your rule 1"


TRAPS = {
    "a file monitor": ("config", "core.fsmonitor", "{trap}"),
    "an external diff": ("config", "diff.external", "{trap}"),
    "a textconv": ("config", "diff.x.textconv", "{trap}", "* diff=x"),
    "a clean filter": ("config", "filter.x.clean", "{trap}", "* filter=x"),
    "a process filter": ("config", "filter.x.process", "{trap}", "* filter=x"),
    "a smudge filter": ("config", "filter.x.smudge", "{trap}", "* filter=x"),
    "a diff command": ("config", "diff.x.command", "{trap}", "* diff=x"),
    "a hook": ("file", ".git/hooks/post-index-change"),
    "a hook elsewhere": ("hooks", ".githooks/post-index-change", ".githooks"),
    "included settings": ("config", "include.path", "../more"),
    "settings on a condition": ("config", "includeIf.gitdir:/.path", "../more"),
    "a pager": ("config", "core.pager", "{trap}"),
    "a pager of one command": ("config", "pager.status", "{trap}"),
    "an alias": ("config", "alias.s", "!{trap}"),
    "a credential helper": ("config", "credential.helper", "{trap}"),
    "a program that signs": ("config", "gpg.program", "{trap}"),
    "ssh": ("config", "core.sshCommand", "{trap}"),
    "an editor": ("config", "core.editor", "{trap}"),
    "another work tree": ("config", "core.worktree", "/"),
    "a remote for missing objects": ("config", "remote.origin.promisor", "true"),
}


def set_trap(repository: Path, name: str) -> Path:
    """Have the repository name a program; return the file that it would write."""
    kind, place, *more = TRAPS[name]
    trap, sprung = repository.parent / "trap", repository.parent / "sprung"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\nexit 0\n")
    trap.chmod(0o755)
    if kind == "config":
        git(repository, "config", place, more[0].format(trap=trap))
        (repository / ".gitattributes").write_text("".join(f"{line}\n" for line in more[1:]))
    else:
        (repository / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(trap, repository / place)
        if more:
            git(repository, "config", "core.hooksPath", more[0])
    return sprung


@pytest.mark.parametrize("name", TRAPS)
def test_where_a_repository_names_a_program_git_is_asked_about(name: str, repository: Path) -> None:
    set_trap(repository, name)
    for work in WORKS:
        verdict = judged(repository, f"git {work}")
        assert not verdict.allows
        assert "repository" in verdict.why
    exact = judged(repository, "git status", "run git status")
    assert not exact.allows


@pytest.mark.parametrize(
    "name", ["a file monitor", "an external diff", "a textconv", "a clean filter", "a hook"]
)
def test_what_is_asked_about_would_have_run(name: str, repository: Path) -> None:
    sprung = set_trap(repository, name)
    os.utime(repository / "a.txt", (1, 1))
    for work in WORKS:
        git(repository, *work.split())
    assert sprung.exists()


@pytest.mark.parametrize("line", ["git -P status", "git --no-optional-locks status", "git add -A"])
def test_exact_rules_for_git_look_at_the_settings_whatever_stands_before_its_command(
    repository: Path, line: str
) -> None:
    assert judged(repository, line, f"run {line}").allows
    set_trap(repository, "a file monitor")
    assert "core.fsmonitor" in judged(repository, line, f"run {line}").why


@pytest.mark.parametrize("broken", ["HEAD", "refs", "objects"])
def test_what_git_takes_for_no_repository_hides_none_in_the_folder_itself(
    repository: Path, broken: str
) -> None:
    """git goes on then, with the folder as a repository that has no other folder for itself."""
    sprung = repository.parent / "sprung"
    for name in ("objects", "refs"):
        (repository / name).mkdir()
    core = f'worktree = .\nfsmonitor = "touch {sprung}; false"\nbare = false\n'
    (repository / "config").write_text(f"[core]\nrepositoryformatversion = 0\n{core}")
    if broken == "HEAD":
        (repository / ".git/HEAD").write_text("nothing of git\n")
    else:
        shutil.rmtree(repository / ".git" / broken)
    assert why_runs(str(repository))  # whatever comes later
    (repository / "HEAD").write_text("ref: refs/heads/main\n")
    assert why_runs(str(repository))
    git(repository, "status")
    assert sprung.exists()


def test_a_submodule_is_seen_whatever_bytes_stand_before_it(repository: Path) -> None:
    entry = b"\x00\x00\xe0\x00\x00\xe0\x00"  # the numbers of a file may look like a mode
    for before in range(8):
        index = b"DIRC\x00\x00\x00\x02" + bytes(before) + entry + bytes(60)
        (repository / ".git/index").write_bytes(index)
        found = [at for at in range(len(index)) if index[at : at + 4] == b"\x00\x00\xe0\x00"]
        is_seen = "submodules" in why_runs(str(repository))
        assert is_seen is any(at % 8 == 4 for at in found), before


def test_hooks_kept_elsewhere_that_git_does_not_run_here_are_no_reason(repository: Path) -> None:
    (repository / ".husky/_").mkdir(parents=True)
    (repository / ".husky/_/pre-commit").write_text("#!/bin/sh\n")
    git(repository, "config", "core.hooksPath", ".husky/_")
    assert judged(repository, "git status").allows


PROGRAMS_IN_SETTINGS = (
    "[core] fsmonitor = x\n",
    "[core]\rfsmonitor = x\n",
    "\ufeff[core]\nfsmonitor = x\n",
    "[CORE]\n\tFSMonitor = x\n",
    "[core]\n\tfsmonitor\n",
    "[core]\nbare = false ; x\\\n[core]\nfsmonitor = x\n",
    "[core]\nwhitespace = \\\n[advice]\nfsmonitor = x\n",
    "[core]\nwhitespace = cr-at-eol\\\r\n[advice]\r\nfsmonitor = x\n",
    "[diff.x]\ntextconv = x\n",
    '[diff "x"]textconv = x\n',
    '[filter "a b"]\n clean=x\n',
    "[core]\nhooksPath = ~/hooks\n",
    '[core]\nhooksPath = "a b"\n',
    '[includeIf "gitdir:~/"]\npath = x\n',
    "[core]\nfilemode = true\n\x0bfsmonitor = x\n",
    '[alias "status"]\ncommand = !x\n',
)


def test_settings_written_in_any_way_are_seen(repository: Path) -> None:
    before = (repository / ".git/config").read_bytes()
    for text in PROGRAMS_IN_SETTINGS:
        (repository / ".git/config").write_bytes(before + text.encode())
        assert why_runs(str(repository)), text


def test_a_value_that_goes_on_in_the_next_line_hides_no_program(repository: Path) -> None:
    sprung = repository.parent / "sprung"
    with (repository / ".git/config").open("a") as file:
        file.write(f"[core]\n\twhitespace = \\\n[advice]\n\tfsmonitor = touch {sprung}\n")
    assert not judged(repository, "git status").allows
    git(repository, "status")
    assert sprung.exists()  # to git, `[advice]` is the rest of a value, and no section


def test_the_settings_of_a_work_tree_and_of_a_subfolder_count_as_well(repository: Path) -> None:
    linked = repository.parent / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    (below := linked / "below").mkdir()
    assert not why_runs(str(linked))
    assert not why_runs(str(below))
    git(repository, "config", "extensions.worktreeConfig", "true")
    git(linked, "config", "--worktree", "core.fsmonitor", "x")
    assert not why_runs(str(repository))
    assert why_runs(str(linked))
    assert why_runs(str(below))


def test_a_repository_with_another_one_in_its_index_is_asked_about(repository: Path) -> None:
    (inner := repository / "inner").mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    assert not why_runs(str(repository))
    git(repository, "add", "inner")
    assert "submodules" in why_runs(str(repository))
    git(repository, "update-index", "--index-version", "4")
    assert "submodules" in why_runs(str(repository))
    git(repository, "update-index", "--split-index")
    assert why_runs(str(repository))


def test_a_size_that_looks_like_a_submodule_is_none(repository: Path) -> None:
    (repository / "b.bin").write_bytes(b"x" * 0xE000)
    git(repository, "add", "b.bin")
    assert not why_runs(str(repository))


def test_a_folder_that_is_a_repository_itself_is_asked_about(repository: Path) -> None:
    bare = repository.parent / "bare"
    git(repository, "clone", "-q", "--bare", ".", str(bare))
    (bare / "below").mkdir()
    assert why_runs(str(bare))
    assert why_runs(str(bare / "below"))


def test_outside_of_a_repository_there_is_nothing_that_git_could_run(tmp_path: Path) -> None:
    assert why_runs(str(tmp_path.resolve())) == ""


@pytest.mark.parametrize("place", [".git/config", ".git"])
def test_settings_that_cannot_be_read_are_asked_about(place: str, repository: Path) -> None:
    if place == ".git":
        (repository / ".git").rename(repository / "git")
        (repository / ".git").symlink_to("nowhere")
    else:
        (repository / place).unlink()
        os.mkfifo(repository / place)
    assert why_runs(str(repository))


# -- a person's own settings ------------------------------------------------------------------

HOOKS = "[core]\n\thooksPath = .hooks\n"
MONITOR = "[core]\n\tfsmonitor = .hooks/monitor\n"


def own(repository: Path, **env: str) -> PersonalSettings:
    """The settings of the person whose home the repository is in."""
    there = {"HOME": str(repository.parent), "GIT_CONFIG_SYSTEM": "/dev/null", **env}
    return PersonalSettings.of(Surroundings(there, str(repository)))


def set_hooks(repository: Path) -> Path:
    """Have the project bring programs of its own; return the file that they would write."""
    sprung = repository.parent / "sprung"
    (repository / ".hooks").mkdir()
    for name in ("post-index-change", "monitor"):
        (repository / ".hooks" / name).write_text(f"#!/bin/sh\ntouch {sprung}\nexit 1\n")
        (repository / ".hooks" / name).chmod(0o755)
    os.utime(repository / "a.txt", (1, 1))
    return sprung


@pytest.mark.parametrize("place", [".gitconfig", ".config/git/config"])
@pytest.mark.parametrize("text", [HOOKS, MONITOR], ids=["hooks", "monitor"])
@pytest.mark.parametrize("way", ["itself", "include", "includeIf", "twice"])
def test_what_a_persons_settings_name_from_the_folder_is_the_projects(
    place: str, text: str, way: str, repository: Path
) -> None:
    sprung, home = set_hooks(repository), repository.parent
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    condition = f'[includeIf "gitdir:{repository}/"]'
    last = {
        "itself": text,
        "include": "[include]\n\tpath = more\n",
        "includeIf": f'{condition}\n\tpath = "more"\n',
        "twice": "[include]\n\tpath = ~/first\n",
    }
    (home / place).write_text(f"[user]\n\tname = ada ; me\n{last[way]}")
    (home / place).with_name("more").write_text(text)
    (home / "first").write_text(f"[include]\n\tpath = {(home / place).with_name('more')}\n")
    assert why_runs(str(repository), own(repository))
    assert not why_runs(str(repository))
    git(repository, "status")
    assert sprung.exists()  # git would have run it


PERSONAL_SETTINGS = (
    ("[core]\n\thooksPath = ~/.hooks\n", False),
    ("[core]\n\thooksPath = /usr/share/hooks\n", False),
    ("[core]\n\thooksPath = .other\n", False),
    ("[core]\n\thooksPath = {folder}/.hooks\n", True),
    ("[core]\n\thooksPath = ./.hooks # mine\n", True),
    ("[core] hooksPath = .hooks\n", True),
    ("[core]\n\thooksPath = \\\n.hooks\n", True),
    ("[CORE]\n\tHOOKSPATH = .hooks\n", True),
    ("[core]\n\tfsmonitor = true\n", False),
    ("[core]\n\tfsmonitor\n", False),
    ("[core]\n\tfsmonitor = rs-git-fsmonitor\n", False),
    ("[core]\n\tfsmonitor = /usr/bin/monitor\n", False),
    ("[core]\n\tfsmonitor = {folder}/.hooks/monitor\n", True),
    ("[core]\n\tfsmonitor = sh .hooks/monitor\n", True),
    ("[core]\n\tpager = less -R\n", False),
    ("[core]\n\tpager = delta --features=a\n", False),
    ("[diff]\n\texternal = ./.hooks/monitor\n", True),
    ('[diff "x"]\n\ttextconv = .hooks/monitor\n', True),
    ('[filter "lfs"]\n\tclean = git-lfs clean -- %f\n', False),
    ('[filter "x"]\n\tclean = tools/clean\n', True),
    ('[alias]\n\tl = "!f() {{ git log origin/main; }}; f"\n', False),
    ("[include]\n\tpath = nowhere\n", False),
    ("[include]\n\tpath = .gitconfig\n", False),
)


def test_of_a_persons_settings_only_programs_of_the_project_are_asked_about(
    repository: Path,
) -> None:
    set_hooks(repository)
    for text, runs in PERSONAL_SETTINGS:
        (repository.parent / ".gitconfig").write_text(text.format(folder=repository))
        assert bool(why_runs(str(repository), own(repository))) is runs, text


def test_a_decision_reads_the_settings_of_the_person_whose_agent_asks(repository: Path) -> None:
    set_hooks(repository)
    (repository.parent / "mine").write_text(HOOKS)
    rule = replace(
        read_rule("run git status …"), folder=str(repository), number=1, places=("here",)
    )
    at = Circumstances("claude", str(repository), "s", "", 1, place="here")
    assert decide(RunAction(("git status",)), [rule], at).allows
    named = own(repository, GIT_CONFIG_GLOBAL=str(repository.parent / "mine"))
    verdict = decide(RunAction(("git status",)), [rule], replace(at, git_settings=named))
    assert verdict.why == "git may run the hook post-index-change of this repository"
