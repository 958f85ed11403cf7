"""Limits on a process's use of the machine, which it passes on to all that it starts.

A process that starts programs for others gives each the limits of whoever asked for it, and keeps
none of those that it was started with itself: an editor may have lowered them for its children.
Sources: getrlimit(2), setpriority(2), sched_setaffinity(2), proc_pid_oom_score_adj(5), core(5).
"""

from __future__ import annotations

import os

from acp_wire.processes.descriptors import allow_all
from acp_wire.surroundings import OOM_FILE, Limits, limits_here, resource_kinds

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    from collections.abc import Callable

NO_LIMIT = -1
"""RLIM_INFINITY, as Python has it."""


def limiting(limits: Limits) -> Callable[[], None]:
    """Return a function that gives these limits to the process that calls it, as far as the system
    allows. It does nothing else, because it runs after a fork."""
    import resource  # here, and not in the child

    resources, niceness, cpus, oom = limits
    wanted = []
    for kind, soft, hard in resources:
        most = resource.getrlimit(kind)[1]
        wanted.append((kind, (soft, hard), (_less(soft, most), _less(hard, most))))
    allowed = _numbers(cpus)

    def limit() -> None:
        _set_share(niceness, allowed, oom)
        for kind, whole, within_ours in wanted:
            for pair in (whole, within_ours):  # only a privileged process gets more than we have
                try:
                    resource.setrlimit(kind, pair)
                    break
                except (OSError, ValueError):
                    pass

    return limit


def free_self() -> None:
    """Let this process use what the system allows it, whoever has started it: but it leaves no core
    file, which would hold the secrets of all, and keeps its stack."""
    import resource

    for kind in resource_kinds().values():
        _, hard = resource.getrlimit(kind)
        if kind == resource.RLIMIT_NOFILE:
            allow_all()
        elif kind != resource.RLIMIT_STACK:
            try:
                soft = 0 if kind == resource.RLIMIT_CORE else hard
                resource.setrlimit(kind, (soft, hard))
            except (OSError, ValueError):
                pass  # a system may allow less than it says
    _set_share(0, [*range(os.sysconf("SC_NPROCESSORS_CONF"))], 0)


def shortfalls(limits: Limits) -> tuple[str, ...]:
    """Return in words where this process may use less than one with these limits."""
    resources, niceness, cpus, oom = limits_here()
    own = {kind: hard for kind, _, hard in resources}
    names = {kind: name for name, kind in resource_kinds().items()}
    their_resources, their_niceness, their_cpus, their_oom = limits
    found = [
        f"{names[kind]} {own[kind]} instead of {'unlimited' if hard == NO_LIMIT else hard}"
        for kind, _, hard in their_resources
        if own.get(kind, hard) != hard == _more(own[kind], hard)
    ]
    is_known = their_cpus or their_oom is not None  # an earlier release does not tell it
    if is_known and niceness > their_niceness:
        found.append(f"niceness {niceness} instead of {their_niceness}")
    if their_cpus & ~cpus:
        found.append(f"{cpus.bit_count()} processors instead of {their_cpus.bit_count()}")
    if oom is not None and their_oom is not None and oom > their_oom:
        found.append(f"oom_score_adj {oom} instead of {their_oom}")
    return tuple(found)


def _set_share(niceness: int, cpus: list[int], oom: int | None) -> None:
    """Set the share of the machine, as far as this process may."""
    if oom is not None:
        try:
            descriptor = os.open(OOM_FILE, os.O_WRONLY)
            try:
                os.write(descriptor, b"%d" % oom)
            finally:
                os.close(descriptor)
        except OSError:
            pass
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
    except (OSError, AttributeError):  # macOS has none
        pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    except OSError:
        pass


def _numbers(bits: int) -> list[int]:
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def _less(one: int, other: int) -> int:
    return max(one, other) if NO_LIMIT in (one, other) else min(one, other)


def _more(one: int, other: int) -> int:
    return NO_LIMIT if NO_LIMIT in (one, other) else max(one, other)
