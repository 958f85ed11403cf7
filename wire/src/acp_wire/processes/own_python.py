"""Our Python as another process.

Such a process begins in our folder, or an agent's. That is mostly a project, and Python looks there
first for every import, `acp_wire` itself included: so ours is told not to (`-P`). If one of
Python's own variables leads there as well, as a PYTHONPATH with an empty part does, it is told to
ignore them all (`-E`).
"""

from __future__ import annotations

import os
import sys

PLACES = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX")
"""Variables for the places where Python finds code."""


def own_python(*arguments: str) -> tuple[str, ...]:
    """Return the command line of our Python, finding code where we found ours."""
    given = [value for name in PLACES if (value := os.environ.get(name))]
    parts = [part for value in given for part in value.split(os.pathsep)]
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # If such a part leads to acphold itself, somebody develops acphold there.
    is_led_astray = not all(map(os.path.isabs, parts)) and ours not in map(os.path.abspath, parts)
    return (sys.executable, "-P", *(("-E",) if is_led_astray else ()), *arguments)
