"""The first frame of a front: what a program tells the process to which it hands its streams.

A front passes its stdin, stdout and stderr over a Unix socket (unix(7), SCM_RIGHTS), and says in
whose name: its words, its folder, its environment, its umask and its limits. The process that takes
them starts programs as if the front itself had started them. Nothing of it is written anywhere.

The frame is HANDED_OVER, the length of the rest in four bytes, and the rest: fields, each with its
length. A newer front may append fields, which an older process leaves unread. Nothing is imported
that takes time: an editor waits for the front.
"""

from __future__ import annotations

import os

from acp_wire.surroundings import Surroundings

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HANDED_OVER = b"\0"
"""The first byte, with which the descriptors come; no message of ACP begins so."""

STREAMS = 3
"""The descriptors that come with it: stdin, stdout and stderr."""

PROTOCOL = 1
"""The version of the frame's form."""

LARGEST = 1024 * 1024
"""Most bytes of a frame behind its length."""

EDITOR, BRIEF, SERVER = "", "brief", "server"
"""Kinds of fronts: of an editor; of one whose agent ends with it; of a server in front of a
network, which has no words, and asks for its agents over its streams."""


class FirstFrame:
    """The first message of a front: its `release`, its `words`, the `command` that they name, its
    surroundings and its `kind`, EDITOR, BRIEF or SERVER."""

    __slots__ = ("command", "kind", "release", "surroundings", "words")

    def __init__(
        self,
        release: str,
        words: Sequence[str],
        command: Sequence[str],
        surroundings: Surroundings,
        kind: str = EDITOR,
    ) -> None:
        self.release = release
        self.words = tuple(words)
        self.command = tuple(command)
        self.surroundings = surroundings
        self.kind = kind

    @property
    def is_brief(self) -> bool:
        """True if its agent ends with it."""
        return self.kind == BRIEF

    @property
    def identity(self) -> tuple[object, ...]:
        """Two fronts with the same one want the same agent in the same surroundings."""
        within = self.surroundings
        env = tuple(sorted(within.env.items()))
        start = (self.words, self.command, self.kind)
        return *start, env, within.folder, within.umask, within.limits

    def encode(self) -> bytes:
        """Return the whole frame; raises ValueError if it is longer than LARGEST."""
        within = self.surroundings
        resources, niceness, cpus, oom = within.limits
        limits = [b"%d %d %d" % limit for limit in resources]
        share = (b"%d" % niceness, b"%x" % cpus, b"" if oom is None else b"%d" % oom)
        env = [os.fsencode(f"{name}={value}") for name, value in within.env.items()]
        umask = b"" if within.umask is None else b"%d" % within.umask
        rest = _pack(
            [
                b"%d" % PROTOCOL,
                self.release.encode(),
                _pack(map(os.fsencode, self.words)),
                _pack(map(os.fsencode, self.command)),
                os.fsencode(within.folder),
                _pack(env),
                umask,
                _pack(limits),
                self.kind.encode(),
                _pack(share),
            ]
        )
        if len(rest) > LARGEST:
            raise ValueError(
                f"the environment and the command take {len(rest)} bytes, and at most {LARGEST} "
                "can be passed on; unset large variables"
            )
        return HANDED_OVER + len(rest).to_bytes(4, "big") + rest


def decode_frame(rest: bytes) -> FirstFrame:
    """Return the frame behind its length; raises ValueError if it is none."""
    fields = _unpack(rest)
    if len(fields) < 8 or not fields[0].isdigit():
        raise ValueError("this is not the first frame of a front")
    _, release, words, command, folder, env, umask, limits, *newer = fields
    variables = [os.fsdecode(entry).partition("=") for entry in _unpack(env)]
    bounded = [map(int, raw.split(b" ")) for raw in _unpack(limits)]
    niceness, cpus, oom, *_ = _unpack(newer[1]) if len(newer) > 1 else (b"0", b"0", b"")
    return FirstFrame(
        release.decode(errors="replace"),
        [os.fsdecode(word) for word in _unpack(words)],
        [os.fsdecode(word) for word in _unpack(command)],
        Surroundings(
            {name: value for name, _, value in variables},
            os.fsdecode(folder),
            int(umask) if umask else None,
            (
                tuple((kind, soft, hard) for kind, soft, hard in bounded),
                int(niceness),
                int(cpus, 16),
                int(oom) if oom else None,
            ),
        ),
        newer[0].decode(errors="replace") if newer else EDITOR,
    )


def _pack(fields: Iterable[bytes]) -> bytes:
    return b"".join(len(field).to_bytes(4, "big") + field for field in fields)


def _unpack(data: bytes) -> list[bytes]:
    fields, place = [], 0
    while place < len(data):
        end = place + 4 + int.from_bytes(data[place : place + 4], "big")
        if end > len(data):
            raise ValueError("a field is longer than its frame")
        fields.append(data[place + 4 : end])
        place = end
    return fields
