"""The bounds of the journal that somebody might tune: times, sizes and counts."""

from __future__ import annotations

from typing import Final

# -- owners ---------------------------------------------------------------------------------------

RENEW_SECONDS: Final = 10.0
"""Time between two reports of an owner that it is alive."""

LATE_SECONDS: Final = 1.25 * RENEW_SECONDS
"""An owner that has not reported for this long is late."""

SILENT_SECONDS: Final = 30.0
"""An owner that has not reported for this long is silent: its sessions are free."""

TRUSTED_SECONDS: Final = SILENT_SECONDS - RENEW_SECONDS
"""Seconds without contact to the journal for which an owner trusts that nobody took its
sessions."""

SAME_CLOCK_MS: Final = 5000
"""Difference of this machine's clock to the database's that is none."""

DESERTED_SECONDS: Final = 3.0
"""An owner that seems to have ended has this long to accept a connection, if it has not."""

FORGOTTEN_SECONDS: Final = 24 * 3600
"""The record of an owner that has not reported for this long is removed."""

OWNER_FILE_TRIES: Final = 100
"""Attempts to create an owner's file that others keep locking or removing at that moment."""

# -- access ---------------------------------------------------------------------------------------

BROWSER_MS: Final = 30 * 24 * 3600 * 1000
"""A browser's session ends when the browser stays away this long."""

ENDED_TOKEN_MS: Final = 30 * 24 * 3600 * 1000
"""A token is deleted this long after its end."""

KEPT_CHANGES_SECONDS: Final = 3600
"""The log of changes knows of deletions, and of access, for this long at least; a reader that was
away for half of it reads all again. No transaction takes the other half."""

FORGOTTEN_AT_ONCE: Final = 2000
"""Rows of the log of changes that one transaction looks at to forget deleted sessions."""

ACCESS_CHANGES: Final = 1000
"""A reader that has more changes of tokens and shares ahead reads all again."""

KEPT_DEEDS: Final = 10_000
"""Deeds kept per token, the newest: a busy token never pushes out the deeds of another."""

KEPT_DEEDS_MS: Final = 400 * 24 * 3600 * 1000
"""Deeds older than this are forgotten, but for the last KEPT_DEEDS of all."""

# -- reading --------------------------------------------------------------------------------------

READ_BYTES: Final = 1 << 20
"""Bytes of history that one `read` returns at most, beyond its first segment."""

TAIL_BYTES: Final = 64 << 20
"""Bytes of unsettled history that are read at once; see `journal.history`."""

UNSETTLED_BYTES: Final = 256 << 10
"""Bytes of the unsettled end of one session that are searched, for words (indexing them takes 50
ms) and for reports on tokens."""

UNSETTLED_SESSIONS: Final = 20
"""The newest sessions whose unsettled ends are searched for words."""

COUNTED_BYTES: Final = 1 << 20
"""Bytes of an unsettled turn whose messages are counted, at most."""

CONTEXT_SEGMENTS: Final = 8
CONTEXT_ENTRIES: Final = 50
"""Limits of the search backwards for the message that the first chunk of a piece may belong to."""

BACK_SEGMENTS: Final = 16
"""Segments in one step of a walk backwards."""

SEGMENTS_BEHIND_A_TURN: Final = 64
"""Segments that may follow the end of a turn: a title, usage, and updates from opening the
session."""

SEGMENTS_OF_LAST_WORDS: Final = 16
"""Segments at the end of a session in which its last words are looked for: a message still being
written has one for each piece."""

TRANSCRIPT_SECONDS: Final = 60.0
"""Whoever needs a session waits this long for its transcript; one of 200 MB takes a third of it.
Entries read by then are kept."""

IMPORT_QUIET_SECONDS: Final = 5.0
"""An import of another process may read a transcript for this long without adding anything to the
journal. Normally it adds several pieces a second."""

IMPORT_LOOK_SECONDS: Final = 0.2
"""Time between two looks at how far the import of another process has come."""

# -- lists ----------------------------------------------------------------------------------------

SUMS_AT_ONCE: Final = 50
"""Sums of groups that are in memory unpacked, and added up together."""

FOUND_BY_WORDS: Final = 1000
"""Sessions with the words of a list that are looked up one by one. Words of more are met soon in a
walk along the list."""

