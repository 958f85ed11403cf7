"""How long the live sessions wait, and how much of them is kept, sent and tried again."""

from __future__ import annotations

from typing import Final

from acphold.journal import bounds as journal_bounds

# What a client is sent.

FIRST_PAGE_BYTES: Final = 16 * 1024
"""Bytes of the first read of a replay: small, so that the first line is there at once."""

PAGE_BYTES: Final = 1024 * 1024
"""Bytes of every further read, and of each read that looks something up."""

CATCH_UP_BYTES: Final = 2 * 1024
"""Bytes of the first read for a client that lags; each further read doubles it. With hundreds of
sessions open, each shows something before one shows everything."""

LAG_BYTES: Final = 1024 * 1024
"""Bytes a client may leave unread before it is fed from the journal."""

APART: Final = 64
"""Most updates of one commit that are each written by themselves. Of a flood, the client finds many
in each read in any case."""

DUE: Final = 256
"""Notifications of the agent's own that are kept for a client that lags."""

DUE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the notifications that are kept for it."""

STUCK_SECONDS: Final = 5.0
"""Seconds that a slow client may hold up the agent, and every session with it. A client that has
not caught up by then is stuck; it is not waited for again until it has."""

LEAST_GROWTH: Final = 512
"""Fewest new characters before a text is sent again."""

# A client or a journal that was lost, and the rest after a turn.

REST_SECONDS: Final = 1.0
"""Seconds of rest after a turn before it is compacted and indexed: not between two quick turns."""

UNNOTICED_SECONDS: Final = 60.0
"""Seconds a connection may be dead unnoticed: an ssh with keep-alives checks every half minute or
so."""

BOOKMARK_SECONDS: Final = 600.0
"""Seconds a client has to come back to its position, whoever owns the session by then.

An unsettled session is slower to load and to search, so this is not a day; a later client resumes
between two turns, or loads the session.
"""

BOOKMARK_IN_TURN_SECONDS: Final = 24 * 3600.0
"""Seconds it has if its connection was lost in a turn, and no turn begins after BOOKMARK_SECONDS: a
lid closed on a long task is opened the next morning."""

TRUSTED_SECONDS: Final = journal_bounds.SILENT_SECONDS - journal_bounds.RENEW_SECONDS
"""Seconds without contact to the journal in which an owner trusts that its sessions were not
taken."""

SETTLING_AT_ONCE: Final = 32
"""Sessions settled at the same time: the journal has one thread for that, and neither searches nor
the event loop must wait for hundreds."""

# Terminals, and the calls that show them.

TERMINAL_OWNERS: Final = 4096
"""Most terminals whose owner is remembered; older ones are forgotten. Agents no longer mention
them."""

SESSION_TERMINALS: Final = 64
"""Most terminals of a session that are remembered; older ones are forgotten."""

TERMINAL_CALLS_BYTES: Final = 1024 * 1024
"""Most bytes of tool calls with terminals remembered in a turn; older ones are forgotten."""

LAST_OUTPUT_SECONDS: Final = 2.0
"""Seconds the client has to report a terminal's output before it is released all the same."""

AGENT_TERMINAL_CALLS: Final = 64
"""Most calls with terminals that only the agent shows whose output is remembered; older ones are
forgotten."""

ANNOUNCED_TERMINALS: Final = 4096
"""Most announced terminals that are remembered; older ones are forgotten."""

# Sessions that are opened.

OPENED_AT_ONCE: Final = 8
"""Clients let in, and sessions made live, in one pass of the event loop. Each takes half a
millisecond; hundreds at once would stall those who have a session open."""

LOAD_SECONDS: Final = 25.0
"""Seconds that `session/load` waits, behind the replay, for the agent to open the session too.

The history is shown all the same; the next prompt waits on, or tries again and reports.
"""

REOPEN_SECONDS: Final = 60.0
"""Seconds an agent has to open a session again in one way, before the next way is tried."""

SETTING_SECONDS: Final = 10.0
"""Seconds an agent has to set one mode or option again; it goes on without."""

RESTORATIONS: Final = 2
"""Times a session is restored if the agent is restarted in the middle of it, or a client opens it
with another setup."""

ADOPT_SECONDS: Final = 120.0
"""Seconds an agent has to replay a session of its own: some read a long history for a long time."""

ADOPTED_ELSEWHERE_SECONDS: Final = 30.0
"""Seconds another process may take to adopt the same session before we give up."""

ADOPTIONS: Final = 10
"""Times an adoption is started while other processes start, or give up, the same one."""

ADOPTED_LOOK_SECONDS: Final = 0.1
"""Seconds between looks at whether another process has adopted it: it cannot call us."""

