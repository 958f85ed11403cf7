"""The bounds of the server: times, sizes and counts that somebody might tune, by subject."""

from __future__ import annotations

from typing import Final

from acphold.journal import bounds as journal_bounds

# -- connections ----------------------------------------------------------------------------

HEARTBEAT_SECONDS: Final = 20.0
"""Seconds between two pings over a WebSocket; the client has as long to answer. Proxies end
connections that are idle for a minute."""

AT_ONCE: Final = 16
"""Messages of a WebSocket that are taken before the event loop gets a turn."""

LOW_WATER: Final = 64 * 1024
"""Bytes queued for a client below which more is sent."""

FLUSH_SECONDS: Final = 1.0
"""Seconds that closing waits for the client to take what is queued."""

UNKNOWN_CONNECTIONS: Final = 256
"""Most unauthenticated connections."""

KNOWN_CONNECTIONS: Final = 1024
"""Most authenticated connections."""

STRANGERS_REQUESTS: Final = 200.0
"""Requests a second that are read from all unauthenticated connections together, besides the first
of each: a page load has about thirty. Each keeps users waiting for a third of a millisecond."""

STRANGERS_AT_ONCE: Final = 400
"""Most of these requests read at once after a quiet while."""

DESCRIPTORS_OF_ONE: Final = 3
"""File descriptors of an authenticated connection: its own, and two for the daemon."""

RESERVED_DESCRIPTORS: Final = 256
"""File descriptors left for journals and connections just accepted."""

ACCEPTED_AT_ONCE: Final = 16
"""Connections accepted before others get a turn.

Far fewer than the unauthenticated ones allowed: a client that sends its token with the first bytes
is known before its place is needed.
"""

BACKLOG: Final = 2048
"""Connections that the kernel queues until they are accepted."""

SILENT_CONNECTION_SECONDS: Final = 10
"""Seconds that the kernel keeps a connection on which nothing has arrived, if it can."""

PATIENCE_SECONDS: Final = 10.0
"""Seconds allowed for the first bytes of a request, and for a peer that reads nothing."""

LEAST_RATE: Final = 1024
"""Slowest allowed rate for requests and answers, in bytes a second: a tenth of a bad phone
connection's."""

SLOW_CHECK_SECONDS: Final = 1.0
"""Seconds between two checks for slow connections."""

HELD_BYTES: Final = 256 << 20
"""Bytes buffered for all connections together: incomplete messages, and unread answers."""

CLOSING_SECONDS: Final = 10.0
"""Seconds that the last data may take on a connection that is closing."""

PARTING_SECONDS: Final = 0.3
"""The same for a connection that is turned away."""

LAST_CLIENTS_SECONDS: Final = 5.0
"""Seconds to wait for clients that were told to go, when the server ends."""

# -- reading and writing --------------------------------------------------------------------

READ_BYTES: Final = 16 << 10
"""Bytes read from one connection before others get a turn."""

BODY_STEP_BYTES: Final = 256
"""Bytes of a body that are read at once, whatever is in them: room for 14 of the shortest requests
behind a shorter body."""

HEAD_BYTES: Final = 16 << 10
"""Bytes of the first line and the headers of a request."""

QUERY_BYTES: Final = 8192
"""Longest query, in bytes."""

QUERY_PARAMETERS: Final = 20
"""Most parameters of a query."""

REQUEST_BYTES: Final = 4096
"""Largest body of a request that is no message for an agent, in bytes."""

RULE_REQUEST_BYTES: Final = 65_536
"""Largest request about rules, in bytes: a rule may be a long command."""

THROWN_AWAY_BYTES: Final = 1 << 20
"""Bytes of an unwanted body that are read so that its sender reads the answer."""

MESSAGE_BYTES: Final = 16 << 20
"""Largest message from the network, in bytes.

Parsing blocks the event loop, and so every client, for a time that grows with the length.
"""

MESSAGE_PIECE_BYTES: Final = 256 << 10
"""Bytes of a long message passed on before others get a turn on the event loop."""

UNREAD_PONG_BYTES: Final = 64 << 10
"""Unread bytes above which a ping is not answered."""

ANY_CLIENT_BYTES: Final = 1 << 20
"""Largest message that every client accepts, in bytes."""

PIECE_CHARACTERS: Final = 128 << 10
"""Characters in one piece of a longer text: a character takes at most six bytes in JSON."""

# -- tokens and devices ---------------------------------------------------------------------

TRIED_COOKIES: Final = 16
"""Most cookies of our name that are tried: other servers on this host may set more of them."""

TOKENS_SECONDS: Final = 0.8
"""Seconds after which the token list is read again to admit somebody or keep them connected: with a
busy machine's delays, a revocation still acts within a second."""

AWAKE_SECONDS: Final = 0.8
"""Seconds between two notes that this process runs."""

STOOD_STILL_SECONDS: Final = 1.5
"""Without such a note for so long, messages wait until the tokens are read."""

UNREAD_SECONDS: Final = 5.0
"""Longest wait of messages for tokens that cannot be read."""

HELD_SECONDS: Final = 150
"""Time between two checks for tokens and shares that this journal holds: see `journal.access`."""

