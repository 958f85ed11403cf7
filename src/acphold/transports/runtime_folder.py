"""The user's runtime folder, and the sockets of acphold's processes in it.

Each process that serves sessions listens on a socket of its own there. Its name begins with the
number of the process; or it is made from what the process was started with, so that it can be
found. Only this user may enter the folder. Nothing here needs asyncio: the pipe in front of a
background process is to be there at once.
"""

from __future__ import annotations

import os
import stat

from acphold.errors import RuntimeFolderError

SUFFIX = ".sock"

BACKGROUND = "owner-"
"""How the name of a socket begins that is found by what its process was started with."""

LONGEST_PATH = 100
"""Bytes of a socket's path; systems take 104 to 108 with their closing zero (POSIX, sys/un.h)."""


def runtime_folder() -> str:
    """The folder, made if need be; raises RuntimeFolderError when it cannot be trusted.

    `$XDG_RUNTIME_DIR/acphold` (XDG Base Directory Specification), or the folder that systemd makes
    for it where only the variable is missing, as in a cron job; else `/tmp/acphold-UID`.
    """
    user = os.getuid()
    folder = os.path.join("/tmp", f"acphold-{user}")
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}"):
        if os.path.isabs(base) and _is_ours(base):
            folder = os.path.join(base, "acphold")
            break
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError as exc:
        raise RuntimeFolderError(folder, exc.strerror or str(exc)) from None
    if not _is_ours(folder):
        raise RuntimeFolderError(folder, "it belongs to somebody else, or is a link")
    if stat.S_IMODE(os.lstat(folder).st_mode) & 0o077:
        raise RuntimeFolderError(folder, "others may enter it; run `chmod 700` on it")
    if len(os.fsencode(folder)) > LONGEST_PATH - 32:
        raise RuntimeFolderError(folder, "its path is too long for a socket in it")
    return folder


def _is_ours(folder: str) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def own_socket() -> str:
    """A path for the socket of this process, which nobody else uses."""
    return os.path.join(runtime_folder(), f"{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}")


def background_socket(key: str) -> str:
    """The path for the socket of the process in the background that is known by this key."""
    return os.path.join(runtime_folder(), f"{BACKGROUND}{key}{SUFFIX}")


def is_background(path: str) -> bool:
    """Whether a socket is that of a process in the background."""
    return os.path.basename(path).startswith(BACKGROUND)


def lock(path: str) -> int | None:
    """Lock a socket's name until this process ends, or the descriptor is closed.

    That is what is returned; None when another process has it. Raises OSError.
    """
    import fcntl

    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(path: str) -> bool:
    """Whether a process has locked this socket's name, and so runs."""
    if not os.path.exists(f"{path}.lock"):
        return False
    if (descriptor := lock(path)) is None:
        return True
    os.close(descriptor)
    return False


def sockets() -> list[str]:
    """The paths of all sockets in the folder; some may be left over by processes that are gone."""
    folder = runtime_folder()
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(SUFFIX)]


def sweep() -> None:
    """Remove the sockets of processes that have gone without a word."""
    for path in sockets():
        pid = os.path.basename(path).partition("-")[0]
        if pid.isdecimal() and not is_running(int(pid)):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass  # another process sweeps, too


def is_running(pid: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
