"""Lines of `doctor` and `show` about files that are kept with conversations."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

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

SECONDS = 20.0
"""Seconds that a command waits for files to be removed from the disk."""

DAY_MS = 24 * 3600 * 1000

REFUSALS = 3
"""Reasons for missing snapshots that are named."""


def _is_off() -> bool:
    """True if the settings file has `snapshots` false for all agents. False for a broken file,
    which `doctor` reports: nothing is removed because of it."""
    try:
        return not any(snapshot_settings().values())
    except SettingsError:
        return False


async def removed_from_disk(journal: Journal) -> None:
    """Remove the files of deleted sessions within SECONDS, and say so if that is not enough."""
    try:
        async with asyncio.timeout(SECONDS):
            await tidy(journal)
    except TimeoutError:
        told = "Removing kept files takes longer; the next upkeep removes the rest."
        print(told, file=sys.stderr)


async def files_of(journal: Journal, row: SessionRow) -> list[str]:
    """Return a line about the kept files of a session; none if it has none and is not to."""
    one = (await journal.snapshots.newest([row.session_id])).get(row.session_id)
    if one is not None:
        return [on_one_line(said_of(one))]
    try:
        values = snapshot_settings()
    except SettingsError:
        return []
    its = next(
        (values[name] for name in values if name and row.agent in agent_keys(name)),
        values[""],
    )
    if not its:
        return []
    checkout = checkout_of(row.cwd)
    if program() is None:
        why = "git is not installed"
    elif is_too_high(row.cwd if checkout is None else checkout.top):
        why = "it is your home folder, or above it"
    elif checkout is None and its != "all":
        why = "its folder is in no git repository"
    else:
        why = "none of its turns ran with `snapshots` on"
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
    is_off = _is_off()
    findings = [Diagnosis(_setting())]
    if not is_off and program() is None:
        what = "git is not on PATH: no files are kept until you install it"
        findings.append(Diagnosis(what, is_past=True))
    try:
        async with opened_if_any(location) as journal:
            if journal is None:
                return findings
            stores = await stores_of(journal)
            rows = await journal.snapshots.named()
    except AcpholdError:  # reported with the journal
        return findings
    return [*findings, *_kept(stores, rows, is_off=is_off), *_refused(rows)]


def _setting() -> str:
    try:
        values = snapshot_settings()
    except SettingsError as error:
        return visible(f"not known: {error}")
    if not any(values.values()):
        return "not kept: `snapshots` is false in the settings"
    names = ", ".join(name for name in values if name and values[name])
    if values[""]:
        without = ", ".join(name for name in values if name and not values[name])
        names = f"for all agents{without and f' but {without}'}"
    return on_one_line(f"kept at the beginning and the end of each turn: {names}")


def _kept(stores: Stores, rows: list[tuple[str, TurnSnapshot]], *, is_off: bool) -> list[Diagnosis]:
    here = {store.id: store for store in stores}
    findings = []
    if here:
        total = size(sum(store.size() for store in here.values()))
        text = f"{folder(stores.folder)}: {counted(len(here), 'project')}, {total}"
        if is_off:
            text += "; `acphold doctor --repair` removes them"
        findings.append(Diagnosis(text, is_past=is_off))
    for other in relatives(stores):
        text = (
            f"{folder(other.folder)}: of a copy of this journal, or of a database that it was in "
            "before; remove the folder if that is gone"
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
    return asyncio.run(_removed(location)) if _is_off() else []


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