IDS_AT_ONCE: Final = 500
"""Ids in one statement: SQLite before 3.32 takes 999 parameters."""

SHORT_SESSION: Final = 6
"""Messages of a short session: one prompt, and what an agent says around its tools."""

WALKED_SESSIONS: Final = 1000
"""The newest sessions among which words of a list are looked for, before an index is asked."""

DESCRIBED_AT_ONCE: Final = 500
"""Sessions whose words the upkeep of a database puts into that index in one transaction."""

AMBIGUOUS_IDS: Final = 100
"""Sessions that are counted if a prefix fits several; a list looks up many short prefixes."""

LEFT_OUT_NAMED: Final = 100
"""Left-out files that the row of a snapshot names; the others are only counted."""

# -- upkeep: settling, packing, deleting, indexing ------------------------------------------------

PIECE_BYTES: Final = 512 << 10
"""Bytes of history that one piece of work reads, and rewrites, packs, copies or removes, at most
(beyond one segment): nobody else can write meanwhile."""

PART_BYTES: Final = 64 << 10
"""Bytes of one session's history that SQLite indexes or removes at once (beyond one segment)."""

DELETED_TOGETHER: Final = 768
"""Sessions that SQLite hides at once, which takes 30 ms. Fewer would write the same pages more
often."""

DELETED_BESIDE_TURNS: Final = 16
"""The same while anybody has a session: its turns wait meanwhile."""

PIECE_BESIDE_TURNS: Final = 0.002
"""Seconds for which a piece of work holds the lock then. On a busy machine whoever works longer
without a rest is made to pause, and holds the lock meanwhile."""

OLD_MS: Final = 24 * 60 * 60 * 1000
"""Age at which a turn is old, and packed: it is rarely replayed any more."""

WORTH_PACKING_BYTES: Final = 200
"""Packing saves nothing on rows of fewer bytes."""

PACKED_ROWS: Final = 512
"""Rows that one piece of packing reads, at most."""

UNPACKED_BYTES: Final = 1 << 30
"""Rows of more bytes are not unpacked; no store keeps larger ones."""

# -- tokens and cost ------------------------------------------------------------------------------

ADDING_SECONDS: Final = 0.1
"""Time spent after a turn on sums of sessions that an earlier release has left."""

SUMMED_TOGETHER: Final = 1024
"""Numbers of sessions whose sums are kept together: a reader adds up as many in 4 ms."""

AGENTS_OF_A_BLOCK: Final = 16
"""Agents whose sums are kept apart; of more, only those of all together."""

BLOCKS_SECONDS: Final = 3600.0
"""Seconds after which a process that goes on makes outdated sums of many sessions anew."""

FEW_CURRENCIES: Final = 50
"""Sums are kept of a session with this many pairs of agents and currencies at most."""

MEASURED: Final = 10**12
"""Sums are kept of figures up to this: a million of them are still a number."""

MODEL_CHARACTERS: Final = 100
"""Characters kept of the name of a model."""

# -- search ---------------------------------------------------------------------------------------

RENEWED_TITLES: Final = 2000
"""Newest sessions of an earlier release that get a title by rule: a second of an upgrade."""

FIRST_PROMPT_BYTES: Final = 64 << 10
"""Bytes at the beginning of a session in which its first prompt is looked for."""

LEAST_BEGINNING: Final = 3
"""Letters of a word whose beginning is searched for if nothing has all words."""

QUERY_TERMS: Final = 64
"""Terms of a query that count: FTS5 refuses several hundred. If somebody pastes a page, its start
counts."""

EXCERPT_CHARACTERS: Final = 160
"""Characters of an excerpt, without the ellipses; a quarter of them before the first word found."""

PLACES_OF_A_TERM: Final = 100
"""Places of one term in one text that are considered for the best excerpt."""

# -- copies of whole journals ---------------------------------------------------------------------

COPIED_ROWS: Final = 200
"""Rows of the list that are read at once."""

# -- SQLite: locks --------------------------------------------------------------------------------

BUSY_SECONDS: Final = 5.0
"""Time to wait for another process that writes before an operation fails."""

HURRIED_SECONDS: Final = 0.1
"""The same after an operation that waited in vain."""

PIECE_SECONDS: Final = 0.01
"""Time for which a piece of work holds the lock, beyond the step it is in."""

