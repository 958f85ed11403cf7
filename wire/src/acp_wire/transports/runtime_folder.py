"""The user's runtime folder, and the sockets of acphold's processes in it.

Each process that serves sessions listens on a socket of its own there. Its name begins with the
number of the process; or it is made from what the process was started with, so that it can be
found. Only this user may enter the folder. Nothing here needs asyncio: the pipe in front of a
background process has to start at once.
"""

from __future__ import annotations

import os
import stat
import sys
from zlib import crc32

from acp_wire.errors import RuntimeFolderError

SUFFIX = ".sock"

BACKGROUND = "owner-"
"""The beginning of the names of background sockets, which are found by their process's start."""

LONGEST_PATH = 100
"""Most bytes of a socket's path; systems take 104 to 108 with their closing zero (POSIX,
sys/un.h)."""

LOGINS = "/run/user"
"""The place where systemd makes a runtime folder for each user who has logged in."""

TEMPORARY = "/tmp"


def runtime_folder() -> str:
    """Return the folder, made if need be; raises RuntimeFolderError if it cannot be trusted.

    `$XDG_RUNTIME_DIR/acphold` (XDG Base Directory Specification), or the folder that systemd makes
    for it if only the variable is missing, as in a cron job. Without either, one in the user's
    folder for state: in the temporary folder another user could take the name first. That is the
    last resort for users without a writable home folder, or whose path is too long.
    """
    user = os.getuid()
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), os.path.join(LOGINS, str(user))):
        if os.path.isabs(base) and _is_ours(base):
            return _private_folder(os.path.join(base, "acphold"))
    state = state_folder()
    folder = os.path.join(state, f"run{_machine()}")
    if os.path.isabs(state) and len(os.fsencode(folder)) <= LONGEST_PATH - 32:
        try:
            os.makedirs(state, 0o700, exist_ok=True)
        except OSError:
            pass
        if _is_ours(os.path.realpath(state)) and os.access(state, os.W_OK):
            return _private_folder(folder)
    return _private_folder(os.path.join(TEMPORARY, f"acphold-{user}"))


def state_folder() -> str:
    """Return the user's folder for state: logs, typed input, and sockets if they have no other
    place.

    Source: XDG Base Directory Specification.
    """
    if os.path.isabs(folder := os.environ.get("XDG_STATE_HOME", "")):
        return os.path.join(folder, "acphold")
    where = "~/Library/Logs" if sys.platform == "darwin" else "~/.local/state"
    return os.path.expanduser(os.path.join(where, "acphold"))


def machine_id() -> str:
    """Return a stable id of this machine, in a few letters; "" if it cannot be determined.

    Derived from that of the system (machine-id(5)), which must not be passed on itself; otherwise
    made once for this user.
    """
    from _blake2 import blake2b  # hashlib brings OpenSSL

    own = os.path.join(state_folder(), "machine")
    for place in ("/etc/machine-id", own):
        if known := _line(place):
            return blake2b(known, digest_size=8, person=b"acphold machine").hexdigest()
    try:
        write_private(own, os.urandom(16).hex().encode())
    except OSError:
        return ""
    return machine_id() if _line(own) else ""


def _line(path: str) -> bytes:
    """Return the id in a file; b"" if it has none."""
    try:
        with open(path, "rb") as file:
            found = file.read(64).strip()
    except OSError:
        return b""
    return found if len(found) == 32 and not found.strip(b"0123456789abcdef") else b""


def write_private(path: str, data: bytes) -> None:
    """Replace a file, which only this user may read, in one step; raises OSError."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    new = f"{path}.{os.getpid()}"
    try:
        os.unlink(new)  # of a process that was killed
    except FileNotFoundError:
        pass
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(new, path)
    except BaseException:
        try:
            os.unlink(new)
        except OSError:
            pass  # the error that led here says more
        raise


def _machine() -> str:
    """Return a mark for this machine's sockets, as others may share the home folder."""
    if sys.platform == "darwin":  # its name changes with the network
        return ""
    return f"-{crc32(os.fsencode(os.uname().nodename)):08x}"


