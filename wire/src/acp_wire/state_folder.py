"""The user's folder for state, and private files in it."""

from __future__ import annotations

import os
import sys


def state_folder() -> str:
    """Return the user's folder for state: logs, typed input, and sockets if they have no other
    place.

    Source: XDG Base Directory Specification.
    """
    if os.path.isabs(folder := os.environ.get("XDG_STATE_HOME", "")):
        return os.path.join(folder, "acphold")
    where = "~/Library/Logs" if sys.platform == "darwin" else "~/.local/state"
    return os.path.expanduser(os.path.join(where, "acphold"))


def write_private(path: str, data: bytes, *, replaces: bool = True) -> None:
    """Replace a file, which only this user may read, in one step, or with `replaces` off make it
    unless another process is quicker; raises OSError."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    new = f"{path}.{os.getpid()}" if replaces else f"{path}.{os.urandom(4).hex()}"
    try:
        os.unlink(new)  # of a process that was killed
    except FileNotFoundError:
        pass
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        if not (replaces or os.path.lexists(path)):
            try:
                os.link(new, path)
            except FileExistsError:
                pass
        if replaces:
            os.replace(new, path)
        else:
            os.unlink(new)
    except BaseException:
        try:
            os.unlink(new)
        except OSError:
            pass  # the error that led here says more
        raise
