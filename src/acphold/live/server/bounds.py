"""The bounds of a served connection: times, sizes and counts that somebody might tune."""

from __future__ import annotations

from acphold.journal import bounds as journal_bounds
from acphold.live.hub import bounds as hub_bounds

# -- a loop that hangs ----------------------------------------------------------------------

STEP_SECONDS = 1.0
"""A loop that makes no step for this long hangs."""

HUNG_ASK_SECONDS = 1.0
"""Whoever asks meanwhile has this long to say what; the next one waits."""

# -- clients --------------------------------------------------------------------------------

CLIENT_NAME_CHARACTERS = 100
"""Most characters of a client's name, and of its version, that are kept with its prompts."""

OPEN_PAGES = 256
"""Most pages remembered that an agent asked a client to open. Older ones are forgotten, because
some agents never report the end."""

PROMPT_ID_CHARACTERS = 100
"""Most characters of the id that a client gives to a waiting prompt."""

PROMPT_BLOCKS = 10_000
"""Most content blocks of a prompt. Each is looked at many times on its way, and meanwhile nobody
else is served."""

MESSAGE_PARTS = 100_000
"""Most objects, arrays and items of a message from a client. Some are taken apart several times,
and meanwhile nobody else is served."""

PARED_VALUES = 50_000
"""Most values that are looked at in a message of a client that may not say everything."""

KEPT_PROMPTS_BYTES = 16 << 20
"""Most bytes of prompts, cancelled ones among them, that wait for their session to be opened."""

SENT_PROMPTS = 1000
"""Most unanswered prompts that a resuming client may name; no client has as many."""

EXPIRY_CHECK_SECONDS = 10.0
"""Seconds between checks for expired access: our clock stops while the machine sleeps."""

SHARES_SECONDS = 0.5
"""Seconds between two looks at what is shared with a client that has it open."""

LAST_ANSWERS_SECONDS = 5.0
"""Seconds to answer the last requests of a client that has closed its side, as in a shell pipe.
This does not wait for turns: an editor that leaves ends them."""

IDLE_CHECK_SECONDS = 10.0
"""Seconds between checks if an agent, also a served one, is still needed."""

DAEMON_IDLE_SECONDS = 3.0
"""Seconds that a daemon stays without an agent and a client: an editor may come back at once."""

FIND_DAEMON_SECONDS = 1.0
"""Seconds for the journal to say if another daemon has it already: that may have lost its lock."""

# -- servers in front of a network ----------------------------------------------------------

SERVER_AWAY_SECONDS = 30.0
"""Seconds that an idle agent of a server stays that has gone: it may come back at once."""

NODE_AWAY_SECONDS = 10.0
"""The same of a node, whose sessions other machines may want. A service starts it again after
five."""

TOLD_CHARACTERS = 1000
"""Most characters of a deed, and of its session's id, that a server is told: a client names them,
and whoever makes them longer than a message must not stay out of the audit log."""

TOLD_DEEDS = 100
"""Most deeds of one report: this many of the longest are shorter than a message."""

STIRS_APART_SECONDS = 0.05
"""Seconds between two reports to a server of what has happened: each wakes it."""

RELAYED_BYTES = 64 * 1024
"""Most bytes of the line that says who a relayed client is."""

QUEUES_OPENED_AT_ONCE = 4
"""Sessions with queued prompts that are opened at the same time."""

QUEUE_OPEN_SECONDS = 120.0
"""Seconds for an agent to start, and again to open the session, for such a prompt."""

OWNER_LOOKS = 2 + round(journal_bounds.SILENT_SECONDS / journal_bounds.RENEW_SECONDS)
"""Looks at the sessions of a process that may still live: after this many, it lives or has been
silent."""

# -- owners of sessions in other processes --------------------------------------------------

OWNER_CHECK_SECONDS = 5.0
"""Seconds between looks if the owners of sessions respond, and still own them."""

UNTOLD_SECONDS = 3.0
"""Seconds without a connection, or without a sign of the owner, before the person is notified."""

REOPEN_SECONDS = hub_bounds.LOAD_SECONDS + 10.0
"""Seconds another process has to answer when a session is opened there again: it waits for the
agent first."""

ADDED_BYTES = 64 * 1024
"""More bytes than an owner adds to a message of an agent or client: a position, ids, its author. A
message of exactly the size limit must get through."""

# -- commands for alerts --------------------------------------------------------------------

ALERT_SECONDS = 30.0
"""Seconds a command may take: sending a message over a slow network takes a few."""

TITLE_SECONDS = 20.0
"""Seconds a command for a title may take: a model answers in a few."""

TITLES_AT_ONCE = 2
"""Commands for titles that run at the same time; further sessions keep the rule's."""

LAST_ALERTS_SECONDS = 2.0
"""Seconds that running commands have to end by themselves when the process ends."""

ALERTS_AT_ONCE = 4
"""Commands that run at the same time."""

ALERT_VALUE_CHARACTERS = 2000
"""Most characters of a value in a variable; the JSON on stdin has all of it."""

ALERT_OUTPUT_BYTES = 4096
"""Most bytes of a command's output in the log."""

ALERT_OUTPUT_SECONDS = 1.0
"""Seconds for its stdout to end after the command itself; programs that it left running may keep
stdout open."""

TREE_NAMES = 100
"""Commits, and files, of a work tree that are named; of more there is the number."""

# -- session indexes ------------------------------------------------------------------------

INDEX_PAGE = 50
"""Sessions in a page, unless the client asks for another number."""

INDEX_PAGE_MOST = 200
"""Most sessions in a page."""

SHOWN_SESSIONS = 10_000
"""Most sessions that are remembered as shown to a client: it is told when they are deleted."""

INDEX_LOOK_SECONDS = 10.0
"""Seconds between looks at what other processes have changed; what happens here is told at once."""

BATCH = 500
"""Most sessions that are looked up at once."""

SUBSCRIPTIONS = 128
"""Most subscriptions of one client."""

CHANGES_APART_SECONDS = 1.0
"""Seconds between two notifications of changes."""

UNREAD_CHANGES_BYTES = 1 << 20
"""Bytes that a client has not read, above which it is told no changes."""

UNHEARD_CHANGES = 64
"""Most notifications of an agent's own changes that wait to be looked at."""

AGENT_SUBSCRIBE_SECONDS = 3.0
"""Seconds the agent has to subscribe a client to its own list."""
