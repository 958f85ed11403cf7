"""Build the sdist and the wheel of each distribution, and check them: `make release`.

All are built twice, in folders of their own, and have to be equal byte for byte. The wheels are
installed into a new environment, with what they depend on, and run the demo there. Nothing is
uploaded. The files are left in `dist/`, or in the folder that is named behind `python -m release`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path
from shutil import copy, rmtree
from tempfile import TemporaryDirectory

from acphold.version import __version__

ROOT = Path(__file__).parents[1]

SECONDS = 1800.0
"""Bounds each program that runs."""

FOLDERS = {
    "acp_wire": "wire",
    "acp_check": "check",
    "acphold": ".",
}
"""By the name in its files, the folder of each distribution; one stands on those before it."""

IN_SDIST = ("LICENSE", "README.md", "pyproject.toml")
IN_WHEEL = {
    "acp_wire": ("acp_wire/py.typed",),
    "acp_check": ("acp_check/py.typed", "acp_check/report.css"),
    "acphold": (
        *("acphold/py.typed", "acphold/web/page/built/index.html"),
        "acphold/conversation/exports/page.css",
        "acphold/docs/reference.md",
    ),
}
NOT_INSIDE = (".git/", ".venv/", "node_modules/", "__pycache__/", ".interop/")


def main(dist: Path = ROOT / "dist") -> None:
    with TemporaryDirectory(prefix="release-") as folder:
        first, second = (_built(_tracked(Path(folder, name))) for name in ("first", "second"))
        for one, other in zip(first, second, strict=True):
            if one.read_bytes() != other.read_bytes():
                raise SystemExit(f"release: {one.name} is not the same when it is built again")
        _run(sys.executable, "-m", "twine", "check", "--strict", *first)
        for made in first:
            _look_through(made)
        _try_out(first[0].parent, Path(folder, "new"))
        rmtree(dist, ignore_errors=True)
        dist.mkdir(parents=True)
        for made in first:
            print(copy(made, dist))


def _tracked(to: Path) -> Path:
    """Copy the files that git knows, without what was built here before."""
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    for name in filter(None, names.split("\0")):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, to / name)
    return to


def _built(source: Path) -> list[Path]:
    """Build of each the sdist, and the wheel from it, as installers do; in this order."""
    made = source / "dist"
    files = list[Path]()
    for name, folder in FOLDERS.items():
        # What a build asks for is installed here, Node.js for the page too.
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", made, source / folder)
        (sdist,), (wheel,) = made.glob(f"{name}-*.tar.gz"), made.glob(f"{name}-*.whl")
        files += [sdist, wheel]
    return files


def _look_through(made: Path) -> None:
    if made.suffix == ".whl":
        with zipfile.ZipFile(made) as archive:
            names, missing = archive.namelist(), {*IN_WHEEL[made.name.partition("-")[0]]}
            _require_pins(archive)
    else:
        with tarfile.open(made) as archive:
            names = [name.partition("/")[2] for name in archive.getnames()]
            missing = {*IN_SDIST}
    if "acphold/" in "".join(names) and made.name.startswith("acp_"):
        raise SystemExit(f"release: {made.name} has files of acphold")
    missing -= {*names}
    if missing:
        raise SystemExit(f"release: {made.name} lacks {', '.join(sorted(missing))}")
    if strange := [name for name in names if any(part in f"{name}/" for part in NOT_INSIDE)]:
        raise SystemExit(f"release: {made.name} has {', '.join(strange[:5])}")


def _require_pins(wheel: zipfile.ZipFile) -> None:
    """No wheel names a folder of the machine that built it."""
    [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    if found := [line for line in wheel.read(metadata).decode().splitlines() if " @ " in line]:
        raise SystemExit(f"release: {wheel.filename} says {found[0]!r}, not a version")


def _try_out(wheels: Path, folder: Path) -> None:
    """Install acphold from a folder of wheels into a new environment, by its name, and run it."""
    venv.create(folder)
    bin_ = folder / "bin"
    pip = (sys.executable, "-m", "pip", "--python", bin_ / "python")
    _run(*pip, "install", "--quiet", "--find-links", wheels, f"acphold=={__version__}")
    for command in ("acp-check", "acphold"):
        said = _run(bin_ / command, "--version")
        if said.split() != [command, __version__]:
            raise SystemExit(f"release: --version says {said!r}, not {command} {__version__}")
    _run(bin_ / "acphold", "demo")


def _run(*words: str | Path) -> str:
    """Run a program and return what it prints; SystemExit if it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": _committed()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"release: {_line(words)} failed\n{done.stdout}")
    print(f"{_line(words)}: done", file=sys.stderr)
    return done.stdout


def _line(words: Iterable[str | Path]) -> str:
    return " ".join(word.name if isinstance(word, Path) else word for word in words)


def _committed() -> str:
    """The time of the commit, in seconds: the only time that may be in what is built."""
    words = ["git", "log", "-1", "--format=%ct"]
    return subprocess.check_output(words, cwd=ROOT, text=True).strip()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