FORGET_SECONDS: Final = 3600.0
"""Time between two looks for tokens that ended long ago."""

VOUCH_SECONDS: Final = 15.0
"""Time in which an owner of a session finds, after a failover, that the journal has lost nothing:
longer than RENEW_SECONDS of `journal.bounds`."""

TOKEN_NOTE_MS: Final = 60_000
"""Milliseconds between two notes that a token is in use."""

GUESS_SECONDS: Final = 60.0
"""Seconds for which a wrong guess counts."""

GUESSES_OF_ONE: Final = 20
"""Wrong guesses in that time from one address."""

GUESSES_OF_ALL: Final = 1000
"""Wrong guesses in that time from all addresses."""

DEVICE_NAME_CHARACTERS: Final = 60
"""Characters of a device's name."""

CODE_SECONDS: Final = 600.0
"""Seconds until a pairing code expires."""

CODES_OF_ONE: Final = 16
"""Codes of one asker at a time; one more ends their oldest."""

COOKIE_SECONDS: Final = journal_bounds.BROWSER_MS // 1000
"""Seconds that a browser keeps its cookie."""

# -- the audit log --------------------------------------------------------------------------

WAITING_DEEDS: Final = 10_000
"""Deeds waiting for the journal; beyond that the oldest are dropped."""

DEED_GATHER_SECONDS: Final = 0.5
"""Seconds to collect deeds for one write.

Writing each by itself would cost every prompt a transaction, and time on the journal's thread.
"""

RETRY_SECONDS: Final = 1.0
"""Seconds until a journal that could not be written, or read, is tried again."""

DEED_CHARACTERS: Final = 100
"""Longest method name kept, in characters: the name of an extension is up to the client."""

ATTEMPT_SECONDS: Final = 60.0
"""Seconds for which repeats of a refused attempt are counted before it is logged again."""

DIFFERENT_ATTEMPTS: Final = 20
"""Different attempts logged in that time; more are counted together."""

# -- the daemon ------------------------------------------------------------------------------

DAEMON_SECONDS: Final = 40.0
"""Seconds that a daemon has to start and to accept our agents, and to answer."""

DAEMON_PAUSE_SECONDS: Final = 10.0
"""Most seconds between two attempts to come to a daemon."""

LAST_DEEDS_SECONDS: Final = 1.0
"""Seconds for what a daemon has to say of a client that has left."""

RELAYED_AHEAD_BYTES: Final = 256 * 1024
"""Bytes that may wait to be written for one side before the other is read on."""

# -- sessions --------------------------------------------------------------

MOVES_AT_ONCE: Final = 4
"""Most moves of a session at the same time: each may read and send gigabytes."""
# -- clients over HTTP, and their streams ---------------------------------------------------

HTTP_CONNECTIONS_OF_TOKEN: Final = 64
"""Most connections of one token."""

UNUSED_CHECK_SECONDS: Final = 10.0
"""Seconds between two checks for unused connections."""

UNUSED_SECONDS: Final = 120.0
"""Seconds that a connection without an open stream or a POST is kept."""

POSTED_BYTES: Final = 1 << 20
"""Bytes of POSTs waiting here; beyond that the client waits for its answer."""

STREAMS: Final = 256
"""Streams of one connection that are read, or hold unread data."""

SESSIONS_BESIDE: Final = 4 * STREAMS
"""Sessions remembered as being on the connection's stream; older ones have no request pending."""

OPENING_BYTES: Final = 64 * 1024
"""Longest params with which a session was opened that are remembered to resume it."""

STREAM_OPEN_SECONDS: Final = 2.0
"""Seconds for a client to open the stream of a session that it has begun."""

QUIET_SECONDS: Final = 1.0
"""Seconds of quiet after which a session may move to its own stream."""

STREAM_HEARTBEAT_SECONDS: Final = 15.0
"""Seconds between two heartbeats on a quiet stream, so that no proxy takes it for dead."""

ANSWER_APART_SECONDS: Final = 0.05
"""Seconds between a replay, once it is written, and the answer that follows it."""

BARE_POSITION_SECONDS: Final = 0.05
"""Seconds that a bare position waits for the next update.

Otherwise each prompt would wake its client twice.
"""

# -- the journal's pages, and the feed of the list ------------------------------------------

QUESTIONS_AT_ONCE: Final = 32
"""Most questions to the journal running or waiting; callers beyond are told to come back later."""

QUESTION_SECONDS: Final = 20.0
"""Longest time for one question to the journal, in seconds."""

LIVE_SECONDS: Final = 1.0
"""Seconds for which the answers of other processes are cached."""

MOST_HITS: Final = 1000
"""Most hits of one search, over all of its pages."""

SNAPSHOT_SESSIONS: Final = 200
"""Sessions of a snapshot of the list, beside the live ones."""

KEPT_CHANGES: Final = 1000
"""Changes of the list kept for clients that are behind."""

KEPT_CHANGES_BYTES: Final = 16 << 20
"""Most bytes of the events that are kept: one with open questions may be long."""

