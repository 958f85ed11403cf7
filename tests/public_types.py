"""What is public has types that every checker reads alike: pyright counts what is not so.

    python -m tests.public_types

pyright takes every module for public whose name begins with no underscore. Of what it finds, only
what the public modules offer is looked at here, and what can be reached from that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from tests.test_public_names import MODULES


def public() -> set[str]:
    """The public names: as they are offered, and where they are defined."""
    found = set()
    for home in (*MODULES, "acphold.schema"):
        module = import_module(home)
        offered = [name for name in vars(module) if not name.startswith("_")]
        for name in getattr(module, "__all__", offered):
            found.add(f"{home}.{name}")
            thing = getattr(module, name)
            if origin := getattr(thing, "__module__", None):
                found.add(f"{origin}.{getattr(thing, '__qualname__', name)}")
    return found


def main() -> int:
    """Say how many symbols are public, and which of them are of no clear type; 1 if any."""
    scripts = Path(sys.executable).parent
    told = subprocess.run(
        [scripts / "pyright", "--verifytypes", "acphold", "--ignoreexternal", "--outputjson"],
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        check=False,  # it fails because of what is internal
        timeout=300,
    )
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
    return 1 if unclear or not count else 0


if __name__ == "__main__":
    sys.exit(main())
