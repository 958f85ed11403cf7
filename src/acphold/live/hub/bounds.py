"""Bounds of live sessions: how long they wait, and how much they keep, send and retry."""

from __future__ import annotations

from typing import Final

from acphold.journal import bounds as journal_bounds

# Updates to a client.

FIRST_PAGE_BYTES: Final = 16 * 1024
"""Bytes of the first read of a replay: small, so that the first line is there at once."""

PAGE_BYTES: Final = 1024 * 1024
"""Bytes of every further read, and of each read that looks something up."""

CALLS_LOOKED_BACK: Final = 1000
"""Entries in which the beginnings of open tool calls are looked for at first; then in more."""

CATCH_UP_BYTES: Final = 2 * 1024
"""Bytes of the first read for a client that lags; each further read doubles it. With hundreds of
sessions open, each shows something before one shows everything."""

LAG_BYTES: Final = 1024 * 1024
"""Bytes a client may leave unread before it is fed from the journal."""

APART: Final = 64
"""Most updates of one commit that are written one by one. In a flood, the client finds many in each
read anyway."""

DUE: Final = 256
"""Most of the agent's own notifications that are kept for a client that lags."""

DUE_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of these notifications."""

STUCK_SECONDS: Final = 5.0
"""Seconds that a slow client may hold up the agent, and every session with it. A client that has
not caught up by then is stuck; it is not waited for again until it has."""

LEAST_GROWTH: Final = 512
"""Fewest new characters before a text is sent again."""

# Lost connections of clients and of the journal, and the rest after a turn.

REST_SECONDS: Final = 1.0
"""Seconds after a turn before it is compacted and indexed, so not between two quick turns."""

UNNOTICED_SECONDS: Final = 60.0
"""Seconds a connection may be dead unnoticed: an ssh with keep-alives checks every half minute or
so."""

BOOKMARK_SECONDS: Final = 600.0
"""Seconds a client has to come back to its position, whoever owns the session by then.

An unsettled session is slower to load and to search, so this is not a day; a later client resumes
between two turns, or loads the session.
"""

BOOKMARK_IN_TURN_SECONDS: Final = 24 * 3600.0
"""The same for a client that lost its connection in a turn, if no turn begins after
BOOKMARK_SECONDS: a lid closed on a long task is opened the next morning."""

LONG_PROMPT_BYTES: Final = 1 << 20
"""A prompt of this size is sent in one step of the loop, and committed in another."""

PAUSE_SECONDS: Final = journal_bounds.TRUSTED_SECONDS - 5.0
"""Seconds without contact after which its agents are stopped: that takes up to three."""

OUTAGE_LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at what is due while a journal is out of reach."""

AGAIN_SECONDS: Final = 10.0
"""An outage that begins within so many seconds after another one is the same."""

SETTLING_AT_ONCE: Final = 32
"""Sessions settled at the same time: the journal has one thread for that, and searches and the
event loop must not wait for hundreds."""

# Terminals, and the calls that show them.

TERMINAL_IDS: Final = 4096
"""Most terminals of a session whose ids and owners are remembered; older ones are forgotten. Agents
no longer mention them."""

TERMINAL_TEXTS: Final = 64
"""Most terminals of a session, or calls with one of the agent's own, whose output is remembered;
older ones are forgotten."""

TERMINAL_CALLS_BYTES: Final = 1024 * 1024
"""Most bytes of tool calls with terminals remembered in a turn; older ones are forgotten."""

LAST_OUTPUT_SECONDS: Final = 2.0
"""Seconds the client has to report a terminal's output before the terminal is released anyway."""

# Sessions that are opened.

OPENED_AT_ONCE: Final = 8
"""Clients let in, and sessions made live, in one pass of the event loop. Each takes half a
millisecond; hundreds at once would stall those who have a session open."""

LOAD_SECONDS: Final = 25.0
"""Seconds that `session/load` waits, after the replay, for the agent to open the session too.

The history is shown in any case; the next prompt keeps waiting, or tries again and reports.
"""

REOPEN_SECONDS: Final = 60.0
"""Seconds an agent has to open a session again in one way, before the next way is tried."""

