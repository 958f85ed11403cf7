"""Bounds of the library: how long it waits, and how much it holds back and keeps."""

from __future__ import annotations

from typing import Final

# Authors' code, and the event loop they share.

BLOCKING_SECONDS: Final = 0.005
"""An author's code that takes longer before its first wait, or its end, counts as blocking."""

STEP_SECONDS: Final = 0.002
"""After this long in one step of the event loop, a turn that sends an update lets the others run.
Code that never awaits would not do so by itself."""

GO_ON_AT_ONCE: Final = 8
"""In each step of the event loop, this many of the turns that never await may go on."""

ENDS_AT_ONCE: Final = 16
"""Once a step of the event loop has used up its time, further turns wait to end. This many of them
end in each of the next steps, because other work may use up all of these too."""

SLICE_SECONDS: Final = 0.003
"""Work on a long conversation lets others have the event loop after this time."""

GARBAGE_AFTER: Final = 10_000
"""Python looks for reference cycles after this many new objects. Its default is 700, which a
hundred sessions make in one moment; checking the objects of hundreds takes 50 ms."""

# Updates on their way to the journal.

BATCH_BYTES: Final = 64 * 1024
"""At most this many bytes are held back, to be committed with the following ones."""

BATCH_UPDATES: Final = 512
"""At most this many updates are held back."""

LEAVE_AT_ONCE: Final = 128
"""At most this many sessions with updates are committed together."""

ROUND_PAUSES: Final = 3
"""After a round of commits that took longer than a step, the next one waits this many times as
long."""

ROUND_PAUSE_SECONDS: Final = 0.05
"""The longest pause between two rounds of commits, which a person does not notice."""

# A conversation in memory.

KEPT_BYTES: Final = 256 * 1024
"""A conversation up to this length stays in memory once it has been read."""

# Commands and their output.

OUTPUT_SECONDS: Final = 2.0
"""A tool call or command that ends waits this long for the client to send the output."""

OUTPUT_POLL_SECONDS: Final = 0.25
"""Seconds between two requests for a command's output, which a client does not send by itself."""

OUTPUT_CHARACTERS: Final = 64 * 1024
"""A tool call keeps this many characters of a command's output, the last ones."""

LIVE_CHARACTERS: Final = 4 * 1024
"""While a command runs, this many characters are shown; each update sends all of them."""

PIECE_CHARACTERS: Final = 64 * 1024
"""Longer texts of a message are sent in pieces of this length."""

UPDATE_BYTES: Final = 63 << 20
"""The longest update: with its frame, clients read messages of 64 MiB."""

AT_ONCE_BYTES: Final = 4 * 1024
"""So much of a tool call is sent without a pause between its updates."""

LIVE_PAUSE_SECONDS: Final = 0.1
"""The shortest pause between two updates of a tool call's content. It gets longer as more is sent:
twice as long after twice LIVE_PAUSE_CHARACTERS. Each update repeats all that is shown, so a command
that prints for an hour sends 1.5 MiB."""

LIVE_PAUSE_CHARACTERS: Final = 64 * 1024
"""After this many characters of its updates, the pauses between them begin to grow."""

# Sessions that clients have left.

LEFT_SESSIONS: Final = 100
"""Most sessions of a server that stay open without a client; those left first are closed."""

LEFT_LOOK_SECONDS: Final = 10.0
"""Seconds between two looks for more."""

# The end.

COMMANDS_END_SECONDS: Final = 5.0
"""The end of a turn waits this long for the end of the commands it started."""

TURNS_END_SECONDS: Final = 3.0
"""All turns together have this long to end when the agent is ended."""