FEED_LINGER_SECONDS: Final = 60.0
"""Seconds that the journal is still followed after the last client left: one may come back."""

FEEDS: Final = 256
"""Most streams of the list in total."""

FEEDS_OF_TOKEN: Final = 32
"""Most streams of the list per token."""

# -- reports --------------------------------------------------------------------------------

REPORT_PLACES: Final = 20
"""Most sessions, or places, of one request for glances or contexts."""

GLANCE_ENTRIES: Final = 200
"""Entries of the end of a session that a glance reads."""

GLANCE_BYTES: Final = 256 << 10
"""Bytes of entries that a glance reads, and a context on each side."""

GLANCE_CHARACTERS: Final = 320
"""Characters of the last words, and of a message around a hit."""

ENTRIES_AROUND: Final = 8
"""Entries before and after a hit that are searched for a message."""

EXCERPT_CHARACTERS: Final = 600
"""Characters of the excerpt of a hit in its context."""

EXPORT_CHARACTERS: Final = 64 * 1024 * 1024
"""Characters of a file; use `acphold export` for longer sessions."""

# -- changes of files ------------------------------------------------------------------------

WAITING_CHANGES: Final = 4
"""Most answers waiting for their turn; beyond that callers are told to come back later."""

CHANGES_HISTORY_BYTES: Final = 128 << 20
"""Most history that is read for one answer, in bytes; it is read twice."""

CHANGED_FILES: Final = 500
"""Most files of an answer."""

CHANGE_PROMPTS: Final = 50
"""Most prompts of an answer: the newest."""

CHANGE_PROMPT_CHARACTERS: Final = 300
"""Characters of such a prompt."""

PATCH_CHARACTERS: Final = 20_000
"""Most characters of the patch of one file among others."""

ALL_PATCHES_CHARACTERS: Final = 500_000
"""Most characters of all patches of an answer."""

LONE_PATCH_CHARACTERS: Final = 2_000_000
"""Most characters of the patch of a file that was asked for alone."""

DISK_FILE_BYTES: Final = 2 << 20
"""Longer files on disk are not read for this."""

PRESENT_SECONDS: Final = 5.0
"""Longest wait for the files that a question is about; a network disk may hang."""

# -- standing answers, and servers of this machine ------------------------------------------

SEEN_NUMBERS: Final = 1000
"""Most rules that are marked as seen at once."""

SERVER_FILE_BYTES: Final = 1 << 16
"""Largest size of the file of a running server, in bytes."""

# -- notices --------------------------------------------------------------------------------

NOTICE_HOLD_SECONDS: Final = 10.0
"""Seconds a question is open before anybody is notified: it may be answered at once."""

ATTENDED_SECONDS: Final = 60.0
"""Seconds for which somebody counts as present after their last sign."""

NOTICE_CHECK_SECONDS: Final = 1.0
"""Seconds between two checks for pending questions."""

STIRRED_SECONDS: Final = 0.1
"""Least seconds between two checks, however much happens."""

NOTICE_APART_SECONDS: Final = 5.0
"""Least seconds between two messages to one browser: all news in between is one message."""

NOTICE_RETRY_SECONDS: Final = 30.0
"""Seconds until a message that did not arrive is sent again."""

VISIBLE_SECONDS: Final = 60.0
"""Seconds after a page was last seen in which its device is not told that a turn is done."""

DONE_SECONDS: Final = 60 * 60.0
"""Seconds in which it is of interest that a turn is done."""

ENDED_TURN_BYTES: Final = 8 << 20
"""Longest turn whose files and last words are told, in bytes."""

WANTED_SESSIONS: Final = 64
"""Most sessions in which one browser waits for the end of a turn."""

NOTICE_CHARACTERS: Final = 240
"""Longest question in a notice, in characters."""

# -- messages to push services --------------------------------------------------------------

PUSH_SECONDS: Final = 15.0
"""Longest time for sending one message, in seconds."""

PUSH_PATIENCE_SECONDS: Final = 2 * PUSH_SECONDS
"""Longest time for a message, with the wait for its turn, in seconds."""

PUSHES_AT_ONCE: Final = 8
"""Messages sent at the same time."""

DONE_PUSHES_AT_ONCE: Final = PUSHES_AT_ONCE // 2
"""Of these, most that tell of the end of a turn: questions always find room."""

PUSH_PAYLOAD_BYTES: Final = 2800
"""Bytes: a push service takes 4096 with what encryption adds (RFC 8030, 7.2); Mozilla's, for
Android, after base64."""

PUSH_TTL_SECONDS: Final = 6 * 60 * 60
"""Seconds that a push service keeps a message for an offline device."""

PUSH_SIGNED_SECONDS: Final = 60 * 60
"""Seconds for which a signature is valid; a day at most (RFC 8292, 2)."""

NOTIFIED_BROWSERS: Final = 256
"""Most browsers of one journal; each takes some hundred bytes, and a message for each change."""

SUBSCRIPTIONS_BYTES: Final = 1 << 20
"""Largest size of the file of subscriptions, in bytes."""

ENDPOINT_CHARACTERS: Final = 2048
"""Longest address of a subscription, in characters."""