QUIET_SECONDS: Final = 1.0
"""A replay is over so long after its last update, and after the answer."""

REPLAY_SECONDS: Final = 5.0
"""A replay that is not over so long after the answer leaves the agent's memory in doubt; a prompt
waits no longer."""

SETTING_SECONDS: Final = 10.0
"""Seconds an agent has to set one mode or option again; after that it goes on without."""

RESTORATIONS: Final = 2
"""Times a session is restored if, meanwhile, the agent restarts or a client opens the session with
another setup."""

ADOPT_SECONDS: Final = 120.0
"""Seconds an agent has to replay a session of its own: some take long for a long history."""

EARLY_BYTES: Final = 1024 * 1024
"""Most bytes of updates kept for sessions that are not known yet; beyond it they are dropped."""

CAPTURED_BYTES: Final = 16 * 1024 * 1024
"""Most bytes at the end of an agent's replay that are kept: turns that ran outside of acphold are
taken from there."""

CLEARINGS: Final = 64
"""Newest clearings of a session that are read; the last one that was shown counts."""

AHEAD_MS: Final = 5000
"""Milliseconds by which the agent's list must be ahead of our last entry: some agents write a title
after a turn."""

OTHER_IDS: Final = 3
"""Sessions of the agent's own, at most, that are loaded to find what it kept of a cleared one."""

CLOSED_SESSIONS: Final = 1000
"""Most ids of closed sessions, and of their sub-agents, whose late updates are known as such."""

SESSION_ID_CHARACTERS: Final = 1000
"""Most characters of an agent's id of a session: it is in every message about it."""

# Sessions that are closed.

AGENT_CLOSE_SECONDS: Final = 10.0
"""Seconds an agent has to answer `session/close` and `session/delete`; we go ahead anyway."""

TURNS_CLOSE_SECONDS: Final = 1.0
"""Seconds that turns have to end when the session is closed: a person who closes an editor does not
wait longer."""

QUESTIONS_CLOSE_SECONDS: Final = 2.0
"""Seconds to wait for the ends of questions to be journalled when their session is closed."""

CATCH_UP_CLOSE_SECONDS: Final = 2.0
"""A session that is closed waits so long for clients that lag: what they wait for is answered
then."""

SETTLE_CLOSE_SECONDS: Final = 1.0
"""Seconds to compact and index the last entries when the session is closed."""

# The conversation that is handed over to an agent.

CONTEXT_BYTES: Final = 96 * 1024
"""Most bytes of earlier conversation that are handed over: about 25,000 tokens."""

PROMPT_BYTES: Final = 72 * 1024
"""Most bytes of prompts in it, so that there is room for the results of the last one."""

LEAST_PROMPT_BYTES: Final = 128
"""Bytes that stay of the longest prompts if all must be shortened; if that is not enough, the
oldest are left out."""

TOOL_BYTES: Final = 2 * 1024
"""Bytes of the result of one tool call: enough to see the outcome."""

DIFF_BYTES: Final = 64 * 1024
"""Bytes of a file whose changed lines are quoted; a longer file is only said to have changed."""

# The list of sessions.

LIST_PAGE: Final = 50
"""Most sessions in one page of the list."""

AGENT_LIST_SECONDS: Final = 3.0
"""Seconds the agent has to list its own sessions; after that the list is shown without the rest."""

UNSURE_SECONDS: Final = 60.0
"""Seconds in which an agent's list may lose a change of ours that it has shown already."""

AGENT_SESSIONS: Final = 5000
"""Most of the agent's own sessions that are listed."""

FRESH_LIST_SECONDS: Final = 5.0
"""Seconds for which the agent's list is trusted when a session is opened: editors list, then
load."""

AGENT_LISTS: Final = 8
"""Most folders for which the agent's own sessions are kept at once."""

TITLES_STEP_SECONDS: Final = 0.005
"""Seconds spent on the titles of live sessions in one step of the event loop; there may be many."""

TOUCH_MS: Final = 1000
"""Milliseconds in which further prompts do not move the session up in the list again: see
`ListedRow.prompt_change`."""

