"""A program of ours as a transient service of systemd, where a manager runs for this user.

A child has the limits, the control group and the share of the machine of its parent; a service has
those of the manager. What may be secret among its variables goes through its stdin, in front of
everything else, because whoever may ask the manager sees what a unit was started with. Sources:
systemd-run(1), systemd.exec(5), proc(5), cgroups(7).
"""

from __future__ import annotations

import os
import sys
import time

from acp_wire.processes.program import on_path
from acphold.machine.place import place_of

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    import signal
    import socket
    import struct
    from collections.abc import Mapping, Sequence
else:
    import _signal as signal
    import _socket as socket
    import _struct as struct

SERVICE = "service"
"""The last word of a command line by which the manager starts us."""

PREFIX = "acphold-"
"""The beginning of the names of our units."""

ANSWER_SECONDS = 5.0
"""Seconds for the manager to start it; then it is started without."""

CONNECT_SECONDS = 1.0
"""Seconds to reach the manager."""

LINGERING = "/var/lib/systemd/linger"
"""Has a file for each user whose processes outlive the last logout; source: loginctl(1)."""

PROPERTIES = ("Type=exec", "OOMPolicy=continue", "StandardError=null")
"""It goes on when a child of it is out of memory."""


def start_as_service(
    command: Sequence[str], env: Mapping[str, str], stdin: int, stdout: int
) -> bool:
    """Have this user's manager start a command of ours, with SERVICE as its last word; return False
    if there is no manager for that. Its streams are these descriptors of ours; it calls
    `take_streams`."""
    folder = os.path.join(env.get("XDG_RUNTIME_DIR", ""), "systemd", "private")
    if (run := on_path("systemd-run", env.get("PATH"))) is None or not _is_ours(folder):
        return False
    ours = f"/proc/{os.getpid()}/fd"
    streams = (f"StandardInput=file:{ours}/{stdin}", f"StandardOutput=file:{ours}/{stdout}")
    name = f"{PREFIX}{os.urandom(4).hex()}"
    words = (
        *(run, "--user", "--quiet", "--collect", f"--unit={name}"),
        *(f"--property={each}" for each in (*PROPERTIES, *streams)),
        f"--setenv=PYTHONPATH={env.get('PYTHONPATH', '')}",
        *("--", *command, SERVICE),
    )
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    pid = os.posix_spawn(run, words, env, file_actions=null, setsid=True, setsigmask=[])
    deadline = time.monotonic() + ANSWER_SECONDS
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return False
        time.sleep(0.002)
    return ended[1] == 0


def _is_ours(path: str) -> bool:
    """Return True if the manager at this socket is of our place, and may keep what we start: it
    ends with the last logout, and then only what began under it, unless the user lingers."""
    if sys.platform != "linux":
        return False
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        asking.settimeout(CONNECT_SECONDS)
        asking.connect(path)
        raw = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # unix(7)
        manager = int(struct.unpack("3i", raw)[0])
        if place_of(manager) != place_of():
            return False
        group = _group_of(manager).removesuffix("/init.scope")
        return is_lingering() or (group != "" and _group_of(os.getpid()).startswith(f"{group}/"))
    except OSError:
        return False
    finally:
        asking.close()


def is_lingering() -> bool:
    """Return True if this user's manager stays after the last logout."""
    import pwd  # late: rarely needed

    try:
        return os.path.exists(os.path.join(LINGERING, pwd.getpwuid(os.getuid()).pw_name))
    except KeyError:
        return False


def _group_of(pid: int) -> str:
    """Return the control group in which systemd has a process; source: cgroups(7)."""
    found = ""
    with open(f"/proc/{pid}/cgroup") as file:
        for line in file:
            _, kinds, path = line.rstrip("\n").split(":", 2)
            if kinds == "name=systemd" or (kinds == "" and not found):
                found = path
    return found


def is_service() -> bool:
    """Return True if this process is such a service."""
    try:
        unit = os.path.basename(_group_of(os.getpid()))
    except OSError:
        return False
    return unit.startswith(PREFIX) and unit.endswith(".service")


def pack_variables(env: Mapping[str, str]) -> bytes:
    """Return variables as `take_streams` reads them, behind their length."""
    rest = b"\0".join(os.fsencode(f"{name}={value}") for name, value in env.items())
    return len(rest).to_bytes(4, "big") + rest


def take_streams(stdin: int, stdout: int) -> None:
    """Take our variables from stdin, and put the streams under these numbers, as the service.

    Raises OSError if our starter has gone.
    """
    rest = _read(int.from_bytes(_read(4), "big"))
    os.environ.clear()
    for entry in filter(None, rest.split(b"\0")):
        name, _, value = os.fsdecode(entry).partition("=")
        os.environ[name] = value
    os.dup2(0, stdin, inheritable=False)
    os.dup2(1, stdout, inheritable=False)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (piece := os.read(0, size - len(data))):
            raise OSError("the process that starts us has gone")
        data += piece
    return data
