"""acphold is installed from a clone, and from the sdist and the wheel of a release: each has the
page."""

from __future__ import annotations

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

from docs.man_pages import man_pages
from tests.page.conftest import launched
from tests.web.conftest import started

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PAGE = "src/acphold/web/page"
NOTHING: Mapping[str, str] = MappingProxyType({})
NO_NPM = MappingProxyType({"npm_config_offline": "true", "npm_config_cache": "/dev/null"})


def run(*words: str | Path, cwd: Path = ROOT, env: Mapping[str, str] = NOTHING) -> str:
    """What a command prints; it has to succeed."""
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
    """What a clone has: each file that git knows, as it is now, and none that was built."""
    clone = folder / "clone"
    for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    return clone


@pytest.fixture(scope="module")
def release(folder: Path) -> Path:
    """What a release is made of: built twice, compared, checked, installed and tried."""
    run(sys.executable, "-m", "release", folder / "dist")
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(release: Path) -> Path:
    (made,) = release.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def sdist(release: Path) -> Path:
    (made,) = release.glob("*.tar.gz")
    return made


class Installed:
    """acphold in an environment of its own; what it depends on is there already."""

    def __init__(self, folder: Path, source: Path, env: Mapping[str, str] = NOTHING) -> None:
        run(sys.executable, "-m", "venv", folder)
        run(folder / "bin/python", "-m", "pip", "install", "--no-deps", source, env=env)
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
        """What `serve` tells, for the block; `stderr` is what it had said before that."""
        with TemporaryDirectory(prefix="run-", dir="/tmp") as short:
            words = [str(self.acphold), "serve", "--json", "--listen", "127.0.0.1:0", "--"]
            said = Path(short, "stderr")
            command = f'exec "$@" 2>{said}'
            words = ["sh", "-c", command, "serve", *words, str(self.acphold), "demo-agent"]
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
    installed = Installed(folder / "from-clone", clone)
    assert not (clone / PAGE / "built").exists()
    assert not (clone / PAGE / "node_modules").exists()
    await opens(installed)
    assert "the page for browsers, which `acphold serve` shows, is there" in installed.doctor()
    shutil.rmtree(installed.package / "web/page/built")
    told = "this installation lacks the page for browsers"
    with installed.serving() as serving:
        assert told in serving["stderr"]
    assert told in installed.doctor()


async def test_an_install_from_an_sdist_has_the_page_without_npm(
    folder: Path, sdist: Path, wheel: Path
) -> None:
    installed = Installed(folder / "from-sdist", sdist, NO_NPM)
    await opens(installed)
    from_wheel = zipfile.ZipFile(wheel)
    for name, body in installed.page().items():
        assert from_wheel.read(f"acphold/web/page/built/{name}") == body


async def test_an_install_from_a_wheel_has_the_page(folder: Path, wheel: Path) -> None:
    await opens(Installed(folder / "from-wheel", wheel))


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
    shutil.unpack_archive(sdist, folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    ask = "import hatch_build as it; print(it.is_built(it.ROOT / it.PAGE))"
    assert run(sys.executable, "-c", ask, cwd=source).strip() == "True"
    with (source / PAGE / "main.js").open("a") as file:
        file.write("// changed\n")
    assert run(sys.executable, "-c", ask, cwd=source).strip() == "False"
