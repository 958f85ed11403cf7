"""acphold as another process: what works beside us or outlives us, and what others start for us.

Such a process begins in the folder that we are in, or an agent is in. Mostly that is a project, and
Python looks there first for whatever is imported, `acphold` itself included: so each of ours is
told not to (`-P`). Where a variable of Python's own leads there as well, as a PYTHONPATH with an
empty part does, it is told to heed none of them (`-E`).
"""

from __future__ import annotations

import os
import sys

from acphold.processes.descriptors import close_others_on_exec

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    import signal
    from asyncio.subprocess import Process
    from collections.abc import Mapping
else:
    import _signal as signal  # without its enums, which take two milliseconds

PLACES = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX")
"""Variables that say where Python finds code."""


def own_python(*arguments: str) -> tuple[str, ...]:
    """The command line of the Python that runs us, which looks for code where we found ours."""
    given = [value for name in PLACES if (value := os.environ.get(name))]
    parts = [part for value in given for part in value.split(os.pathsep)]
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # Where such a part is what leads to acphold, somebody works on acphold there.
    is_led_astray = not all(map(os.path.isabs, parts)) and ours not in map(os.path.abspath, parts)
    return (sys.executable, "-P", *(("-E",) if is_led_astray else ()), *arguments)


def own_command(*words: str) -> tuple[str, ...]:
    """The command line of `acphold` with these words."""
    return own_python("-m", "acphold", *words)


async def start_own(
    command: tuple[str, ...],
    *,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Process:
    """Start one of the above as our child; the streams as asyncio takes them. Raises OSError."""
    import asyncio

    return await asyncio.create_subprocess_exec(
        *command, stdin=stdin, stdout=stdout, stderr=stderr, env=env
    )


def start_detached(
    command: tuple[str, ...], streams: Mapping[int, int], env: Mapping[str, str] | None = None
) -> int:
    """Start one of the above in a session of its own, which is to outlive us; its pid.

    Of our descriptors it has those that `streams` names, each under the number before it, and
    nothing for stdin, stdout and stderr where they are not among these. Raises OSError.
    """
    close_others_on_exec()
    taken = [(os.POSIX_SPAWN_DUP2, ours, number) for number, ours in streams.items()]
    empty = [
        (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0)
        for number in range(3)
        if number not in streams
    ]
    return os.posix_spawn(
        command[0],
        command,
        os.environ if env is None else env,
        file_actions=[*taken, *empty],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGPIPE],
    )
