"""Edits that rules answer: committed files of a folder that a person named, and new ones like
them."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from acphold.safety.errors import RuleError
from acphold.safety.standing.asked_actions import EditAction
from acphold.safety.standing.committed_files import places_for_edits
from acphold.safety.standing.decision import (
    Circumstances,
    RuleDecision,
    StandingRule,
    decide,
    meaning_now,
    read_rule,
)
from acphold.safety.standing.folders import no_edit
from tests.standing.git_calls import commit, git


def rule(text: str, folder: Path, number: int = 1) -> StandingRule:
    return replace(read_rule(text), folder=str(folder), number=number, places=("here",))


def judged(folder: Path, path: str, *texts: str) -> RuleDecision:
    """The decision of these rules about an edit of a file."""
    rules = [rule(text, folder, number) for number, text in enumerate(texts, start=1)]
    at = Circumstances("claude", str(folder), "s", "", 1, place="here")
    return decide(EditAction((path,)), rules, at)


# -- a corpus ---------------------------------------------------------------------------------

EDITS = [
    json.loads(line)
    for line in (Path(__file__).parent / "edits.jsonl").read_text().split("\n")
    if line
]
RULES = ("edit src", "edit docs", "edit tests", "edit main.go")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the committed files of the corpus, and the folders of all."""
    folder = tmp_path_factory.mktemp("home").resolve() / "shop"
    for edit in EDITS:
        (folder / edit["path"]).parent.mkdir(parents=True, exist_ok=True)
        if edit["is"] == "committed":
            (folder / edit["path"]).write_text("x\n")
    commit(folder)
    return folder


def test_every_edit_of_the_corpus_has_its_verdict(shop: Path) -> None:
    wrong = []
    for edit in EDITS:
        verdict = judged(shop, edit["path"], *RULES)
        if verdict.allows != (edit["verdict"] == "allow"):
            wrong.append((edit, verdict.why))
    assert not wrong


def test_of_the_names_that_programs_and_agents_load_by_themselves_two_in_a_hundred_pass(
    shop: Path,
) -> None:
    names = [edit["path"] for edit in EDITS if edit["is"] in ("loaded", "read")]
    assert len(names) > 150
    passed = [name for name in names if judged(shop, name, *RULES).allows]
    assert len(passed) <= len(names) * 0.02, passed


def test_of_the_edits_of_sources_and_documents_few_ask(shop: Path) -> None:
    counts = Counter(
        judged(shop, edit["path"], *RULES).allows
        for edit in EDITS
        if edit["is"] in ("committed", "new")
    )
    assert counts[False] <= counts[True] * 0.3 / 0.7


# -- committed, and new -----------------------------------------------------------------------


def test_a_new_file_has_an_ending_that_is_committed_in_the_folder_of_the_rule(
    project: Path,
) -> None:
    assert judged(project, "src/b.py", "edit src").allows
    verdict = judged(project, "src/b.ts", "edit src")
    why = "src/b.ts is not committed, and no file with its ending is, in the folder of the rule"
    assert (verdict.allows, verdict.why) == (False, why)
    assert not judged(project, "docs/b.py", "edit docs", "edit src").allows


def test_an_ending_that_only_a_file_has_that_programs_load_is_not_committed(project: Path) -> None:
    (project / "docs/conf.py").write_text("x\n")
    commit(project)
    assert not judged(project, "docs/plugin.py", "edit docs").allows
    (project / "docs/sample.py").write_text("x\n")
    commit(project)
    assert judged(project, "docs/plugin.py", "edit docs").allows


def test_what_is_only_staged_is_not_committed(project: Path) -> None:
    (project / "src/b.ts").write_text("x\n")
    git(project, "add", "src/b.ts")
    assert not judged(project, "src/b.ts", "edit src").allows


