"""Bounds of the commands: how long they wait, and how much they read, keep and show.

The bounds of `wrap`'s thin process are in `cli/front.py`, which must import little to start
fast.
"""

from __future__ import annotations

from typing import Final

# -- waits for agents, servers and other programs --

AGENT_START_SECONDS: Final = 300.0
"""An agent may take this long to answer `initialize`, if the settings say nothing else."""

AGENT_OPEN_SECONDS: Final = 120.0
"""An agent has this long to start for a queued prompt, and again to open the session."""

AGENT_VERSION_SECONDS: Final = 3.0
"""Time for an agent to print its version; several are asked at once."""

CANCEL_SECONDS: Final = 5.0
"""`ask` waits for the end of a cancelled turn this much longer than the daemon does."""

BRIEF_END_SECONDS: Final = 10.0
"""`ask` waits this long for the end of its agent, which the daemon ends."""

LINGER_SECONDS: Final = 30.0
"""An idle agent whose editor has gone keeps running this long, if the settings say nothing else: an
editor that reloads comes back in seconds."""

SERVED_LINGER_SECONDS: Final = 600.0
"""The same for an agent behind `serve`, where people come and go."""

DAEMON_ACCEPT_SECONDS: Final = 10.0
"""Longest wait of `serve` for the daemon to accept one more client."""

SERVER_SECONDS: Final = 15.0
"""Longest wait for an answer of a server."""

SSH_END_SECONDS: Final = 10.0
"""Longest wait for an ssh to end by itself once its streams are closed."""

MOVE_END_SECONDS: Final = 10.0
"""Longest wait for the other end of a move to exit, after its connection was lost."""

TAILNET_SECONDS: Final = 10.0
"""Longest wait for Tailscale's report of its state."""

TUNNEL_SECONDS: Final = 45.0
"""Longest wait for the address of a tunnel."""

STOP_SECONDS: Final = 20.0
"""Time for a process to end: its turns get their grace, and its agent some seconds."""

COUNTED_SESSIONS: Final = 1000
"""Sessions that are counted if a list was cut."""

NAMED_AT_WORK: Final = 5
"""Sessions at work that are named before they are stopped."""

STOP_LOOK_SECONDS: Final = 0.02
"""Pause between two checks that it has ended."""

SETUP_LOCK_SECONDS: Final = 30.0
"""Longest wait for another `setup` that is writing."""

SETUP_LOCK_LOOK_SECONDS: Final = 0.05
"""Pause between two attempts to get that lock."""

FILES_GONE_SECONDS: Final = 20.0
"""A command waits this long for files to be removed from the disk."""

FIRST_BYTE_SECONDS: Final = 5.0
"""A pipe on stdin has this long to deliver something or to end: some programs pass on a pipe that
stays open for ever. With `-` as the prompt, there is no such limit."""

DEMO_SECONDS: Final = 120.0
"""Longest time for the whole demo; on an idle machine it takes some seconds."""

# -- pauses between two checks --

ALERT_RULES_SECONDS: Final = 1.0
"""The alert rules in memory may be this old: checking their file at the end of each turn took 1/30
of the turn's time."""

INBOX_LOOK_SECONDS: Final = 1.0
"""Pause between two looks for new questions."""

TRANSCRIPT_LOOK_SECONDS: Final = 0.2
"""Pause between two looks of `show --follow` into the journal: short enough to read along, and
hardly any work."""

READER_LOOK_SECONDS: Final = 1.0
"""Pause between two checks that somebody still reads a list that is followed."""

KEEP_CODE_SECONDS: Final = 2.0
"""A daemon's first editor gets this long undisturbed, before the code is kept: that takes 0.1 s of
CPU."""

SCOPE_SECONDS: Final = 1.0
"""A daemon and an agent get this long undisturbed before they are moved into a scope of systemd."""

SCOPE_ANSWER_SECONDS: Final = 10.0
"""Time for systemd to make a scope, or to answer a question."""

SCOPE_TRIES: Final = 3
"""Times that processes are moved: systemd refuses if one of them has ended meanwhile."""

LOCK_LOST_SECONDS: Final = 5.0
"""Time for another daemon to give our lock back: it finds us in the journal, unless that is not
ours any more either."""

LOCK_LOOK_SECONDS: Final = 0.1
"""Time between two tries to take it back."""