REST_SECONDS: Final = 0.005
"""Time for which slow work leaves the lock alone after holding it for that long, at least."""

TRY_SECONDS: Final = 0.0005
"""Pause between two attempts to get the lock; several fit into a rest."""

SELDOM_SECONDS: Final = 0.005
"""The same for work that gives way."""

LOG_MODE_RETRY_SECONDS: Final = 0.01
"""Pause between two attempts to turn the write-ahead log on."""

VERIFY_MS: Final = 500
"""Appends may go into a deleted file for this long at most; a check takes 2 µs."""

RECOUNT_TRIES: Final = 5
"""Attempts to count a session that is settled meanwhile, as happens after every turn."""

# -- SQLite: the file, its cache and its log ------------------------------------------------------

CACHE_KIB: Final = 2 * 1024
"""Memory that a connection uses to cache the file, at most."""

CROWD: Final = 32
CROWD_CACHE_KIB: Final = 8 * 1024
"""The same, once more than `CROWD` sessions are written together. Each of hundreds of streaming
sessions writes to a page of its own: with 2 MiB these were read again for each piece."""

AHEAD_ENTRIES: Final = 4000
"""After so many entries that are not settled, a summary of them is kept: whoever opens the session
after a crash reads only what follows it, in some thousandths of a second."""

RESERVED_BYTES: Final = 8 << 20
"""Room that is set aside on the disk so that something can be deleted once it is full: as
much as a sweep writes that leaves one volume of words."""

CHECKPOINT_BYTES: Final = 4 << 20
"""The write-ahead log is copied into the journal file after growing by this much."""

LOG_PAGES_AT_MOST: Final = 16_384
"""Above this length (64 MiB), writes pause now and then so that the write-ahead log can start
over."""

LOG_BYTES_KEPT: Final = 16 << 20
"""The log is shortened to this after a burst; the next writes reuse it."""

CUT_BYTES: Final = 8 << 20
"""Bytes by which the log is shortened at once: nobody can write for some milliseconds."""

BLANKED_RUNS: Final = 16
"""Runs of free pages, of 256 KiB at most, that are overwritten at once: to free one takes a disk
some milliseconds, in which nobody copies the log."""

COPIED_PAGES: Final = 64
"""Pages of the log that are copied while nobody can write, at most: those of the last moment."""

COPYING_PASSES: Final = 4
"""Passes over a long log, at most, until so few are left."""

EMPTYING_TRIES: Final = 10
EMPTYING_WAIT_SECONDS: Final = 0.05
"""Attempts of a sweep to empty the log, and the pause between them: our own readers finish within
milliseconds. If all fail, the next sweep empties it."""

GATHERED_SECONDS: Final = 60.0
"""A deleted session may wait this long until its remains are removed, together with others."""

MOVED_PAGES: Final = 64
"""Pages moved in one transaction when the file gets smaller: some milliseconds."""

SHORTENED_SECONDS: Final = 2.0
"""Time spent trying to shorten the file while others read and write for milliseconds each. After
that, the next checkpoint of the log shortens it."""

WIDE_ENTRIES: Final = 1000
"""Newest entries that have one term, which are looked at when no entry has all terms."""

WIDE_CONVERSATIONS: Final = 20
"""Best conversations then, in which terms that more entries have are looked for."""

TITLE_SHARE: Final = 0.5
"""The share of its weight that a term counts more then in a title, a folder or tags."""

WIDE_ROWS: Final = 500
"""Newest sessions in whose titles, folders and tags terms are looked for then."""

HITS_OF_A_CONVERSATION: Final = 3
"""Entries of one conversation that are shown then: those with most terms."""

ENTRIES_AT_AN_END: Final = 32
"""Last entries of a session: a turn that ends has some behind its last words."""

# -- SQLite: the index of words -------------------------------------------------------------------

INDEXED_CHARACTERS: Final = 128 << 10
"""Characters indexed in one transaction (beyond one part): some milliseconds."""

INDEXED_SESSIONS: Final = 100
"""Sessions indexed in one round, at most."""

VOLUME_CHARACTERS: Final = 2 << 20
"""Characters in a volume: larger volumes slow deletions down, smaller ones slow searches down."""

VOLUME_PARTS: Final = 16
"""This many parts of about one size in a volume are merged into one: a search looks through each
part."""