EARLY_BYTES: Final = 1024 * 1024
"""Most bytes of updates kept for sessions that are not known yet; beyond it they are dropped."""

CAPTURED_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of an agent's replay that are kept to look for turns that ran outside of acphold; a
longer one is not searched."""

AHEAD_MS: Final = 5000
"""Milliseconds by which the agent's list must be ahead of our last entry: some write a title behind
a turn."""

# Sessions that are closed.

AGENT_CLOSE_SECONDS: Final = 10.0
"""Seconds an agent has to answer `session/close` and `session/delete`; here it is done anyway."""

TURNS_CLOSE_SECONDS: Final = 1.0
"""Seconds that turns have to end when the session is closed: a person who closes an editor does not
wait longer."""

QUESTIONS_CLOSE_SECONDS: Final = 2.0
"""Seconds to wait for the ends of questions to be journalled when their session is closed."""

SETTLE_CLOSE_SECONDS: Final = 1.0
"""Seconds to compact and index what has come when the session is closed."""

# The conversation that is handed over to an agent.

CONTEXT_BYTES: Final = 96 * 1024
"""Most bytes of earlier conversation that are handed over: about 25,000 tokens."""

PROMPT_BYTES: Final = 72 * 1024
"""Most bytes of prompts in it, so that there is room for what came of the last."""

LEAST_PROMPT_BYTES: Final = 128
"""Bytes that stay of the longest prompts if all must be shortened; beyond that the oldest are left
out."""

TOOL_BYTES: Final = 2 * 1024
"""Bytes of the result of one tool call: enough to see what came of it."""

DIFF_BYTES: Final = 64 * 1024
"""Bytes of a file whose changed lines are quoted; of a longer file it only says that it changed."""

# The list of sessions.

LIST_PAGE: Final = 50
"""Most sessions in one page of the list."""

AGENT_LIST_SECONDS: Final = 3.0
"""Seconds the agent has to list its own sessions; after that the list is shown without the rest."""

AGENT_SESSIONS: Final = 5000
"""Most of the agent's own sessions that are listed."""

FRESH_LIST_SECONDS: Final = 5.0
"""Seconds for which the agent's list is trusted when a session is opened: editors list, then
load."""

AGENT_LISTS: Final = 8
"""Most folders for which the agent's own sessions are kept at once."""

TITLES_STEP_SECONDS: Final = 0.005
"""Seconds of one step of the event loop that look at titles of live sessions; there may be many."""

TOUCH_MS: Final = 1000
"""Milliseconds in which further prompts do not move the session up in the list again: see
`ListedRow.prompt_change`."""

# Prompts that wait, and turns that a limit ended.

CLOCK_LOOK_SECONDS: Final = 20.0
"""Most seconds between two looks at the clock while a prompt waits for a moment: the machine may
sleep, and its clock be set."""

INTERJECTIONS: Final = 8
"""Newest interjections that are recognised when the agent sends them back."""

CONTINUED_A_DAY: Final = 5
"""Times that a session goes on by itself within a day, if the limit comes again and again."""

LIMIT_ENTRIES: Final = 500
"""Entries at the end of a turn in which an agent tells of the limit."""

EARLIEST_AFTER_RESET_SECONDS: Final = 60.0
"""Fewest seconds after the reset of a limit until a session goes on by itself."""

LATEST_AFTER_RESET_SECONDS: Final = 300.0
"""The most; it is a moment at random between these, so that not all clients come at once."""

# Snapshots of the files, and the stores that keep them.

SNAPSHOT_HOLD_SECONDS: Final = 0.3
"""Seconds that a prompt waits for its snapshot."""

SNAPSHOTS_AT_ONCE: Final = 2
"""Snapshots taken at one time."""

LAST_SNAPSHOTS_SECONDS: Final = 5.0
"""Seconds that the last snapshots may take when the process ends."""

REFUSALS: Final = 2
"""Refusals in a row, for what is in it, after which a folder is left alone until the next start."""

SNAPSHOT_AGE_MS: Final = 30 * 24 * 3600 * 1000
"""Age at which snapshots are dropped, except for those of a session's first and last turn."""

SNAPSHOT_STORE_BYTES: Final = 2 << 30
"""Bytes of a store from which on its oldest snapshots are dropped."""

STORE_UPKEEP_SECONDS: Final = 600.0
"""Seconds that the upkeep of one store may last."""

UPKEEP_EVERY_SECONDS: Final = 24 * 3600.0
"""Seconds between two times of upkeep, unless a store is full."""

STORES_COPY_SECONDS: Final = 60.0
"""Seconds that a journal that is a copy may take to link the stores of its original."""

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
"""Seconds that finding the store of a project may take."""

KNOWN_SESSIONS: Final = 1000
"""Newest sessions in whose folders a clone of the project is looked for."""
