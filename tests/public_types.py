"""Public types that type checkers may read differently, counted by pyright.

    python -m tests.public_types

pyright takes every module without a leading underscore for public. This program counts only its
findings on names that the public modules offer, and on anything reachable from those. It also
checks the programs of docs/library.md with pyright in strict mode; a test checks them with mypy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from tests.docs.test_library import sections
from tests.docs.test_library_client import PROGRAMS
from tests.test_public_names import MODULES


def public() -> set[str]:
    """The public names: as they are offered, and where they are defined."""
    found = set()
    for home in (*MODULES, "acp_wire.schema"):
        module = import_module(home)
        offered = [name for name in vars(module) if not name.startswith("_")]
        for name in getattr(module, "__all__", offered):
            found.add(f"{home}.{name}")
            thing = getattr(module, name)
            if origin := getattr(thing, "__module__", None):
                found.add(f"{origin}.{getattr(thing, '__qualname__', name)}")
    return found


SCRIPTS = Path(sys.executable).parent


def pyright(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it with these arguments; it fails where it finds anything, internal things too."""
    return subprocess.run(
        [SCRIPTS / "pyright", *arguments],
        env={**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
        check=False,
        timeout=300,
    )


def documented() -> int:
    """Check the programs of docs/library.md; 1 if pyright finds anything in them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        strict = {"typeCheckingMode": "strict", "pythonVersion": "3.11"}
        (folder / "pyrightconfig.json").write_text(json.dumps(strict))
        codes = [section.code for section in sections()] + [program.code for program in PROGRAMS]
        for place, code in enumerate(codes):
            (folder / f"guide_{place}.py").write_text(code)
        told = pyright("--pythonpath", sys.executable, cwd=folder)
    sys.stdout.write(f"{len(codes)} programs of docs/library.md\n{told.stdout}")
    return told.returncode


def main() -> int:
    """Say how many symbols are public, and which of them are of no clear type; 1 if any."""
    told = pyright("--verifytypes", "acphold", "--ignoreexternal", "--outputjson")
    offered = public()
    count = 0
    unclear: list[str] = []
    for symbol in json.loads(told.stdout)["typeCompleteness"]["symbols"]:
        name = symbol["name"]
        parts = name.split(".")
        if offered.isdisjoint(".".join(parts[:end]) for end in range(1, len(parts) + 1)):
            continue
        count += 1
        if symbol["isTypeAmbiguous"] or not symbol["isTypeKnown"]:
            why = [each["message"].replace("\n", " ") for each in symbol["diagnostics"]]
            unclear.append(f"{name}: {'; '.join(why) or 'by what it refers to'}")
    counted = f"{count} public symbols, {len(unclear)} of no clear type"
    sys.stdout.write("\n  ".join([counted, *unclear]) + "\n")
    return documented() or (1 if unclear or not count else 0)


if __name__ == "__main__":
    sys.exit(main())
