"""Lines of `doctor` and `show` about files that are kept with conversations.

on      the settings file has `snapshots` true or "all" for some agent
off     [defaults] has false, and no agent true: `doctor --repair` removes what was kept earlier
unset   nothing is said for all agents: nothing is kept, and nothing is removed
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import Literal, TypeAlias

from acphold.cli.findings import Diagnosis
from acphold.cli.journals import opened_if_any
from acphold.cli.settings import agent_keys, snapshot_settings
from acphold.cli.terminal_text import age, counted, folder, on_one_line, size, visible
from acphold.errors import AcpholdError, SettingsError
from acphold.history.times import now_ms
from acphold.hub.kept_files import relatives, stores_of, tidy
from acphold.journal import Journal, SessionRow
from acphold.journal.snapshots import TurnSnapshot
from acphold.snapshots.checkouts import checkout_of
from acphold.snapshots.git import program
from acphold.snapshots.snapshot import is_too_high
from acphold.snapshots.store import Stores

SnapshotSetting: TypeAlias = Literal["on", "off", "unset"]

SECONDS = 20.0
"""Seconds that a command waits for files to be removed from the disk."""

DAY_MS = 24 * 3600 * 1000

REFUSALS = 3
"""Reasons for missing snapshots that are named."""


def wanted() -> SnapshotSetting:
    """Return the setting of the file; see the module."""
    try:
        values = snapshot_settings()
    except SettingsError:  # `doctor` reports it; nothing is removed because of a broken file
        return "unset"
    return "on" if any(values.values()) else "off" if "" in values else "unset"


async def removed_from_disk(journal: Journal) -> None:
    """Remove the files of deleted sessions within SECONDS, and say so if that is not enough."""
    try:
        async with asyncio.timeout(SECONDS):
            await tidy(journal)
    except TimeoutError:
        told = "Removing kept files takes longer; the next upkeep removes the rest."
        print(told, file=sys.stderr)


async def files_of(journal: Journal, row: SessionRow) -> list[str]:
    """Return a line on the files of a session; none if files were never kept, nor are now."""
    one = (await journal.snapshots.newest([row.session_id])).get(row.session_id)
    if one is not None:
        return [on_one_line(said_of(one))]
    try:
        values = snapshot_settings()
    except SettingsError:
        return []
    its = next(
        (values[name] for name in values if name and row.agent in agent_keys(name)),
        values.get("", False),
    )
    if not its:
        return []
    checkout = checkout_of(row.cwd)
    if program() is None:
        why = "git is not installed"
    elif is_too_high(row.cwd if checkout is None else checkout.top):
        why = "it is your home folder, or above it"
    elif checkout is None and its != "all":
        why = 'its folder is in no git repository, and `snapshots` is not "all"'
    else:
        why = "no turn has run since `snapshots` was switched on"
    return [f"files not kept: {why}"]


def said_of(one: TurnSnapshot) -> str:
    """Return the words on the newest snapshot of a session."""
    if one.state == "refused":
        return f"files not kept: {one.reason}"
    words = f"files kept, {age(one.at, now_ms())}"
    if one.state == "late":
        words += "; the agent was at work already"
    elif one.state == "later":
        words += "; taken at the next turn, because acphold had ended"
    if one.left_out_count:
        words += f"; {counted(one.left_out_count, 'file')} left out"
    return words


def checked_files(location: str | None) -> list[Diagnosis]:
    """Say where files are kept, how large they are, and why some are not."""
    return asyncio.run(_checked(location))


async def _checked(location: str | None) -> list[Diagnosis]:
    setting = wanted()
    findings = [_setting(setting)]
    if setting == "on" and program() is None:
        what = "git is not on PATH: no files are kept"
        findings.append(Diagnosis(what, "install git"))
    try:
        async with opened_if_any(location) as journal:
            if journal is None:
                return findings
            stores = await stores_of(journal)
            rows = await journal.snapshots.named()
    except AcpholdError:  # reported with the journal
        return findings
    return [*findings, *_kept(stores, rows, setting), *_refused(rows)]


def _setting(setting: SnapshotSetting) -> Diagnosis:
    match setting:
        case "on":
            values = snapshot_settings()
            names = ", ".join(name for name in values if name and values[name])
            without = ", ".join(name for name in values if name and not values[name])
            if values.get(""):
                names = f"for all agents{without and f' but {without}'}"
            text = f"kept at the beginning and the end of each turn: {on_one_line(names)}"
        case "off":
            text = "not kept: `snapshots` is false in the settings"
        case _:
            text = "not kept; `snapshots = true` in the settings keeps them (experimental)"
    return Diagnosis(text)


def _kept(
    stores: Stores, rows: list[tuple[str, TurnSnapshot]], setting: SnapshotSetting
) -> list[Diagnosis]:
    here = {store.id: store for store in stores}
    findings = []
    if here:
        total = size(sum(store.size() for store in here.values()))
        text = f"{folder(stores.folder)}: {counted(len(here), 'project')}, {total}"
        if setting == "off":
            text += "; `acphold doctor --repair` removes them"
        elif setting == "unset":
            text += "; `snapshots = false` and `acphold doctor --repair` remove them"
        findings.append(Diagnosis(text, is_past=setting != "on"))
    for other in relatives(stores):
        text = (
            f"{folder(other.folder)}: of a copy of this journal, or of a database that it was in; "
            "remove the folder if that is gone"
        )
        findings.append(Diagnosis(text, is_past=True))
    elsewhere = {its for its, one in rows if one.is_kept and one.store not in here}
    if elsewhere:
        text = f"the files of {counted(len(elsewhere), 'session')} are not on this machine"
        findings.append(Diagnosis(text, is_past=True))
    return findings


def _refused(rows: list[tuple[str, TurnSnapshot]]) -> list[Diagnosis]:
    """Name why the last snapshots of some sessions were not taken."""
    last = dict(rows)  # oldest first
    reasons = Counter((one.root, one.reason) for one in last.values() if one.state == "refused")
    return [
        Diagnosis(on_one_line(f"{folder(root)}: {why} ({counted(count, 'session')})"), is_past=True)
        for (root, why), count in reasons.most_common(REFUSALS)
    ]


def removed_files(location: str | None) -> list[Diagnosis]:
    """Remove all files that are kept, if the settings say that none are to be, and none were in the
    last day: a process that still runs may have another setting."""
    return asyncio.run(_removed(location)) if wanted() == "off" else []


async def _removed(location: str | None) -> list[Diagnosis]:
    async with opened_if_any(location) as journal:
        if journal is None:
            return []
        stores = await stores_of(journal)
        before = sum(store.size() for store in stores)
        if not before:
            return []
        kept = [one.at for _, one in await journal.snapshots.named() if one.is_kept]
        if now_ms() - max(kept, default=0) < DAY_MS:
            await tidy(journal)
            text = (
                "kept files stay: some were kept in the last day, and the process that keeps them "
                "may still run; `acphold doctor --repair` removes them a day after it has ended"
            )
            return [Diagnosis(text, is_past=True)]
        await tidy(journal, all_of_them=True)
        left = sum(store.size() for store in stores)
    text = f"kept files were removed, {size(before - left)}: `snapshots` is false"
    if left:
        text += f"; {size(left)} are in use and are removed the next time"
    return [Diagnosis(visible(text), is_past=True)]
