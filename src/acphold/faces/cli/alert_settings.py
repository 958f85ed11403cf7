"""The tables `[alerts]` and `[titles]` of the settings, read when needed, at most once a second.

[alerts]
on_waiting = ["sh", "-c", 'notify-send "$ACPHOLD_TITLE" "$ACPHOLD_QUESTION"']
waiting_seconds = 20
on_turn_end = ["sh", "-c", 'notify-send "$ACPHOLD_TITLE" "$ACPHOLD_OUTCOME"']
turn_seconds = 60

[titles]
command = ["~/bin/title"]
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Final

from msgspec.structs import replace

from acp_wire.surroundings import Surroundings
from acphold.errors import SettingsError
from acphold.faces.cli import bounds
from acphold.faces.cli.settings import (
    agent_name,
    command_words,
    near_to,
    read_settings,
    settings_path,
    table_of,
)
from acphold.live.hub.alerts import Alert, AlertRules
from acphold.live.server.alert_commands import AlertCommands

log = logging.getLogger(__name__)

COMMANDS: Final = ("on_waiting", "on_turn_end")
SECONDS: Final = ("waiting_seconds", "turn_seconds")

NONE: Final = AlertRules()


def alert_rules(settings: Mapping[str, object], path: str, home: str | None = None) -> AlertRules:
    """Return the alert rules of the file; `home` is the person's folder, by default ours. Raises
    SettingsError with file and key."""
    table, place = table_of(settings, "alerts", path), f"{path}: [alerts]"
    for key in table:
        if key not in (*COMMANDS, *SECONDS):
            meant = near_to(key, (*COMMANDS, *SECONDS))
            raise SettingsError(f"{place} has an unknown key {key!r}{meant}")
    commands: dict[str, tuple[str, ...]] = {
        key: command_words(table[key], place, key, home) for key in COMMANDS if key in table
    }
    titles, of_titles = table_of(settings, "titles", path), f"{path}: [titles]"
    for key, value in titles.items():
        if key != "command":
            raise SettingsError(
                f"{of_titles} has an unknown key {key!r}{near_to(key, ['command'])}"
            )
        commands["title"] = command_words(value, of_titles, key, home)
    seconds: dict[str, float] = {}
    for key in (key for key in SECONDS if key in table):
        value = table[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise SettingsError(f"{place} {key}: a number of seconds is required, such as 20")
        seconds[key] = float(value)
    return replace(NONE, **commands, **seconds)


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
        self._path = settings_path(
            self._surroundings
        )  # once: the rules are asked for at every turn
        self._seen: tuple[int, ...] | None = None
        self._rules = NONE

    def agent_name(self, alert: Alert) -> str:
        return agent_name(alert.agent, self._path)

    def link(self, alert: Alert) -> str:
        """Return the address on the page of the server that serves the journal on this machine."""
        from urllib.parse import quote

        from acphold.web.running_servers import running

        if not (servers := running(self._journal)):
            return ""
        place = f"@{alert.seq}" if alert.seq else ""
        return f"{servers[-1].url}/#/session/{quote(alert.session_id, safe='')}{place}"

    def rules(self) -> AlertRules:
        now = monotonic()
        if now < self._look_at:
            return self._rules
        seen = None  # nearly always: there is no file
        with suppress(OSError):
            found = os.stat(self._path)
            seen = (found.st_ino, found.st_size, found.st_mtime_ns)
        if seen != self._seen:
            rules = NONE
            try:
                if seen is not None:
                    rules = alert_rules(
                        read_settings(self._path) or {}, self._path, self._surroundings.home
                    )
            except SettingsError as error:
                log.warning("no alerts and titles: %s", error)
            self._seen, self._rules = seen, rules
        self._look_at = now + bounds.ALERT_RULES_SECONDS
        return self._rules