def _private_folder(folder: str) -> str:
    """Return the folder, made if need be, if it is ours alone; raises RuntimeFolderError."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError as exc:
        raise RuntimeFolderError(folder, exc.strerror or str(exc)) from None
    if not _is_ours(folder):
        raise RuntimeFolderError(folder, "it belongs to another user, or is a link")
    if stat.S_IMODE(os.lstat(folder).st_mode) & 0o077:
        raise RuntimeFolderError(folder, "other users can open it; run `chmod 700` on it")
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
    """Return a path for the socket of this process, which no other process uses."""
    return os.path.join(runtime_folder(), f"{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}")


def background_socket(key: str) -> str:
    """Return the path for the socket of the background process with this key."""
    return os.path.join(runtime_folder(), f"{BACKGROUND}{key}{SUFFIX}")


def is_background(path: str) -> bool:
    """Return True if a socket is that of a background process."""
    return os.path.basename(path).startswith(BACKGROUND)


def lock_file(path: str) -> str:
    """Return the file that is locked for a socket's name. It is not in the socket's folder: that
    goes at the last logout, and the name would be free."""
    return os.path.join(state_folder(), f"{os.path.basename(path)}{_machine()}.lock")


def lock(path: str) -> int | None:
    """Lock a socket's name until this process ends, or the descriptor is closed.

    Return the descriptor; None if another process has the lock. Raises OSError.
    """
    import fcntl

    os.makedirs(state_folder(), 0o700, exist_ok=True)
    descriptor = os.open(lock_file(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(path: str) -> bool:
    """Return True if a process has locked this socket's name, and so runs."""
    if not os.path.exists(lock_file(path)):
        return False
    if (descriptor := lock(path)) is None:
        return True
    os.close(descriptor)
    return False


def holder(path: str) -> int | None:
    """Return the process that has locked this socket's name, as the kernel says; None if it does
    not say, or if the process has no number here."""
    try:
        looked = os.stat(lock_file(path))
        with open("/proc/locks") as file:  # proc_locks(5)
            rows = [line.split() for line in file]
    except OSError:
        return None
    for _, kind, _, _, pid, place, *_ in (row for row in rows if row[1] != "->"):
        # Some file systems have another device there than stat(2) tells.
        is_it = kind == "FLOCK" and place.rpartition(":")[2] == str(looked.st_ino)
        if is_it and pid.isdecimal() and _has_open(int(pid), looked):
            return int(pid)
    return None


def _has_open(pid: int, looked: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            try:
                if os.path.samestat(os.stat(os.path.join(folder, name)), looked):
                    return True
            except FileNotFoundError:
                pass  # closed meanwhile
    except OSError:  # it has ended
        pass
    return False


def note_place(descriptor: int, path: str) -> None:
    """Note in the lock of a socket's name where the socket is: others may look elsewhere."""
    os.pwrite(descriptor, os.fsencode(path), 0)
    os.ftruncate(descriptor, len(os.fsencode(path)))


def read_place(path: str) -> str:
    """Return the noted place of the socket with this name; "" if none was noted."""
    try:
        with open(lock_file(path), "rb") as file:
            noted = os.fsdecode(file.read(LONGEST_PATH + 1))
    except OSError:
        return ""
    return noted if os.path.basename(noted) == os.path.basename(path) else ""


def sockets() -> list[str]:
    """Return the paths of all sockets in the folder; some may be left over by processes that are
    gone."""
    folder = runtime_folder()
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(SUFFIX)]


def locked_names() -> list[str]:
    """Return the paths of all sockets whose names are locked, or were, whether they are there or
    not."""
    folder, end = runtime_folder(), f"{_machine()}.lock"
    names = [name.removesuffix(end) for name in os.listdir(state_folder()) if name.endswith(end)]
    paths = [os.path.join(folder, name) for name in names if name.endswith(SUFFIX)]
    return [read_place(path) or path for path in paths]


def sweep() -> None:
    """Remove the sockets of processes that have ended without doing so."""
    for path in sockets():
        pid = os.path.basename(path).partition("-")[0]
        if pid.isdecimal() and not is_running(int(pid)):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass  # another process sweeps, too


def is_running(pid: int) -> bool:
    """Return True if there is a process with this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True
