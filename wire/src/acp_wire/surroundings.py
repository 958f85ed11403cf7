"""The surroundings of an agent: the environment, the folder and the limits that programs start in.

They belong to whoever asked for the agent, not to the process that serves it: one process may serve
the agents of several editors. So they are read once, where a program begins (`here`), and handed
down to all that starts programs, reads a person's settings or understands a relative path. A test
keeps the rooms below from asking the process itself.

They hold secrets, and so they are in memory only: they have no form in which they could be written.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    from collections.abc import Mapping

Limits = tuple[tuple[tuple[int, int, int], ...], int, int, int | None]
"""What a process may use of the machine: resources of getrlimit(2), each with its soft and its hard
limit; its niceness; the processors that it may run on, as bits, 0 if unknown; and its
`oom_score_adj`, None if unknown."""

NO_LIMITS: Limits = ((), 0, 0, None)
"""Those of the process that starts a program."""


RLIMIT_LOCKS = 10
"""The limit for file locks, for which `resource` has no name; source: Linux, resource.h. Guardians
leave their mark in it."""

OOM_FILE = "/proc/self/oom_score_adj"
"""Source: proc_pid_oom_score_adj(5)."""


def limits_here() -> Limits:
    """Return the limits of this process."""
    import resource  # late: a front needs it, and few others that import this

    resources = tuple((kind, *resource.getrlimit(kind)) for kind in resource_kinds().values())
    try:
        with open(OOM_FILE, "rb") as file:
            oom = int(file.read())
    except OSError:  # there is none
        oom = None
    return resources, os.getpriority(os.PRIO_PROCESS, 0), _cpus(), oom


def resource_kinds() -> dict[str, int]:
    """Return the resources by name, each once; but for that in which guardians leave their mark."""
    import resource

    found: dict[int, str] = {}
    for name, kind in sorted(vars(resource).items()):
        if name.startswith("RLIMIT_") and (sys.platform != "linux" or kind != RLIMIT_LOCKS):
            found.setdefault(kind, name.removeprefix("RLIMIT_").lower())
    return {name: kind for kind, name in found.items()}


def _cpus() -> int:
    """Return the processors that this process may run on, as bits; 0 if the system does not
    tell."""
    if not hasattr(os, "sched_getaffinity"):
        return 0
    return sum(1 << number for number in os.sched_getaffinity(0))


class Surroundings:
    """The environment and the folder; `umask` is None, and `limits` are NO_LIMITS, if they are
    those of this process."""

    __slots__ = ("env", "folder", "limits", "umask")

    HOMES = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    """Variables of a person's folders for settings, data and logs. Source: XDG Base Directory
    Specification."""

    def __init__(
        self,
        env: Mapping[str, str],
        folder: str,
        umask: int | None = None,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.env = env
        self.folder = folder
        self.umask = umask
        self.limits = limits

    @classmethod
    def here(cls, *, whole: bool = False) -> Surroundings:
        """Return those of this process, as they are now; the `whole` of them has its umask and its
        limits, too, and may be asked for before any other thread starts."""
        try:
            folder = os.getcwd()
        except OSError:  # it was removed
            folder = "/"
        if not whole:
            return cls(dict(os.environ), folder)
        umask = os.umask(0o077)  # it can only be read by setting it
        os.umask(umask)
        return cls(dict(os.environ), folder, umask, limits_here())

    def __repr__(self) -> str:
        return f"Surroundings(…, {self.folder!r})"  # no variables: this may be logged

    def start_alike(self, other: Surroundings) -> bool:
        """Return True if a program starts in both with the same environment, umask and limits."""
        own, its = (self.umask, self.limits), (other.umask, other.limits)
        return own == its and self.env == other.env

    def are_ours(self, folder: str) -> bool:
        """Return True if this process is in that folder, with this umask and these limits; may be
        asked for before any other thread starts."""
        here = Surroundings.here(whole=True)
        try:  # not by name: a folder that was removed has none
            is_here = os.path.samefile(os.curdir, folder)
        except OSError:
            return False
        alike = self.umask in (None, here.umask) and self.limits in (NO_LIMITS, here.limits)
        return is_here and alike

    @property
    def own_homes(self) -> tuple[str, ...]:
        """The variables of a person's folders that are other ones than those of this process."""
        return tuple(it for it in self.HOMES if self.env.get(it, "") != os.environ.get(it, ""))

    @property
    def path(self) -> str:
        """The folders in which programs are searched."""
        return self.env.get("PATH", os.defpath)

    @property
    def home(self) -> str:
        """The home folder of the person."""
        if home := self.env.get("HOME"):
            return home
        import pwd  # late: there nearly always is a HOME

        try:
            return pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return "/"

    @property
    def config_folder(self) -> str:
        """The folder of the person's settings; source: XDG Base Directory Specification."""
        return self.env.get("XDG_CONFIG_HOME") or os.path.join(self.home, ".config")

    def absolute(self, path: str) -> str:
        """Return the absolute path of what this names in the folder."""
        return os.path.normpath(os.path.join(self.folder, path))


def resolve_folder(cwd: str) -> str:
    """The canonical path of a folder: the same for `/project`, `/project/.` and links to it."""
    try:
        return os.path.realpath(cwd)
    except ValueError:  # a NUL in the path: there is no such folder
        return cwd


def is_same_folder(one: str, other: str) -> bool:
    """True if two paths name the same folder."""
    return one == other or resolve_folder(one) == resolve_folder(other)
