"""The user's runtime folder, and the sockets of acphold's processes in it.

Each process that serves sessions listens on a socket of its own there. Its name begins with the
number of the process; but that of a daemon's is in the file that the daemon holds (`locked_file`).
Only this user may enter the folder. Nothing here needs asyncio: the front of a daemon has to start
at once.
"""

from __future__ import annotations

import os
import stat
import sys
from zlib import crc32

from acp_wire.errors import AcpError
from acp_wire.state_folder import state_folder, write_private

SUFFIX = ".sock"

DAEMON = "daemon-"
"""The beginning of the names of the sockets of daemons."""

LONGEST_PATH = 100
"""Most bytes of a socket's path; systems take 104 to 108 with their closing zero (POSIX,
sys/un.h)."""

LOGINS = "/run/user"
"""The place where systemd makes a runtime folder for each user who has logged in."""

TEMPORARY = "/tmp"

MACHINE = "/etc/machine-id"


class RuntimeFolderError(AcpError):
    """The folder for the sockets of acphold's processes cannot be created or trusted."""

    def __init__(self, folder: str, why: str) -> None:
        super().__init__(
            f"sessions cannot be shared between processes: {folder}: {why}; "
            "set XDG_RUNTIME_DIR to a folder that is yours alone"
        )
        self.folder = folder


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


def account_folder() -> str:
    """Return the folder for what this user's processes share, whatever their variables are: in the
    home folder that the system knows, or as `state_folder` if none there can be written."""
    home = _account_home()
    return os.path.join(home, ".local/state/acphold") if home else state_folder()


def _account_home() -> str:
    import pwd  # late: a front of a file needs none

    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # as in a container
        return ""
    return home if os.access(home, os.W_OK) else ""


def machine_id(use: bytes = b"acphold machine") -> str:
    """Return a stable id of this machine for one use, in a few letters; "" if it cannot be
    determined.

    Derived from that of the system (machine-id(5)), which must not be passed on itself; otherwise
    made once for this user.
    """
    from _blake2 import blake2b  # hashlib brings OpenSSL

    own = os.path.join(account_folder(), "machine")
    if not (known := _line(MACHINE)):
        try:
            if not os.path.lexists(own):
                write_private(own, os.urandom(16).hex().encode(), replaces=False)
        except OSError:
            return ""
        known = _line(own)
    return blake2b(known, digest_size=8, person=use).hexdigest() if known else ""


def _line(path: str) -> bytes:
    """Return the id in a file; b"" if it has none."""
    try:
        with open(path, "rb") as file:
            found = file.read(64).strip()
    except OSError:
        return b""
    return found if len(found) == 32 and not found.strip(b"0123456789abcdef") else b""


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


def daemon_socket(key: str) -> str:
    """Return the path for the socket of the daemon with this key."""
    return os.path.join(runtime_folder(), f"{DAEMON}{key}{SUFFIX}")


def is_of_daemon(path: str) -> bool:
    """Return True if a socket is that of a daemon."""
    return os.path.basename(path).startswith(DAEMON)


def login_folder() -> str:
    """Return a folder of this user that follows from the user's number, and from no variable: that
    of the login, or else the one for state in the home folder that the system knows."""
    user = os.getuid()
    if _is_ours(base := os.path.join(LOGINS, str(user))):
        return os.path.join(base, "acphold")
    home = _account_home() or os.path.join(TEMPORARY, f"acphold-{user}")
    return os.path.join(home, ".local/state/acphold")


def sockets() -> list[str]:
    """Return the paths of all sockets in the folder; some may be left over by processes that are
    gone."""
    folder = runtime_folder()
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(SUFFIX)]


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
    """Return True if a process with this number has not ended: a parent may keep its number."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", "rb") as file:  # proc_pid_stat(5)
            return not file.read().rpartition(b")")[2].startswith((b" Z", b" X"))
    except ProcessLookupError:
        return False
    except OSError:  # another user's; or there is no /proc
        return True