LOG_LOOK_SECONDS: Final = 10.0
"""Time between two checks of a log's length; an agent's flood is noticed before."""

DEMO_COMMAND_SECONDS: Final = 20.0
"""Longest run of a program by the demo's agent, and of git for its scratch repository."""

DEMO_OUTPUT_BYTES: Final = 64 << 10
"""Most output of a program that the demo's agent shows."""

DEMO_THOUGHT_SECONDS: Final = 1.5
"""Pause before the demo's agent does real work, as a model needs to answer: meanwhile the files are
kept as they were at the prompt."""

DEMO_WORD_SECONDS: Final = 0.02
"""Pause between two words of the demo's agent: quick to watch, slow enough to be killed in
between."""

# -- work on the side --

INDEX_STEP_SECONDS: Final = 0.5
"""Longest piece of indexing and of packing: others write in between."""

INDEX_AT_ONCE_SECONDS: Final = 2.0
"""The command waits this long for indexing; the rest is left to another process."""

BACKGROUND_IMPORT_SECONDS: Final = 900.0
"""Longest run of that process, because nobody watches it: several times as long as a gigabyte
takes."""

WATCH_QUIET_SECONDS: Final = 0.3
"""Delay after a change in an agent's folder: it writes several records at once."""

WATCH_SECONDS: Final = 60.0
"""Time between two looks at all conversations, if the system reports changes in between."""

WATCH_SHARE: Final = 0.005
"""Share of a core for looking, while nothing changes, where the system does not report changes."""

WATCH_MOST: Final = 4.0
"""Longest time between two looks there: a conversation that goes on is current within 5 s."""

WATCH_REST: Final = 2.0
"""Reading what has grown is followed by a pause this many times as long."""

IMPORT_BESIDE_SECONDS: Final = 600.0
"""Longest import beside `wrap`, because nobody watches it; the first import of 30 days takes a
minute."""

NICENESS: Final = 10
"""Priority of work on the side: it gets only the time that nothing else needs."""

FIRST_LOOK_SECONDS: Final = 2.0
"""Longest search for conversations on disk; those found by then are offered."""

SMALL_TRANSCRIPT: Final = 16 << 10
"""Bytes of a transcript that may be without a message: the first look reads those."""

OFFER_SECONDS: Final = 60.0
"""Time for which the page is told of the same conversations on disk, without another search."""

OFFERED_IMPORT_SECONDS: Final = 3600.0
"""Longest import that was begun on the page."""

REMEMBER_START_SECONDS: Final = 2.0
"""Delay before a start is remembered: first the agent and its first prompt have the machine."""

# -- sizes of files and inputs --

STDIN_BYTES: Final = 16 << 20
"""At most this much of stdin is sent; a model reads a fraction of it."""

SETTINGS_BYTES: Final = 1 << 20
"""Largest settings file; a real one has a few thousand bytes."""

EDITOR_SETTINGS_BYTES: Final = 16 << 20
"""Largest settings file of an editor; real ones have some ten thousand bytes."""

MCP_SERVERS_BYTES: Final = 1 << 20
"""Largest file of MCP servers."""

START_BYTES: Final = 1 << 20
"""Largest remembered start."""

LOG_BYTES: Final = 1 << 20
"""A longer log is started anew, with the old one kept beside it."""

TUNNEL_OUTPUT_BYTES: Final = 1 << 20
"""Most bytes that are searched of what a tunnel, or Tailscale, prints."""

# -- sessions and entries read at once --

SESSIONS_AT_ONCE: Final = 200
"""Sessions read from the journal at once."""

QUEUES_AT_ONCE: Final = 1000
"""Most sessions with queued prompts in one list."""

ENTRIES_AT_ONCE: Final = 50
"""Entries read at once, from the end of the session."""

PREVIEW_ENTRIES: Final = 200
"""Entries at the end of a session that are read for a preview."""

ANSWERED_ENTRIES: Final = 200
"""Entries at the end of a session that are searched for a question that was just answered."""

READ_TRANSCRIPTS: Final = 100
"""Most transcripts of an agent that are read to count: of more than that, some certainly hold a
conversation."""

TOKEN_DEEDS: Final = 100_000
"""Most deeds of tokens that are shown, the newest: more than a journal keeps of one token."""

# -- lists and screens --

