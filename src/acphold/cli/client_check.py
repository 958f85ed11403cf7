"""`acphold check --client`: an agent on stdio that watches its client."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from acphold.cli.check_report import Format, Outcome, rendered
from acphold.cli.command_line import Exit, UsageError
from acphold.conformance.catalogue import Check
from acphold.conformance.exemplar_turns import Memory
from acphold.conformance.record import Record
from acphold.conformance.watcher import Watcher, judged
from acphold.errors import ExportError
from acphold.exports.destination import replaced
from acphold.transports.stdio import stdio_transport


class ClientCheck:
    """One run: the record so far, and the report's `path`; None is stderr."""

    def __init__(
        self, checks: Sequence[Check], expected: frozenset[str], form: Format, path: str | None
    ) -> None:
        self._checks = checks
        self._expected = expected
        self._form = form
        self._path = path
        self._record = Record("the client", {})
        self._began = time.monotonic()

    def run(self) -> int:
        """Serve until the client leaves or we are told to end; returns the exit code."""
        if self._path is not None:
            self._write()  # an unwritable file is reported before an editor is started
        asyncio.run(self._serve())
        if self._path:
            outcome = self._write()
        else:
            outcome = self._outcome()
            # Stdout is the protocol's.
            print(rendered(outcome, self._form), end="", file=sys.stderr, flush=True)
        return Exit.OK if outcome.is_good else Exit.ERROR

    async def _serve(self) -> None:
        watcher = Watcher(stdio_transport(), Memory(), self._record, self._turn_over)
        serving = asyncio.ensure_future(watcher.serve())
        # Editors end agents by SIGTERM as well, some without closing stdin first.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving

    def _turn_over(self) -> None:
        """Write the report, so that a killed check has reported all turns before its end."""
        if self._path is not None:
            self._write()

    def _outcome(self) -> Outcome:
        seconds = time.monotonic() - self._began
        return Outcome(judged(self._checks, self._record, seconds), self._expected)

    def _write(self) -> Outcome:
        assert self._path is not None
        outcome = self._outcome()
        try:
            with replaced(self._path) as file:
                file.write(rendered(outcome, self._form))
        except ExportError as error:
            raise UsageError(f"--report: {error}") from None
        return outcome
