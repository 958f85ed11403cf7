"""acphold is installed from a clone, and from the sdist and the wheel of a release: each has the
page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import pytest
from playwright.async_api import async_playwright

from acphold.faces.cli.main import COMMANDS
from docs.man_pages import man_pages
from tests.distributions import FOLDERS, ROOT
from tests.page.conftest import launched
from tests.web.conftest import started

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

PAGE = "src/acphold/web/page"
DEVELOPERS = {"mypy", "playwright", "pytest", "ruff"}
"""Packages that only those who change acphold need; they took most of the time of an install."""

NOTHING: Mapping[str, str] = MappingProxyType({})
NO_NPM = MappingProxyType({"npm_config_offline": "true", "npm_config_cache": "/dev/null"})


def run(*words: str | Path, cwd: Path = ROOT, env: Mapping[str, str] = NOTHING) -> str:
    """Run a command, which must succeed, and return its output."""
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("installs")


@pytest.fixture(scope="module")
def clone(folder: Path) -> Path:
    """A clone: every file that git tracks, with its present content, and no built file."""
    clone = folder / "clone"
    for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    return clone


@pytest.fixture(scope="module")
def release(folder: Path) -> Path:
    """The files of a release, which are built twice, compared, checked, installed and tried."""
    run(sys.executable, "-m", "release", folder / "dist")
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(release: Path) -> Path:
    (made,) = release.glob("acphold-*.whl")
    return made


@pytest.fixture(scope="module")
def siblings(release: Path) -> list[Path]:
    """The wheels of the distributions that acphold stands on."""
    return sorted(release.glob("acp_*.whl"))


@pytest.fixture(scope="module")
def sdist(release: Path) -> Path:
    (made,) = release.glob("acphold-*.tar.gz")
    return made


def install(folder: Path, *words: str | Path, env: Mapping[str, str] = NOTHING) -> None:
    """Install this into a new environment, with the pip of this one: a copy takes seconds. What is
    imported is compiled then."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    words = ("-m", "pip", "--python", folder / "bin/python", "install", "--no-compile", *words)
    run(sys.executable, *words, env=env)


