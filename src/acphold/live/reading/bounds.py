"""The bounds of reading that somebody might tune: times, sizes and counts."""

from __future__ import annotations

from typing import Final

# -- processes ------------------------------------------------------------------------------------

ANSWER_SECONDS: Final = 2.0
"""Seconds for all processes together to answer: a stopped one gets no longer."""

OWNER_ANSWER_SECONDS: Final = 10.0
"""Seconds an owner has to answer, which it does at once; long enough for a machine under heavy
load. Then it is asked again, until it is silent (`journal.owners`)."""

UNSEEN_OWNER_SECONDS: Final = 2.5
"""Seconds to look for an owner without an address that can be tried from here, as in another
container. A socket that was removed with its folder is bound anew sooner."""

CLIENT_ANSWER_SECONDS: Final = 20.0
"""Seconds for each answer to a client: its change is committed first."""

CATCH_UP_SECONDS: Final = 1.0
"""Seconds in which a search indexes first what lags; a person waits."""

# -- pages ----------------------------------------------------------------------------------------

PAGE: Final = 500
"""Sessions or entries of one page."""

SEARCHED_SESSIONS: Final = 5000
"""Most sessions searched for the words of one page; the next page goes on there."""

ENDINGS: Final = 200
"""Newest entries at the ends of sessions in which a word of a list is looked for."""

READINGS: Final = 5
"""Most times the end of a session is read again because a turn was settled meanwhile."""

# -- the list as it changes -----------------------------------------------------------------------

LOOK_SECONDS: Final = 1.6
"""Seconds between looks at the journal and at the processes, for what others do."""

OWNERS_SECONDS: Final = 20.0
"""Seconds after which the processes that have a database open are looked up again, if no session
has changed."""

RUNNING_SECONDS: Final = 5.0
"""Seconds after which the last words of a running turn are told again: its row stays as it is."""

LOOKS_APART_SECONDS: Final = 0.05
"""Fewest seconds between looks, however much happens."""

# -- questions and rules --------------------------------------------------------------------------

INBOX_ENTRIES: Final = 200
"""Entries of a session read at once for its questions."""

CALL_ENTRIES: Final = 4000
"""Entries before a question that are searched for updates of its call."""

INBOX_SESSIONS: Final = 500
"""Most sessions that are searched for decisions: the last active ones."""

DECISIONS_AT_ONCE: Final = 500
"""Decisions read at once."""

# -- a daemon that hangs, and titles -------------------------------------------------------------

HUNG_SECONDS: Final = 3.0
"""A daemon whose loop hangs has this long for each piece of an answer."""

HUNG_BYTES: Final = 1 << 24
"""Most bytes of such an answer."""

SAME_WORDS = 4
"""So many short sessions that begin with the same words are probably a program's."""

SAME_WORDS_SECONDS = 30.0
"""Titles that several sessions share may be this old: to find them, many rows are read."""

PROJECT_SECONDS = 1.0
"""Seconds to find the repositories of folders, of which one may lie on a disk that hangs."""