NAMED_CHARACTERS: Final = 30
"""Characters of a title that names a session within a line."""

LISTED_SESSIONS: Final = 20
"""Sessions shown on a terminal by default: people mostly look for the newest."""

LINES_AT_ONCE: Final = 500
"""Lines of a table that are split into cells, to find how wide these are."""

FOLLOWED_SESSIONS: Final = 200
"""Sessions of a followed list shown at the beginning, unless `--limit` says otherwise."""

SEARCH_HITS: Final = 20
"""Hits of a search shown by default."""

PICKER_NEWEST: Final = 100
"""Newest sessions that the picker reads again once it has read all: they may have changed."""

FOUND_HITS: Final = 60
FOUND_SESSIONS: Final = 10
"""Hits, and sessions of them that are listed, for words that no title has."""

PICKER_HITS: Final = 20
"""Most places with the typed words that are shown below the list."""

CANDIDATES: Final = 200
"""Most candidates for completion among sessions or programs: nobody reads more."""

DECISIONS: Final = 50
"""Decisions that `inbox --history` shows by default."""

SCENES_AROUND: Final = 4
"""Scenes shown on either side of the requested one, within its turn."""

HISTORY_PASSAGES: Final = 100
"""Passages of the history that are shown: a few screens, drawn in less than half a second."""


SEARCHED_LOG_BYTES: Final = 16 << 20
"""Largest log that is searched for a text that was removed; a larger one is named."""

UNCOPIED_SESSIONS: Final = 20
"""Most incompletely copied sessions that are named; the others are counted."""

PRUNED_SESSIONS: Final = 20
"""Sessions named before `session prune` asks; `--dry-run` names all."""

REMOVED_TEXTS: Final = 40
"""Lines printed about removed text; a file gets all of them."""

OFFERED_NAMES: Final = 3
"""Names of agents in one line of the first offer."""

# -- reports of `doctor` --

LITTLE_SPACE_BYTES: Final = 64 << 20
"""With fewer bytes free on the journal's disk, it is time to make room."""

MUCH_FREE_BYTES: Final = 64 << 20
"""With more bytes free inside the file, a command to return them is worth it."""

NAMED_SESSIONS: Final = 3
"""At most this many sessions are named: damaged ones, and the largest."""

LARGE_SESSION_BYTES: Final = 1 << 20
"""Sessions with fewer bytes are not named for their size."""

BROKEN_HISTORIES: Final = 20
"""At most this many breaks of histories are reported."""

REFUSALS: Final = 3
"""Reasons for missing snapshots that are named."""

# -- answers of `mcp` to a model --

RECALLED_HITS: Final = 30
"""Most hits of one search."""

RECALL_CHARACTERS: Final = 8_000
"""Longest answer: about two thousand tokens."""

RECALLED_ENTRY_CHARACTERS: Final = 1_200
"""At most this much of an entry is quoted."""

REQUESTED_ENTRY_CHARACTERS: Final = 5_000
"""At most this much of the requested entry is quoted."""

RECALL_QUERY_CHARACTERS: Final = 1_000
"""Longest query."""

RECALL_NAME_CHARACTERS: Final = 500
"""Longest name of a place or an agent."""

RECALL_LOOK_BACK: Final = 500
"""This many entries before a place are searched for entries with text."""

PRESENT_SECONDS: Final = 3.0
"""Longest wait for the files that a question is about; a network disk may hang."""

# -- the daemon -----------------------------------------------------------------------------

BEAT_SECONDS = 10.0
"""Seconds between two signs of life, and the length of the ticks that a daemon has anyway."""

LATE_SECONDS = 2.0
"""A sign is looked for this long after it is due, and as often while it is overdue."""

AGAIN_SECONDS = 1.0
"""Pause before a front that has told its editor stands in line again, behind all others."""

WATCHDOG_SECONDS = 25.0
"""Seconds between two looks for such a sign: an idle daemon wakes seldom, and a hang is found
within a minute."""

HANG_SECONDS = 5.0
"""Seconds that the loop has to answer when there was no sign; a tick of the watchdog."""

ABORT_TICKS = 12
"""Ticks without an answer after which the process is aborted."""

DISK_TICKS = 120
"""The same for a loop that waits for the disk of the journal."""

WRITTEN_CHARACTERS: Final = 1 << 20
"""Characters of an export that are encoded and written at once."""