# Waiting prompts, and turns that a limit ended.

CLOCK_LOOK_SECONDS: Final = 20.0
"""Most seconds between two looks at the clock while a prompt waits for a moment: the machine may
sleep, and its clock be set."""

EDITOR_SECONDS: Final = 60.0
"""A queued prompt stands as before once the client that edits it has been gone so long."""

QUEUE_RETRY_SECONDS: Final = 5.0
"""Seconds until a queued prompt that the journal could not take is tried again."""

INTERJECTIONS: Final = 8
"""Newest interjections that are recognised when the agent sends them back."""

CONTINUED_A_DAY: Final = 5
"""Times that a session goes on by itself within a day, if it keeps reaching the limit."""

LIMIT_ENTRIES: Final = 500
"""Entries at the end of a turn that are searched for the agent's report of a limit."""

EARLIEST_AFTER_RESET_SECONDS: Final = 60.0
"""Fewest seconds after the reset of a limit until a session goes on by itself."""

LATEST_AFTER_RESET_SECONDS: Final = 300.0
"""Most seconds. The moment is random between the two, so that not all clients come at once."""

RULES_LOOK_SECONDS: Final = 5.0
"""Seconds that rules may look at a session's folder for one question; then a person is asked."""

# Snapshots of the files, and the stores that keep them.

NO_WORK_TREE_SECONDS: Final = 2.0
"""Seconds for which folders without a work tree are not looked at again. The look takes as long as
all the rest that a prompt costs here, and only a script makes a repository and prompts so soon."""

SNAPSHOTS_AT_ONCE: Final = 2
"""Snapshots taken at one time."""

LAST_SNAPSHOTS_SECONDS: Final = 0.5
"""Seconds that the last snapshots may take when the process ends."""

SNAPSHOT_AGE_MS: Final = 30 * 24 * 3600 * 1000
"""Age at which snapshots are dropped, except for those of a session's first and last turn."""

CLOCK_JUMP_SECONDS: Final = 15 * 24 * 3600.0
"""A clock that is so far ahead of the last upkeep may be wrong: no snapshot is dropped for its age
until the next upkeep."""

SNAPSHOT_STORE_BYTES: Final = 2 << 30
"""Size of a store in bytes; above it, the oldest snapshots are dropped."""

STORE_UPKEEP_SECONDS: Final = 600.0
"""Seconds that the upkeep of one store may last."""

UPKEEP_EVERY_SECONDS: Final = 24 * 3600.0
"""Seconds between two times of upkeep, unless a store is full."""

STORES_COPY_SECONDS: Final = 60.0
"""Seconds that a copied journal may take to link the stores of its original."""

# A session that moves to another machine.

MOVE_SILENCE_SECONDS: Final = 120.0
"""Seconds without a frame after which the other side is given up."""

MOVE_WORK_SECONDS: Final = 1500.0
"""The same while it reads files or lays them out."""

MOVE_LINE_BYTES: Final = 256 << 20
"""Longest line: one entry may be a large picture, and base64 adds a third."""

PACK_PIECE_BYTES: Final = 256 << 10
"""Bytes of files in one frame."""

MOVED_ENTRIES_BYTES: Final = 2 << 30
"""Most bytes of entries that are accepted in one move."""

STORE_SEARCH_SECONDS: Final = 60.0
"""Seconds to find the store of a project."""

EARLIER_SNAPSHOTS: Final = 1000
"""Newest snapshots of earlier turns that move with a session."""

REMAINS_ROWS: Final = 1000
"""Rows of sessions that are read at once to find out who works in a folder."""

KNOWN_SESSIONS: Final = 1000
"""Newest sessions whose folders are searched for a clone of the project."""

TITLE_LOOKS_SECONDS: Final = (0.5, 4.0)
"""Seconds before each look for a title in the agent's own list, after a first turn."""

PLACES: Final = 64
"""Other places from which processes came, of which the names are known."""

TITLED_BYTES = 4096
"""Most bytes of a first turn that the person's command gets to make a title of."""

READ_FOR_TITLE = 32_768
"""Characters of it that are redacted for that."""
