"""The check of a client as a command: it acts as an agent until the client leaves."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from acp_check.checks import Check
from acp_check.errands import Memory
from acp_check.record import Record
from acp_check.report import CheckOutcome, text_report
from acp_check.report_files import ReportFiles, json_report
from acp_check.usage import OFFERS, CheckExit
from acp_check.verdicts import Level
from acp_check.watcher import Watcher, report_on
from acp_wire.state_folder import state_folder
from acp_wire.transports.stdio import stdio_transport

LAST_OFFERS = "check-offers"
"""The file in the folder for state that has the capabilities of the last start with `next`."""


def next_offers() -> str:
    """Return the name of the capabilities behind those of the last start, and note it; OSError."""
    names = (*OFFERS, "all")
    path = os.path.join(state_folder(), LAST_OFFERS)
    os.makedirs(state_folder(), 0o700, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # an editor may start two at once
        file.seek(0)
        last = file.read()
        name = names[(names.index(last) + 1) % len(names)] if last in names else names[0]
        file.truncate(0)
        file.write(name)
    return name


def check_client(
    checks: Sequence[Check],
    expected: frozenset[str],
    fail_on: Level,
    files: ReportFiles,
    *,
    as_json: bool,
    offers: str,
) -> int:
    """Serve until the client leaves or we are told to end; return the exit code.

    Without `files` the report goes to stderr, at the end. `offers` names the capabilities that are
    advertised, `next` those of the next start.
    """
    if offers == "next":
        offers = next_offers()
        print(f"acphold check: advertising {offers!r} this time", file=sys.stderr)
    record, began = Record("the client", {}), time.monotonic()

    def write() -> CheckOutcome:
        report = report_on(checks, record, time.monotonic() - began)
        outcome = CheckOutcome(report, expected, fail_on)
        files.write(outcome)
        return outcome

    async def serve() -> None:
        # A check that is killed has reported all turns before its end.
        watcher = Watcher(stdio_transport(), Memory(), record, write, offers)
        serving = asyncio.ensure_future(watcher.serve())
        # Editors end agents by SIGTERM as well, some without closing stdin first.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving

    write()  # an unwritable file is reported before an editor is started
    asyncio.run(serve())
    outcome = write()
    if not files:
        text = json_report(outcome) if as_json else text_report(outcome)
        # Stdout is the protocol's.
        print(text, end="", file=sys.stderr, flush=True)
    return CheckExit.OK if outcome.is_good else CheckExit.ERROR