def test_a_committed_program_or_link_is_no_source(project: Path) -> None:
    (project / "docs/run.txt").write_text("x\n")
    (project / "docs/run.txt").chmod(0o755)
    (project / "docs/link.csv").symlink_to("a.md")
    commit(project)
    for name in ("docs/run.txt", "docs/link.csv"):
        (project / name).unlink()
        (project / name).write_text("x\n")
        assert not judged(project, name, "edit docs").allows


def test_a_file_beside_all_folders_is_allowed_by_its_name(project: Path) -> None:
    assert judged(project, "names.txt", "edit names.txt").allows
    assert not judged(project, "args.txt", "edit args.txt").allows
    (project / "names.txt").unlink()
    assert judged(project, "names.txt", "edit names.txt").allows


def test_a_session_below_the_top_of_its_repository_has_the_files_of_its_folder(
    project: Path,
) -> None:
    (project / "src/web").mkdir()
    (project / "src/web/a.ts").write_text("x\n")
    commit(project)
    assert judged(project / "src", "web/a.ts", "edit web").allows
    assert not judged(project / "src", "web/a.py", "edit web").allows
    assert places_for_edits(str(project / "src")) == ["web"]


def test_without_a_repository_or_a_commit_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("x\n")
    why = judged(tmp_path.resolve(), "src/a.py", "edit src").why
    assert why == "there is no git repository that shows which files are sources"
    git(tmp_path, "init", "-q")
    assert "no commit" in judged(tmp_path.resolve(), "src/a.py", "edit src").why


def test_without_git_it_is_asked(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    why = judged(project, "src/a.py", "edit src").why
    assert why == "the files of the last commit cannot be listed: git is not installed"


def test_in_a_submodule_it_is_asked(project: Path, committed: Path) -> None:
    git(project, "submodule", "add", "-q", str(committed), "src/inner")
    git(project, "commit", "-q", "-m", "inner")
    assert judged(project, "src/a.py", "edit src").allows
    for path in ("src/inner/src/a.py", "src/inner/b.py"):
        assert not judged(project, path, "edit src", "edit src/inner").allows
    shutil.rmtree(project / "src/inner")
    (project / "src/inner").mkdir()
    assert judged(project, "src/inner/b.py", "edit src").why == "src/inner/b.py is in a submodule"


@pytest.mark.parametrize("kind", ["folder", "file", "bare"])
def test_below_another_repository_it_is_asked(kind: str, project: Path, committed: Path) -> None:
    """Whoever may write files there says what is committed."""
    (inner := project / "src/inner").mkdir()
    if kind == "folder":
        shutil.copytree(committed / ".git", inner / ".git")
    elif kind == "file":
        (inner / ".git").write_text(f"gitdir: {committed}/.git\n")
    else:
        git(inner, "init", "-q", "--bare")
    assert not judged(project, "src/inner/a.py", "edit src", "edit src/inner").allows


def test_a_repository_that_lies_among_the_files_says_nothing_about_them(project: Path) -> None:
    (project / ".git").rename(project / "src/repository")
    (project / ".git").write_text("gitdir: src/repository\n")
    assert not judged(project, "src/a.py", "edit src").allows


def test_a_linked_work_tree_has_its_own_commit(project: Path) -> None:
    linked = project.parent / "linked"
    git(project, "worktree", "add", "-q", "-b", "other", str(linked))
    (linked / "src/b.ts").write_text("x\n")
    git(linked, "add", "-A")
    git(linked, "commit", "-q", "-m", "more")
    assert judged(linked, "src/b.ts", "edit src").allows
    assert not judged(project, "src/b.ts", "edit src").allows


def test_the_next_commit_counts_at_once(project: Path) -> None:
    (project / "src/b.ts").write_text("x\n")
    assert not judged(project, "src/b.ts", "edit src").allows
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "more")
    assert judged(project, "src/b.ts", "edit src").allows
    git(project, "gc", "-q")
    assert judged(project, "src/c.ts", "edit src").allows


def test_settings_and_variables_of_git_run_nothing_and_change_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trap, sprung = tmp_path / "trap", tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o755)
    for name in (
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "alias.ls-tree",
        "diff.external",
    ):
        git(project, "config", name, str(trap))
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap))
    assert judged(project, "src/a.py", "edit src").allows
    assert not sprung.exists()


