"""A journal that is kept in a place of your own.

Sessions are kept through eight seams, which together are a `Journal`. A class of yours that
implements them is a store. On `BaseJournal` it only keeps records, bytes under keys, with four
methods. `acphold.testing.JOURNAL_PROMISES` tests if it keeps what acphold relies on. It is opened
for URLs with a scheme that it claims:

    acphold.stores.register("mine", open_mine)
    agent.run(journal="mine://somewhere")

or, for the commands too, by an entry point of your package:

    [project.entry-points."acphold.stores"]
    mine = "my_package:open_mine"

The classes are the ones `acphold` itself uses. Experimental: they may change with any release.
"""

from __future__ import annotations

from acphold.errors import (
    AmbiguousIdError,
    HeldElsewhereError,
    IllegibleNameError,
    JournalBusyError,
    JournalUnavailableError,
    LeaseLostError,
    NewerJournalError,
    NotAJournalError,
    ReadOnlyJournalError,
    RewrittenError,
    SessionExistsError,
    TranscriptError,
)
from acphold.history.entries import Entry, PastEntry, Run, Segment
from acphold.history.fold import Summary
from acphold.journal.access import Access, AccessToken, Deed, Share
from acphold.journal.base import BaseJournal
from acphold.journal.bounds import RENEW_SECONDS, SILENT_SECONDS
from acphold.journal.journal import (
    Append,
    Arrivals,
    Entries,
    Identity,
    Journal,
    Lease,
    Links,
    Owners,
    PageBack,
    Sessions,
)
from acphold.journal.owners import At, Free, Gone, Here, Owner, Silent, Whose
from acphold.journal.records.draft import Records
from acphold.journal.rows import (
    Archived,
    Listed,
    ListFilter,
    ListKey,
    NewSession,
    Origin,
    RowChange,
    RowChanges,
    SessionRow,
)
from acphold.journal.seams import (
    Grouping,
    Index,
    InFile,
    Large,
    Part,
    Repaired,
    SearchHit,
    Sizes,
    Snapshots,
    Sought,
    Speaker,
    Tokens,
    TurnSnapshot,
    UsageSum,
    UsageSums,
)
from acphold.journal.stored_journal import ReadTranscript, Transcripts
from acphold.journal.stores import OpenStore, open_journal, register
from acphold.standing import RuleChange, StandingRule

__all__ = [
    "RENEW_SECONDS",
    "SILENT_SECONDS",
    "Access",
    "AccessToken",
    "AmbiguousIdError",
    "Append",
    "Archived",
    "Arrivals",
    "At",
    "BaseJournal",
    "Deed",
    "Entries",
    "Entry",
    "Free",
    "Gone",
    "Grouping",
    "HeldElsewhereError",
    "Here",
    "Identity",
    "IllegibleNameError",
    "InFile",
    "Index",
    "Journal",
    "JournalBusyError",
    "JournalUnavailableError",
    "Large",
    "Lease",
    "LeaseLostError",
    "Links",
    "ListFilter",
    "ListKey",
    "Listed",
    "NewSession",
    "NewerJournalError",
    "NotAJournalError",
    "OpenStore",
    "Origin",
    "Owner",
    "Owners",
    "PageBack",
    "Part",
    "PastEntry",
    "ReadOnlyJournalError",
    "ReadTranscript",
    "Records",
    "Repaired",
    "RewrittenError",
    "RowChange",
    "RowChanges",
    "RuleChange",
    "Run",
    "SearchHit",
    "Segment",
    "SessionExistsError",
    "SessionRow",
    "Sessions",
    "Share",
    "Silent",
    "Sizes",
    "Snapshots",
    "Sought",
    "Speaker",
    "StandingRule",
    "Summary",
    "Tokens",
    "TranscriptError",
    "Transcripts",
    "TurnSnapshot",
    "UsageSum",
    "UsageSums",
    "Whose",
    "open_journal",
    "register",
]
