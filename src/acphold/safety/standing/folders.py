"""Paths that stay in a folder, and files that no standing answer may touch.

The only module of the room that looks at the disk. Between the look and the agent's use of a path
there is time.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

_PIECES: Final = re.compile(r"[=:,]+")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


GUARDED: Final = _words(
    # Instructions to agents.
    "agents.md agents.override.md claude.md claude.local.md gemini.md qwen*.md crush*.md iflow*.md "
    "codebuddy*.md qoder*.md "
    # Packages that tools read in place of a file of that name.
    "sitecustomize usercustomize fabfile magefiles vitest.workspace.* "
    "conventions.md skill.md agent.md warp.md opencode.md copilot-instructions.md "
    "*.instructions.md *.prompt.md *.agent.md *.chatmode.md *.mode.md *.rules.md codex*.md "
    "claude*.md gemini*.md copilot*.md cursor*.md windsurf*.md cline*.md roo*.md aider*.md "
    "jules*.md junie*.md kiro*.md amp.md goose*.md replit.md augment*.md opencode*.md devin*.md "
    "droid*.md kilo*.md zed*.md agents*.md agent*.md instructions*.md custom_instructions*.md "
    "custom-instructions*.md system_prompt* system-prompt* system.md prompt.md memory.md "
    "memory-bank soul.md bootstrap.md heartbeat.md tools.md guidelines.md project_rules.md "
    "user_rules.md rules.md user.md identity.md llms*.txt "
    # Their settings, and those of editors.
    "opencode.json* crush.json mcp*.json gemini-extension.json *.code-workspace *.sublime-project "
    "*.sublime-build *.user init.lua ipython_config.py jupyter_*config.py "
    # Settings of acphold, which name programs.
    "settings.toml "
    # Hooks, and what CI runs.
    "hooks githooks git-hooks jenkinsfile* azure-pipelines*.yml appveyor.yml cloudbuild*.yaml "
    "buildspec*.yml bitbucket-pipelines.yml codemagic.y*ml bitrise.yml wercker.yml circle.yml ci "
    ".ci workflows netlify.toml vercel.json dangerfile.* commitlint* lefthook*.y*ml lefthook*.toml "
    "lefthook*.json captainhook.json grumphp.yml* "
    # What builds, tests and installs by.
    "makefile gnumakefile *.mk justfile taskfile.y*ml rakefile rakefile.* gemfile* "
    "gems.rb *.gemspec procfile* "
    "dockerfile* *.dockerfile containerfile* docker-compose* compose*.y*ml vagrantfile debian "
    "conftest.py pyproject.toml pytest.ini tox.ini noxfile.py tasks.py conf.py setup.* *.setup.* "
    "*.preset.* build.* make.* install.* preinstall.* postinstall.* prebuild.* postbuild.* "
    "extconf.rb package.py gunicorn*.py locustfile.py wsgi.py asgi.py sitecustomize.py "
    "usercustomize.py *.pth requirements* *requirements*.txt *constraints*.txt pipfile* "
    "poetry.lock uv.lock uv.toml "
    "ruff.toml mypy.ini pyrightconfig*.json manage.py package.json package-lock.json "
    "npm-shrinkwrap.json pnpm-*.yaml yarn.lock bun.lock* deno.json* tsconfig*.json jsconfig*.json "
    "*.config.* *.conf.* *rc.js *rc.cjs *rc.mjs *rc.ts webpack* rollup* vite*.js vite*.ts "
    "gatsby-*.* ember-cli-build.* jakefile.* knexfile.* ormconfig.* setuptests.* testsetup.* "
    "gulpfile.* gruntfile.* lerna.json nx.json turbo.json biome.json* cargo.toml cargo.lock "
    "rust-toolchain* clippy.toml rustfmt.toml go.mod go.sum go.work* *.gradle *.gradle.kts "
    "gradle.properties gradlew* pom.xml mvnw* cmakelists.txt *.cmake meson.build meson_options.txt "
    "configure* *.bazel *.bzl workspace build composer.json composer.lock phpunit.xml* rector.php "
    "pint.php ecs.php castor.php robofile.php deploy.* mix.exs *.csproj *.fsproj *.sln *.props "
    "*.targets global.json nuget.config dune-project flake.nix default.nix shell.nix makefile.* "
    "*.make bsdmakefile *.just taskfile.*.y*ml *.rake guardfile thorfile capfile podfile fastfile* "
    "dangerfile brewfile config.ru sconstruct sconstruct.* sconscript wscript dodo.py fabfile.py "
    "duties.py pavement.py pdm_build.py versioneer.py ez_setup.py mkdocs_hooks.py celeryconfig.py "
    "brocfile.js brunch-config.* plopfile.* truffle*.js wallaby.* pnpmfile.* shakefile.* "
    "envoy.blade.php pytest.toml "
    "tox.toml pylintrc* hatch.toml hatch_build.py pdm.lock pixi.toml mise*.toml devbox.json *.nix "
    "tiltfile earthfile bunfig.toml binding.gyp *.gypi angular.json project.json rush.json "
    "gradle-wrapper.* buildsrc *.sbt project.clj deps.edn cmakepresets.json cmakeuserpresets.json "
    "conanfile.* vcpkg.json xmake.lua premake*.lua buck magefile*.go *.vbproj *.vcxproj *.proj "
    "*.slnx *.rsp *.runsettings *.cake dotnet-tools.json packages.config rebar.config *.pbxproj "
    "*.xcconfig *.xcscheme *.cabal cabal.project* stack.yaml dune dune-workspace *.opam *.nimble "
    "*.nims dub.json dub.sdl makefile.pl cpanfile package*.swift project.swift workspace.swift "
    "runtests.jl *.rules *.desktop *.service *.ps1 *.bat *.cmd *.sh *.bash *.zsh *.fish *.ksh "
    "*.csh *.command "
    # Programs of others, which run without being looked at again.
    "node_modules venv env site-packages vendor bin target "
)
"""Names, in small letters, that an edit by a rule never touches, as a file or a folder above it;
besides all that begin with a dot."""

EDITABLE: Final = frozenset(
    _words(
        # Sources.
        "py pyi js jsx mjs cjs ts tsx mts cts vue svelte astro css scss sass less html htm c h cc "
        "cpp cxx hh hpp hxx m mm cs fs fsi vb go rs java kt scala clj cljs swift dart rb erb php "
        "pl pm lua r jl hs lhs ml mli ex exs erl hrl elm zig nim cr d pas f90 sql graphql gql "
        "proto thrift glsl vert frag wgsl hbs ejs pug jinja j2 "
        # Documents.
        "md mdx markdown rst adoc txt tex bib org csv tsv po pot"
    )
)
"""Endings of files, in small letters, that an edit by a rule may touch: sources and documents."""

_PATTERNS: Final = tuple(name for name in GUARDED if "*" in name)


def is_in(path: str, folder: str) -> bool:
    """True if `path` is `folder` or below it, by their names alone."""
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")


def real(path: str) -> str:
    """The path without links and `..`; what does not exist stays as it is."""
    return os.path.realpath(path)


def paths_outside_rules(home: str, journal: str) -> tuple[str, ...]:
    """Paths that must not lie in a session's folder for rules to count there: the person's `home`,
    and the file of the journal, if it is one."""
    return (home, journal) if journal else (home,)


def leads_out(word: str, cwd: str, folder: str) -> bool:
    """True if an argument of a program may name something outside of `folder`.

    `cwd` is the folder that the program stands in; both are without links. Parts of the word are
    looked at as well: `--option=path`, `file::test`, `a:b`.
    """
    pieces = {word, *_PIECES.split(word)} if _PIECES.search(word) else (word,)
    return any(_leads_out(piece, cwd, folder) for piece in pieces)


def _leads_out(piece: str, cwd: str, folder: str) -> bool:
    if piece.startswith("~"):
        return True
    if piece.startswith("/") or ".." in piece.split("/"):
        return not is_in(real(os.path.join(cwd, piece)), folder)
    place = cwd
    for name in piece.split("/"):
        if name in ("", "."):
            continue
        place = f"{place}/{name}"
        try:
            mode = os.lstat(place).st_mode
        except (OSError, ValueError):
            return False  # not there, so nothing below it is
        if stat.S_ISLNK(mode):
            return not is_in(real(os.path.join(cwd, piece)), folder)
    return False


def no_edit(path: str, folder: str, below: str) -> str:
    """Return the reason why a rule may not have this file written; "" if it may.

    `folder` is that of the session, `below` the folder or file in it that the rule is for; both
    without links.
    """
    named = os.path.normpath(os.path.join(folder, path))
    found = real(named)
    if not path.isprintable() or "~" in path or ".." in path.split("/"):
        return "the path contains `~`, `..` or unprintable characters"
    if not is_in(found, below):
        return f"{path} is outside the folder"
    if any(part.startswith(".") for part in folder.split("/")) and (
        os.path.basename(folder).startswith(".") or not os.path.lexists(f"{folder}/.git")
    ):  # it lies in a folder that begins with a dot, and is no repository there
        return "the session's folder is one for settings"
    for place in (named, found):
        parts = place[len(folder) :].split("/") if is_in(place, folder) else place.split("/")
        if why := name_flaw(parts):
            return why
    for place in (named, found):
        if ending(place) not in EDITABLE:
            return f"{os.path.basename(place)} has no ending of a source or a document"
    if not os.path.isdir(os.path.dirname(found)):
        return f"the folder of {path} does not exist yet"
    try:
        known = os.lstat(found)
    except FileNotFoundError:
        return ""
    except OSError:
        return f"{path} cannot be checked"
    if not stat.S_ISREG(known.st_mode) or known.st_nlink > 1:
        return f"{path} is not a regular file, or has a hard link"
    if known.st_mode & 0o111:
        return f"{path} is a program"
    return ""


def name_flaw(parts: Iterable[str]) -> str:
    """Return the reason why a rule may not have a file written whose path has these parts; "" if it
    may."""
    for part in filter(None, parts):
        name = _fold(part)
        if (
            part.startswith(".")
            or name in GUARDED
            or any(fnmatchcase(name, pattern) for pattern in _PATTERNS)
        ):
            return f"{part} affects which programs run, or belongs to an agent"
    return ""


def ending(path: str) -> str:
    """Return the ending of a file's name, in small letters and without its dot."""
    return os.path.splitext(_fold(os.path.basename(path)))[1].removeprefix(".")


def _fold(name: str) -> str:
    """Return the name as disks know it that tell no letters apart."""
    return name.casefold().rstrip(". ")
