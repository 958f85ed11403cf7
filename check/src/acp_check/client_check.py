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


class ClientCheck:
    """One run: the record so far. Without `files` the report goes to stderr, at the end. `offers`
    names the capabilities that are advertised, `next` those of the next start."""

    def __init__(
        self,
        checks: Sequence[Check],
        expected: frozenset[str],
        fail_on: Level,
        files: ReportFiles,
        as_json: bool,
        offers: str,
    ) -> None:
        self._checks = checks
        self._expected = expected
        self._fail_on = fail_on
        self._files = files
        self._as_json = as_json
        self._offers = next_offers() if offers == "next" else offers
        if offers == "next":
            print(f"acphold check: advertising {self._offers!r} this time", file=sys.stderr)
        self._record = Record("the client", {})
        self._began = time.monotonic()

    def run(self) -> int:
        """Serve until the client leaves or we are told to end; returns the exit code."""
        self._write()  # an unwritable file is reported before an editor is started
        asyncio.run(self._serve())
        outcome = self._write()
        if not self._files:
            text = json_report(outcome) if self._as_json else text_report(outcome)
            # Stdout is the protocol's.
            print(text, end="", file=sys.stderr, flush=True)
        return CheckExit.OK if outcome.is_good else CheckExit.ERROR

    async def _serve(self) -> None:
        watcher = Watcher(
            stdio_transport(),
            Memory(),
            self._record,
            self._write,  # a check that is killed has reported all turns before its end
            self._offers,
        )
        serving = asyncio.ensure_future(watcher.serve())
        # Editors end agents by SIGTERM as well, some without closing stdin first.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving

    def _write(self) -> CheckOutcome:
        seconds = time.monotonic() - self._began
        report = report_on(self._checks, self._record, seconds)
        outcome = CheckOutcome(report, self._expected, self._fail_on)
        self._files.write(outcome)
        return outcome