MERGED_PAGES: Final = 16
"""Pages of the index merged in one step; a transaction has several steps."""

MERGE_STEPS: Final = 4
"""Merge steps in one transaction, which takes some milliseconds. Each transaction writes the page
again at which it stopped in each part."""

VOLUME_TENANTS: Final = 1_000
"""Tenants that a volume of the index names, at most; one with more is asked for every tenant."""

SHARED_LOOKED_UP: Final = 20
"""Sessions shared with a tenant whose volumes a search looks up; with more, it asks all volumes."""

SHARED_NAMED: Final = 1_000
"""Most sessions shared with one tenant that a query names, with a word each; with more, it names
none."""

SESSIONS_A_VOLUME: Final = 8
"""To look up the volumes of so many sessions takes as long as to ask one more volume."""

RANKED_HITS: Final = 10_000
"""`rank` chooses the best of this many hits, the newest, as in a database: ranking one takes some
microseconds."""

# -- PostgreSQL: connections ----------------------------------------------------------------------

CONNECT_SECONDS: Final = 5
"""Time to wait for a connection to the server."""

IDLE_SECONDS: Final = 10.0
"""Time that the server lets a transaction do nothing: a process that was stopped in one holds its
locks. What it has not committed is done again when it goes on."""

RETRY_SECONDS: Final = 5.0
"""Work is retried for this long before it fails."""

UNANSWERED_SECONDS: Final = 3.0
"""An append that has no answer for this long begins an outage, as far as people are told."""

RETRY_PAUSE_SECONDS: Final = 0.05
"""Pause between two attempts."""

QUICK_THREADS: Final = 3
"""Threads for short work."""

SLOW_THREADS: Final = 2
"""Threads for slow work."""

QUICK_SECONDS: Final = 30.0
"""Short work may take this long before its connection is cut."""

SLOW_SECONDS: Final = 600.0
"""Slow work may take this long before its connection is cut."""

UPGRADE_LOCK_SECONDS: Final = 5.0
"""Time to wait for another upgrade, and for users of a table that is changed."""

PIPELINES: Final = 8
"""Connections of one process for questions that follow each other, at most."""

PENDING_QUESTIONS: Final = 4
"""With this many questions pending on each connection, another one is opened."""

PREPARED_STATEMENTS: Final = 64
"""Statements that a connection keeps prepared; there are about a dozen."""

QUESTION_SECONDS: Final = 10.0
"""A question may wait this long before its connection is given up."""

ANNOUNCED_SECONDS: Final = 0.4
"""Time between two announcements of a process that it has changed something."""

UNHEARD_SECONDS: Final = 15.0
"""The log of changes is read this long after the last time, also if nothing was announced."""

POSITIONS: Final = 100
"""Newest positions in the log of changes whose readers are told that nothing was announced."""

UNREACHED_SECONDS: Final = 1.0
"""After a failed attempt to connect, there is no new one for this long."""

# -- PostgreSQL: rows -----------------------------------------------------------------------------

READ_ROWS: Final = 2048
"""Segments that one statement reads, at most."""

LONG_BYTES: Final = 2000
"""Longer values are packed before they are sent: the server would write them elsewhere, cut into
rows of their own. Packed, 50 pieces of a message take a fifth of the space, also in the server's
log."""

TOO_LONG_BYTES: Final = 32 << 10
"""Longer values are sent unpacked, and packed once they are old: packing one of this size takes the
event loop 0.1 ms."""

REMEMBERED_BYTES: Final = 16 << 20
"""Bytes of recent appends remembered over all sessions, the newest; a standby lags by less, or its
administrator knows."""

TAKEOVERS: Final = 10_000
"""Newest takeovers of this process that are remembered, to write again."""

DELETED_SESSIONS: Final = 50
"""Sessions deleted in one transaction: anybody who opens one of them waits for it."""

# -- PostgreSQL: the index of words ---------------------------------------------------------------

INDEXED_BYTES: Final = 256 << 10
"""Bytes of history indexed at once (beyond one segment)."""

RANKED_DOCUMENTS: Final = 10_000
"""The best are chosen from this many matching documents, the newest: all words of each are read."""

WALKED_DOCUMENTS: Final = 20_000
"""The newest documents, which are checked one by one: common words are found there at once. For
rarer words, an index is fast."""
