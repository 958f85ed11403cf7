"""The waits, sizes and counts that limit a check, in one place."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

# -- the agent: its start, its answers, its turns and its end -----------------------------------

CASE_TIMEOUTS = 12
"""Longest time for a case, in answer timeouts.

Each of its waits has its own limit; this is for an agent that uses up all of them.
"""

START_TIMEOUTS = 3
"""Longest time to start, in answer timeouts: some programs load for long."""

TURN_TIMEOUTS = 3
"""Longest time for a turn, in answer timeouts: a model thinks."""

CANCELLED_TURN_SECONDS = 5.0
"""Seconds for an agent to end a cancelled turn before people think it is not listening."""

CANCEL_ATTEMPTS = 3
"""Turns started in order to cancel one: a turn may end by itself just then, but not three in a
row."""

COMMAND_SECONDS = 3
"""Seconds that the command runs before it leaves a trace."""

AGENT_END_SECONDS = 5.0
"""Longest time for a process to end by itself."""

PROCESS_LOOK_SECONDS = 0.05
"""Seconds between two looks for processes that a program left running; each look reads /proc."""

# -- the agent: requests to it -------------------------------------------------------------------

FLOOD_REQUESTS = 1000
"""Requests sent without reading: their answers exceed a pipe's buffer (64 KiB)."""

STREAM_PERMISSIONS = 20
"""Permissions that are answered in one conversation over HTTP."""

OVERTAKEN_SECONDS = 0.5
"""Seconds that the answer to an earlier request may still take: requests are answered in any
order."""

LIST_PAGES = 30
"""Pages of a list that are read: a user may have thousands of sessions."""

EMPTY_PAGES = 20
"""Pages in a row without any session, in a list of all, after which there is no end."""

PAGE_SESSIONS = 1000
"""Most sessions on a page: the protocol does not define a reasonable size, but people do not look
through more."""

DOZEN = 12
"""Sessions that are made so that a list may have pages."""

LIST_TIME_SECONDS = 1.5
"""Seconds between two changes of a session, so that a list in whole seconds shows both."""

CLOCK_OFFSET = timedelta(minutes=30)
"""Longer than a check takes, and shorter than the offset of most time zones."""

# -- the MCP servers that the agent is given ----------------------------------------------------

CALLING_TURNS = 2
"""Turns that ask for the tool of a server, before an agent counts as not connected to it."""

STREAM_LOOK_SECONDS = 0.5
"""Seconds between two checks of an open stream for the server's end."""

LOG_LOOK_SECONDS = 0.05
"""Seconds between two looks at a server's log."""

SERVER_END_SECONDS = 5.0
"""Seconds for a server to end by itself, and to be ended."""

# -- the client, when that is checked -----------------------------------------------------------

ANSWER_SECONDS = 60.0
"""Seconds for a client to answer a question without a person."""

PERSON_SECONDS = 1800.0
"""Seconds for a question to a person, who may be away for a while."""

CANCELLED_ANSWER_SECONDS = 5.0
"""Seconds for a client's answers once it has cancelled the turn."""

TERMINAL_SECONDS = 5.0
"""Seconds for a terminal to be made; its command runs for twice as long: clients give up a turn."""

MOMENT_SECONDS = 0.5
"""Seconds that other commands take."""

FENCE_SECONDS = 8.0
"""Seconds for a client to answer a request that only checks if it still answers: less than clients
wait for a turn in which nothing happens.
"""

ANSWER_DELAY_SECONDS = 0.2
"""Seconds before an answer, to find clients that do not wait for it."""

LATE_COMMAND_SECONDS = 1
"""Seconds after which a command leaves a trace."""

TRACE_SECONDS = 2.0
"""Seconds after the release of its terminal in which a command that still runs leaves its trace."""

CANCEL_LOOK_SECONDS = 0.03
"""Seconds between two checks whether the turn of a running command was cancelled."""

COUNT_SECONDS = 0.03
"""Seconds between two counted numbers, so that the turn is long enough to cancel."""

MODEL_COUNT_SECONDS = 0.02
"""The same where the stand-in for a model counts."""

# -- kept and shown amounts ----------------------------------------------------------------------

LINE_BYTES = 64 << 20
"""Bytes kept of a line that does not end."""

STDERR_CHARS = 4 << 20
"""Characters kept of the stderr of one process; the oldest lines are dropped."""

STDERR_LINE_BYTES = 16 << 10
"""Bytes after which a line of stderr is cut in two."""

STDERR_BEFORE, STDERR_AFTER = 15, 5
"""Lines of stderr that a failure shows: the last ones before it, and those after it."""

STDERR_LATE_SECONDS = 0.5
"""Seconds that a line of stderr may come later than the line of the wire that it belongs to."""

DIFFERENCE_LINES = 12
"""Lines of each side, live and replayed, that a difference shows."""

TRACE_CHARS = 64 << 20
"""Characters of a trace; a last line says what is missing."""

TRACE_MESSAGE_CHARS = 1 << 20
"""Characters of a message in a trace; a longer one is text, cut."""

# -- the command --

TIMEOUT_SECONDS: Final = 10.0
"""The default for how long each answer may take."""

# -- the wire in reports --

EXCERPT_LINES: Final = 40
"""Lines of the wire that a failure shows: the first and the last."""

EXCERPT_CHARACTERS: Final = 4000
"""Characters shown of each of these lines."""

LINES_AROUND: Final = 6
"""Lines of the wire shown before and after each line that shows a failure."""

WIRE_LINES: Final = 600
"""Lines of the wire beside one failure."""

LINE_CHARACTERS: Final = 20_000
"""Characters shown of a line that shows a failure."""

CONTEXT_CHARACTERS: Final = 240
"""Characters shown of a line around it."""

PAGE_WIRE_CHARACTERS: Final = 12 << 20
"""Characters of the wire on a page; after these, lines are cut short."""

COMMENT_CHARACTERS: Final = 60_000
"""Characters of a report: GitHub takes comments of 65,536."""

COMMENT_FAILURE_CHARACTERS: Final = 6_000
"""Characters of the lines of one failure in such a comment."""

COMMENT_LINE_CHARACTERS: Final = 1000
"""Characters of one line in such a comment."""

SARIF_CHARACTERS: Final = 1000
"""Characters of a result's message: forges show its beginning."""

REPORT_PART = 0.15
"""The part of a time limit that is for the report: no case goes on then."""

REPORT_SECONDS = 2.0
"""At least so many seconds of a limit are for the report, or half of what the start of the command
has left; more if that start took longer."""

OBSERVATION_PART = 0.05
OBSERVATION_SECONDS = 1.0
"""The time of observers after that: a part of the time until then, and at least so many seconds."""