class Base:
    """The wheels with their dependencies, and no extra, from the package index."""

    def __init__(self, folder: Path, *wheels: Path) -> None:
        install(folder, *wheels)
        (self.packages,) = folder.glob("lib/python*/site-packages")
        self.acphold = folder / "bin/acphold"
        self.home = folder / "home"
        self.home.mkdir()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.acphold, *words],
            env={
                "HOME": str(self.home),
                "PATH": f"{self.acphold.parent}:{os.environ['PATH']}",
                "ACPHOLD_JOURNAL": str(self.home / "journal.db"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture(scope="module")
def base(folder: Path, siblings: list[Path], wheel: Path) -> Base:
    return Base(folder / "base", *siblings, wheel)


class Installed:
    """acphold in an environment of its own, with its dependencies already there."""

    def __init__(self, folder: Path, *sources: Path, env: Mapping[str, str] = NOTHING) -> None:
        install(folder, "--no-deps", *sources, env=env)
        self.acphold = folder / "bin/acphold"
        (self.package,) = folder.glob("lib/python*/site-packages/acphold")
        depends = Path(pytest.__file__).parents[1]  # an editable acphold there does not count
        self.env = {
            **os.environ,
            "PYTHONPATH": str(depends),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "ACPHOLD_JOURNAL": str(folder / "journal.db"),
        }

    def page(self) -> dict[str, bytes]:
        """The files of the page, by their names."""
        return {it.name: it.read_bytes() for it in (self.package / "web/page/built").glob("*")}

    @contextmanager
    def serving(self) -> Iterator[dict[str, str]]:
        """Run `serve` for the block; yields its report, with `stderr` up to then."""
        with TemporaryDirectory(prefix="run-", dir="/tmp") as short:
            words = [str(self.acphold), "serve", "--json", "--listen", "127.0.0.1:0", "--"]
            said = Path(short, "stderr")
            command = f'exec "$@" 2>{said}'
            words = ["sh", "-c", command, "serve", *words, str(self.acphold), "agent", "demo"]
            process, told = started(words, {**self.env, "XDG_RUNTIME_DIR": short})
            try:
                yield {**told, "stderr": said.read_text()}
            finally:
                process.terminate()
                process.communicate()

    def doctor(self) -> str:
        done = subprocess.run(
            [self.acphold, "doctor"], env=self.env, capture_output=True, text=True, check=False
        )
        return done.stdout


async def opens(installed: Installed) -> None:
    """Its page pairs and shows its list, in a browser."""
    with installed.serving() as told:
        assert told["stderr"] == ""
        async with async_playwright() as playwright:
            browser = await launched(playwright)
            page = await browser.new_page(viewport={"width": 360, "height": 760})
            await page.goto(f"{told['url']}/#pair={told['pair']}")
            await page.get_by_role("link", name="New", exact=True).wait_for()
            await browser.close()


async def test_an_install_from_a_clone_has_the_page_and_says_so_once_it_is_gone(
    folder: Path, clone: Path
) -> None:
    installed = Installed(
        folder / "from-clone", *(clone / place.relative_to(ROOT) for place in FOLDERS.values())
    )
    assert not (clone / PAGE / "built").exists()
    assert not (clone / PAGE / "node_modules").exists()
    await opens(installed)
    assert "the web page that `acphold serve` shows is installed" in installed.doctor()
    shutil.rmtree(installed.package / "web/page/built")
    told = "this installation has no page for browsers"
    with installed.serving() as serving:
        assert told in serving["stderr"]
    assert told in installed.doctor()


async def test_an_install_from_an_sdist_has_the_page_without_npm(
    folder: Path, siblings: list[Path], sdist: Path, wheel: Path
) -> None:
    installed = Installed(folder / "from-sdist", *siblings, sdist, env=NO_NPM)
    await opens(installed)
    from_wheel = zipfile.ZipFile(wheel)
    for name, body in installed.page().items():
        assert from_wheel.read(f"acphold/web/page/built/{name}") == body


async def test_an_install_from_a_wheel_has_the_page(
    folder: Path, siblings: list[Path], wheel: Path
) -> None:
    await opens(Installed(folder / "from-wheel", *siblings, wheel))


def test_the_demo_installs_the_product_alone(clone: Path) -> None:
    told = run("make", "demo", f"PYTHON={sys.executable}", cwd=clone)
    assert "10 of 10 claims hold" in told
    (packages,) = (clone / ".venv").glob("lib/python*/site-packages")
    assert not DEVELOPERS & {it.name for it in packages.iterdir()}


@pytest.mark.parametrize(
    ("names", "words", "said"),
    [
        ("check", ["bin/acp-check", "--list"], "json-rpc.same-id"),
    ],
)
def test_a_distribution_installs_from_a_clone_with_those_below_it_and_nothing_of_acphold(
    folder: Path, clone: Path, names: str, words: list[str], said: str
) -> None:
    place = folder / names.replace(" ", "-")
    install(place, *(clone / name for name in ("wire", *names.split())))
    (packages,) = place.glob("lib/python*/site-packages")
    assert {it.name for it in packages.glob("ac*") if "-" not in it.name} == {
        f"acp_{name}" for name in ("wire", *names.split())
    }
    assert said in run(place / words[0], *words[1:])


def test_the_base_is_small(base: Base) -> None:
    assert len([*base.packages.glob("*.dist-info")]) <= 20
    kib = run("du", "--summarize", "--block-size=1K", base.packages).split()[0]
    assert int(kib) <= 45 * 1024


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_its_help_with_the_base_alone(base: Base, name: str) -> None:
    done = base.run(*name.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_base_holds_lists_finds_and_imports_conversations(base: Base) -> None:
    assert base.run("demo").returncode == 0
    transcript = base.home / ".claude/projects/-tmp/3f0e1c1a-5a52-4a4a-8a39-6f1e0d6c2b11.jsonl"
    transcript.parent.mkdir(parents=True)
    message = {"role": "user", "content": "an imported question"}
    line = {"type": "user", "uuid": "u", "sessionId": transcript.stem, "cwd": "/tmp"}
    line |= {"timestamp": "2026-01-01T00:00:00.000Z", "version": "2.0.0"}
    transcript.write_text(json.dumps({**line, "message": message}) + "\n")
    assert base.run("import").returncode == 0
    asked = base.run("ask", "hello", "--", "acphold", "agent", "demo")
    assert asked.returncode == 0, asked.stderr
    assert len(base.run("list", "--all", "--json").stdout.splitlines()) == 2
    assert "an imported question" in base.run("search", "imported").stdout
    told = base.run("doctor", "--", "acphold", "agent", "demo")
    assert told.returncode == 0, told.stdout
    assert "extras: none; not installed: serve, mcp, postgres, otel" in told.stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("serve", "--", "acphold", "agent", "demo"), "serve"),
        (("connect", "https://host.example"), "serve"),
        (("mcp",), "mcp"),
        (("mcp-bridge",), "mcp"),
        (("wrap", "--recall", "--", "acphold", "agent", "demo"), "mcp"),
        (("list", "--journal", "postgresql://host/x"), "postgres"),
    ],
)
def test_a_command_of_an_extra_names_it_in_one_line(
    base: Base, words: tuple[str, ...], extra: str
) -> None:
    done = base.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"acphold.* needs: pip install 'acphold\[{extra}\]' .*\n", done.stderr)


def test_a_wheel_has_the_documents_and_the_man_pages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    documents = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert {f"acphold/docs/{name}" for name in documents} <= {*names}
    there = {match[1] for name in names if (match := re.search(r"/share/man/man1/(.*)", name))}
    assert there == {*man_pages("1.0")}
    assert not [name for name in names if name.endswith(("man_pages.py", "hatch_build.py"))]
    assert not [name for name in names if "/web/page/" in name and "/built/" not in name]


def test_a_build_that_cannot_make_the_page_fails_and_says_why(folder: Path, clone: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "none")]
    done = subprocess.run(
        words, cwd=clone, env={**os.environ, **NO_NPM}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "The page for browsers cannot be built" in done.stderr
    assert "an sdist of acphold has the page" in done.stderr
    assert not [*(folder / "none").glob("*.whl")]


def test_a_page_that_was_built_of_other_sources_is_built_anew(folder: Path, sdist: Path) -> None:
    (folder / "unpacked").mkdir()
    run("tar", "-xzf", sdist, "-C", folder / "unpacked")
    (source,) = (folder / "unpacked").iterdir()
    ask = "import hatch_build as it; print(it.is_built(it.ROOT / it.PAGE))"
    assert run(sys.executable, "-c", ask, cwd=source).strip() == "True"
    with (source / PAGE / "main.js").open("a") as file:
        file.write("// changed\n")
    assert run(sys.executable, "-c", ask, cwd=source).strip() == "False"