# -- all of a project -------------------------------------------------------------------------


def test_a_rule_for_all_of_a_project_is_refused_with_the_folders_that_would_fit(
    project: Path,
) -> None:
    for text in ("edit .", "edit ./", "edit ./.", "allow edit ."):
        with pytest.raises(RuleError, match=r"names a folder below the project, or a file$"):
            read_rule(text)
    (project / "src/b.py").write_text("x\n")
    commit(project)
    better = "such as `edit src` or `edit docs` or `edit tests`$"
    with pytest.raises(RuleError, match=better):
        read_rule("edit .", str(project))
    assert read_rule("ask edit .", str(project)).verdict == "ask"


def test_where_all_sources_lie_beside_each_other_files_would_fit(tmp_path: Path) -> None:
    for name in ("main.go", "a.go", "go.mod"):
        (tmp_path / name).write_text("x\n")
    commit(tmp_path)
    with pytest.raises(RuleError, match=r"`edit a.go` or `edit main.go`$"):
        read_rule("edit .", str(tmp_path))


def test_a_stored_rule_for_all_of_a_project_no_longer_counts_and_names_its_replacement(
    project: Path,
) -> None:
    stored = replace(rule("edit src", project), argv=(".",))
    at = Circumstances("claude", str(project), "s", "", 1, place="here")
    decided = decide(EditAction(("src/a.py",)), [stored], at)
    assert not decided.allows
    assert decided.why.startswith("your rule 1 no longer counts: ")
    assert "`edit src`" in decided.why
    assert meaning_now(stored).endswith("such as `edit docs` or `edit src` or `edit tests`")
    assert decide(EditAction(("src/a.py",)), [stored, rule("edit src", project, 2)], at).allows


def test_a_rule_for_edits_says_that_such_a_file_may_run() -> None:
    assert "may run at the next command of any tool" in read_rule("edit src").meaning


# -- names and places -------------------------------------------------------------------------


IN_THE_FOLDER = ("docs/a.md", "docs/new.md", "src/a.py", "docs/a.md/", "docs//a.md")
OUTSIDE_OR_RUN = (
    *(".git/hooks/pre-commit", ".git/config", ".github/workflows/x.yml", ".envrc"),
    *(".claude/settings.json", "src/.codex/config.toml", "AGENTS.md", "src/Claude.MD"),
    *("Makefile", "conftest.py", "package.json", "vite.config.ts", "Jenkinsfile", "src/run.sh"),
    *("out/secret", "../outside/secret", "/etc/passwd", "~/x", "docs/nowhere/new.md"),
    *("docs/link.md", "docs/hard.md", "docs/program", "docs", "docs/a\u202e.md", "deep/config"),
    *("opencode.json", "src/OpenCode.jsonc", "crush.json", "mcp.json", "AGENT.md"),
    *("src/api.instructions.md", "a.code-workspace", "lefthook.yml", "pytest.toml", "pylintrc"),
    *("mise.toml", "bunfig.toml", "karma.conf.js", "binding.gyp"),
    *("docs/gradle-wrapper.properties", "Directory.Build.rsp", "src/dune", "src/x.rake"),
    *("Makefile.local", "src/x.nix", "docs/x.KSH", "makefile.", "docs/.hidden"),
    *("docs/./../.git/config", "nest/HEAD/x", "", ".", "docs/a\n.md"),
)


def test_an_edit_stays_in_the_folder_and_away_from_what_others_run(project: Path) -> None:
    (project / "docs/link.md").symlink_to("../.git/config")
    os.link(project / "names.txt", project / "docs/hard.md")
    (project / "docs/program").write_text("#!/bin/sh\n")
    (project / "docs/program").chmod(0o755)
    (project / "deep").symlink_to(".git")
    commit(project)
    made = [rule("edit docs", project), rule("edit src", project, 2)]
    at = Circumstances("claude", str(project), "s", "", 1, place="here")
    for path in (*IN_THE_FOLDER, *OUTSIDE_OR_RUN):
        full = path if path.startswith(("/", "~")) else f"{project}/{path}"
        named = [replace(rule("edit deep", project, 3), argv=(it,)) for it in (path or ".", "deep")]
        for given in (path, full):
            decided = decide(EditAction((given,)), [*made, *named], at)
            assert decided.allows is (path in IN_THE_FOLDER), given


