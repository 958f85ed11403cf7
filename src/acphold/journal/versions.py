"""Errors for journals of other releases than this one, the same for every store."""

from __future__ import annotations

from acphold.errors import JournalUnavailableError, NewerJournalError
from acphold.journal.location import NAMED_BY


def refuse_newer(found: int, known: int, where: str) -> None:
    """Raise NewerJournalError if the version `found` of a journal is newer than `known`."""
    if found > known:
        raise NewerJournalError(
            f"the journal {where} has version {found}, this release of acphold knows up to "
            f"{known}; update acphold, or name another journal ({NAMED_BY})"
        )


def refuse_newer_by_now(found: int, known: int, where: str) -> None:
    """Raise NewerJournalError if a newer release has upgraded a journal that we have open."""
    if found > known:
        raise NewerJournalError(
            f"a newer acphold has brought the journal {where} to version {found} while this one "
            f"was running, which knows up to {known}; start it again: the agent in your editor, "
            "and with `acphold stop --all` what runs in the background"
        )


def refuse_older(found: int, first: int, where: str) -> None:
    """Raise JournalUnavailableError if the version `found` of a journal is lower than `first`."""
    if found < first:
        raise JournalUnavailableError(
            f"the journal {where} has version {found}, from before acphold had a release; this one "
            f"reads journals from version {first} on; check out the commit 6a3bd479 of acphold and "
            f"run `acphold list` there, which upgrades it, or name another journal ({NAMED_BY})"
        )
