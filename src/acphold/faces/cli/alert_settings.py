"""The table `[alerts]` of the settings file, read when it is needed, at most once a second.

[alerts]
on_waiting = ["sh", "-c", 'notify-send "$ACPHOLD_TITLE" "$ACPHOLD_QUESTION"']
waiting_seconds = 20
on_turn_end = ["sh", "-c", 'notify-send "$ACPHOLD_TITLE" "$ACPHOLD_OUTCOME"']
turn_seconds = 60
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from time import monotonic
from typing import Final

from acp_wire.surroundings import Surroundings
from acphold.errors import SettingsError
from acphold.faces.cli import bounds
from acphold.live.hub.alerts import Alert, AlertRules
from acphold.live.server.alert_commands import AlertCommands

log = logging.getLogger(__name__)

COMMANDS: Final = ("on_waiting", "on_turn_end")
SECONDS: Final = ("waiting_seconds", "turn_seconds")

NONE: Final = AlertRules()


def alert_rules(settings: Mapping[str, object], path: str) -> AlertRules:
    """Return the alert rules of the file; raises SettingsError with file and key."""
    from acphold.faces.cli.settings import command_words, near_to, table_of

    table, place = table_of(settings, "alerts", path), f"{path}: [alerts]"
    for key in table:
        if key not in (*COMMANDS, *SECONDS):
            meant = near_to(key, (*COMMANDS, *SECONDS))
            raise SettingsError(f"{place} has an unknown key {key!r}{meant}")
    waiting, turn_end = (
        command_words(table[key], place, key) if key in table else () for key in COMMANDS
    )
    return AlertRules(
        waiting,
        _seconds(table.get("waiting_seconds", NONE.waiting_seconds), f"{place} waiting_seconds"),
        turn_end,
        _seconds(table.get("turn_seconds", NONE.turn_seconds), f"{place} turn_seconds"),
    )


def _seconds(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise SettingsError(f"{place}: a number of seconds is required, such as 20")
    return float(value)


class AlertFile(AlertCommands):
    """Alerts by the rules of the file, for sessions of this journal; commands run `within` these
    surroundings, by default ours.

    The rules are those of a moment ago; a file that has not changed is not read again.
    """

    def __init__(
        self, journal: str | os.PathLike[str] | None, within: Surroundings | None = None
    ) -> None:
        super().__init__(Surroundings.here() if within is None else within)
        self._journal = journal
        self._look_at = 0.0
        self._path: str | None = None
        self._seen: tuple[int, ...] | None = None
        self._read = NONE
        self._rules = NONE

    # Both import late: an editor waits for this module's imports.

    def agent_name(self, alert: Alert) -> str:
        from acphold.faces.cli.settings import agent_name

        return agent_name(alert.agent)

    def link(self, alert: Alert) -> str:
        """Return the address on the page of the server that serves the journal on this machine."""
        from urllib.parse import quote

        from acphold.record.journal.stores import journal_name
        from acphold.web.running_servers import running

        if not (servers := running(journal_name(self._journal))):
            return ""
        place = f"@{alert.seq}" if alert.seq else ""
        return f"{servers[-1].url}/#/session/{quote(alert.session_id, safe='')}{place}"

    def rules(self) -> AlertRules:
        now = monotonic()
        if now < self._look_at:
            return self._rules
        if self._path is None:  # found once: the rules are asked for at every turn
            from acphold.faces.cli.settings import settings_path  # an editor waits for ours

            self._path = settings_path()
        try:
            found = os.stat(self._path)
        except OSError:  # nearly always: there is none
            self._rules = NONE
        else:
            seen = (found.st_ino, found.st_size, found.st_mtime_ns)
            if seen != self._seen:
                self._seen, self._read = seen, _read(self._path)
            self._rules = self._read
        self._look_at = now + bounds.ALERT_RULES_SECONDS
        return self._rules


def _read(path: str) -> AlertRules:
    from acphold.faces.cli.settings import read_settings

    try:
        return alert_rules(read_settings(path) or {}, path)
    except SettingsError as error:
        log.warning("no alerts: %s", error)
        return NONE