RUN_OR_OBEYED = """
    CODEX.md docs/CODEX.md AGENTS-web.md claude-code.md system_prompt.txt llms.txt src/memory.md
    copilot-review.md tools.md mcp_config.json docs/mcp-servers.json cline_mcp_settings.json
    docs/conf.py conf.py build.py build.ts build.mjs src/build.zig build.ninja setup.ts make.py
    jest.setup.ts vitest.setup.mts setupTests.js jest.preset.js webpack.prod.js webpack.dev.ts
    vite.base.ts rollup.node.mjs gatsby-node.js next.config.mjs metro.config.cts knexfile.ts
    wdio.conf.ts stylelintrc.js Jakefile.js ember-cli-build.js postinstall.js scripts/install.js
    dangerfile.ts commitlint.ts constraints.txt requirements/dev.txt requirements-dev.in
    runtests.jl Package@swift-5.9.swift Project.swift extconf.rb package.py gunicorn_conf.py
    compose.override.yml compose.prod.yaml netlify.toml vercel.json prod.Dockerfile web.dockerfile
    debian/rules debian/x.py app.csproj.user x.sln.DotSettings.user fly.toml wrangler.toml
    render.yaml app.yaml app.json skaffold.yaml helmfile.yaml values.yaml main.tf x.tfvars
    playbook.yml ansible.cfg supervisord.conf nginx.conf crontab deploy.rb deploy.php rector.php
    robofile.php buildozer.spec x.spec snapcraft.yaml APKBUILD PKGBUILD portfile.x Makefile.am
    configure.ac wscript_build SConscript.x BUCK.v2 WORKSPACE.bzlmod x.pri x.pro x.gn x.ninja
    x.vcproj x.wixproj x.iss x.nsi gradle.lockfile x.gradle.kts settings.kts build.mill x.ipynb
    manifest.json launch.json tasks.json settings.json x.json x.yml x.yaml x.toml x.ini x.cfg
    x.properties x.xml x.env x.plist x.reg x.lock x.so x.dll x.pyc x.class x.jar x.wasm x.exe
    README x Kconfig Doxyfile x.am x.in x.tmpl a.py.bak a.py~ config.exs.x lefthook-local.yml
    Rakefile.rb SConstruct.py gems.rb pdm_build.py pavement.py dev-requirements.txt
    test-requirements.txt upper-constraints.txt plopfile.js truffle-config.js brunch-config.js
    brocfile.js versioneer.py ez_setup.py duties.py mkdocs_hooks.py wallaby.js pnpmfile.cjs
    Shakefile.hs fastlane/Fastfile.swift Envoy.blade.php celeryconfig.py user.md rules.md
    bootstrap.sh x.applescript x.vbs x.awk x.sed x.tcl x.el x.vim x.make phpstan.neon x.star
"""


def test_no_commit_makes_a_file_editable_that_is_run_or_obeyed_without_a_test(
    project: Path,
) -> None:
    for name in RUN_OR_OBEYED.split():
        for path in (f"src/{name}", f"src/{name.upper()}"):
            (project / path).parent.mkdir(parents=True, exist_ok=True)  # or it is asked for that
            assert no_edit(path, str(project), str(project / "src")), path


def test_an_edit_through_a_link_touches_only_what_has_the_ending_itself(project: Path) -> None:
    (project / "docs/b.md").symlink_to("settings.json")
    (project / "docs/settings.json").write_text("{}")
    commit(project)
    assert not judged(project, "docs/b.md", "edit docs").allows


