"""`python -m bench [--quick] [names...]`: print the table of figures."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

from bench.run import Run, machine, new_run
from bench.table import Figure, Table

MEASUREMENTS = (
    "last_release",
    "exact",
    "exact_processes",
    "cold_start",
    "latency",
    "throughput",
    "client",
    "clients",
    "replay",
    "listing",
    "search",
    "imports",
    "deletion",
    "growth",
    "disk",
    "commands",
    "export",
    "library",
    "many_sessions",
    "mcp_servers",
    "background",
    "editors",
    "sharing",
    "serve",
    "page",
    "notices",
    "queue",
    "kept_files",
    "postgresql",
)
"""Modules of this package, each with a function `figures`, in the order of the table; and `lacks`
where something has to be there first: it says what, and how to get it."""


FIGURE_SECONDS: Final = 900
"""The longest that a figure takes, on a busy machine, too; behind that, something hangs."""


def main() -> int:
    """Measure what was named; 1 when a figure misses its goal and --strict was given."""
    options = _options()
    modules = {name: import_module(f"bench.{name}") for name in options.names or MEASUREMENTS}
    lacking = {name: it.lacks() for name, it in modules.items() if hasattr(it, "lacks")}
    if missing := [f"bench {name}: {why}" for name, why in lacking.items() if why is not None]:
        sys.exit("\n".join(missing))
    print(machine())
    if options.quick:
        print("the goals are for the full sizes; with --quick some cannot be met")
    table = Table(sys.stdout)
    with new_run(quick=options.quick, folder=options.folder) as run:
        for module in modules.values():
            measure: Callable[[Run], Iterator[Figure]] = module.figures
            for figure in _in_time(measure(run)):
                table.add(figure)
    table.end()
    return 1 if options.strict and table.missed else 0


def _in_time(figures: Iterator[Figure]) -> Iterator[Figure]:
    """Yield these figures. TimeoutError where it waits, if one does not come."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"no figure for {FIGURE_SECONDS} s: it waits in the innermost line here")

    before = signal.signal(signal.SIGALRM, give_up)
    try:
        signal.alarm(FIGURE_SECONDS)
        for figure in figures:
            yield figure
            signal.alarm(FIGURE_SECONDS)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(MEASUREMENTS))
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--folder", type=Path, help="where journals are made: which disk")
    options = parser.parse_args()
    if unknown := set(options.names) - set(MEASUREMENTS):
        parser.error(f"no measurement {', '.join(sorted(unknown))}; see --help")
    return options


if __name__ == "__main__":
    sys.exit(main())