ORDINARY = (
    "a.py A.PY a.pyi a.ts a.tsx a.vue a.c a.hpp a.go a.rs a.java a.kt a.rb a.php a.sql a.css "
    "README.md CHANGELOG.md a.rst a.adoc a.txt a.csv a.html a.proto a.js main.swift lib.rs"
)


def test_sources_and_documents_may_be_edited(project: Path) -> None:
    for name in ORDINARY.split():
        assert no_edit(f"src/{name}", str(project), str(project / "src")) == "", name


@pytest.mark.parametrize("name", [".claude", ".config/opencode", ".github/workflows", ".ssh"])
def test_a_session_in_a_folder_of_settings_has_no_edits_by_rules(name: str, project: Path) -> None:
    folder = project / name
    (folder / "src").mkdir(parents=True)
    (folder / "src/a.md").write_text("x\n")
    commit(project)
    assert judged(folder, "src/a.md", "edit src").why == "the session's folder is one for settings"


def test_a_worktree_in_a_hidden_folder_is_as_any_other(project: Path) -> None:
    folder = project / ".worktrees/one"
    git(project, "worktree", "add", "-q", str(folder))
    assert judged(folder, "docs/a.md", "edit docs").allows
    assert not judged(folder, ".git", "edit docs").allows


def test_a_rule_for_edits_below_a_folder_does_not_reach_its_sibling(project: Path) -> None:
    (project / "docs2").mkdir()
    (project / "docs2/a.md").write_text("x\n")
    commit(project)
    assert judged(project, "docs/a.md", "edit docs").allows
    assert not judged(project, "docs2/a.md", "edit docs").allows
    assert not judged(project, ".git/x", "edit .git").allows
    assert not judged(project, "out/secret", "edit out").allows
    at = Circumstances("claude", str(project), "s", "", 1, place="here")
    both = EditAction(("docs/a.md", "src/a.py"))
    assert not decide(both, [rule("edit docs", project)], at).allows
    made = [rule("edit docs", project), rule("edit src", project, 2)]
    assert decide(both, made, at).why == "allowed by your rules 1 and 2"


def test_a_rule_for_edits_follows_no_link_that_its_folder_has_become(project: Path) -> None:
    docs = project / "docs"
    assert judged(project, str(docs / "a.md"), "edit docs").allows
    shutil.rmtree(docs)
    docs.symlink_to("src")
    decided = judged(project, str(project / "src/a.py"), "edit docs")
    assert (decided.allows, decided.why) == (False, "docs is a link, or below one")


def test_a_rule_that_asks_stands_above_each_that_allows(project: Path) -> None:
    assert not judged(project, "docs/a.md", "edit docs", "ask edit docs").allows
    for path in ("docs/a.md", "DOCS/a.md"):  # the same folder on some disks
        assert judged(project, path, "ask edit docs", "edit docs").why == "your rule 1 says to ask"
    assert judged(project, "docs/a.md", "ask edit .", "edit docs").why == "your rule 1 says to ask"
    assert judged(project, "src/a.py", "ask edit docs", "edit src").allows


def test_a_rule_that_asks_about_a_folder_knows_it_in_either_form_of_its_letters(
    project: Path,
) -> None:
    verdict = judged(project, "Entwu\u0308rfe/a.md", "edit docs", "ask edit Entw\u00fcrfe")
    assert verdict.why == "your rule 2 says to ask"


def test_a_folder_in_quotes_is_the_folder_without_them(project: Path) -> None:
    (project / "my secrets").mkdir()
    (project / "my secrets/a.md").write_text("x\n")
    commit(project)
    assert judged(project, "my secrets/a.md", "edit 'my secrets'").allows
    for text in ('ask edit "my secrets"', "ask edit 'my secrets'", "ask edit my secrets"):
        verdict = judged(project, "my secrets/a.md", "edit 'my secrets'", text)
        assert verdict.why == "your rule 2 says to ask"
        assert read_rule(read_rule(text).text) == read_rule(text)
