"""The place of a session that another machine gives to this one, and of its files.

It is what the person named; or what the settings say stands for its folder there; or a clone of its
project that acphold knows here. A folder is not taken on the other machine's word.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os.path import isdir, realpath
from pathlib import PurePath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from acphold.errors import MoveRefusedError
from acphold.hub.move_frames import NAME_LETTERS, Done, SentFiles, SessionOffer
from acphold.journal import ListFilter, Sessions
from acphold.journal.location import resolved_folder
from acphold.journal.snapshots import MOST_LEFT_OUT, TurnSnapshot
from acphold.snapshots.checkouts import checkout_of
from acphold.snapshots.projects import same_project
from acphold.snapshots.snapshot import NotTaken
from acphold.snapshots.snapshot import take as take_snapshot
from acphold.snapshots.store import Stores
from acphold.snapshots.worktree import beside

KNOWN_SESSIONS: Final = 1000
"""Newest sessions in whose folders a clone of the project is looked for."""

SHORT_ID: Final = 6
"""Letters of the session's id in the name of a new folder."""


class WantedPlace(Struct, frozen=True):
    """The place wanted for a session on the taker's machine.

    `cwd` is the folder of its project, found if it is None; `files` the new folder for its files,
    beside the project if it is None. `folders` maps folders of other machines to folders here.
    """

    cwd: str | None = None
    files: str | None = None
    with_files: bool = True
    folders: Mapping[str, str] = {}


def place_of(
    offer: SessionOffer, place: WantedPlace, known: Sequence[str], laid: Done | None
) -> Done:
    """Return the place of a session here: `known` are folders in which a clone of its project may
    be, `laid` is that of its files, if they are there already. Blocks; MoveRefusedError."""
    files = offer.files if place.with_files else None
    mapped = _mapped(offer.session.cwd, place.folders)
    project = ""
    if place.cwd is not None:
        if not isdir(place.cwd):
            raise MoveRefusedError(f"there is no folder {place.cwd!r} on {socket.gethostname()}")
        found = checkout_of(place.cwd)
        project = found.top if found else ""
    else:
        folders = [*([mapped] if mapped else []), *known]
        project = same_project(folders, offer.marks, files.commit if files else None)
    if laid is not None:
        return replace(laid, project=project)
    if files is not None:
        if place.files is None and not project:
            raise MoveRefusedError(
                f"acphold on {socket.gethostname()} knows no clone of "
                f"{offer.project or 'the project'}: name its folder there with "
                "--cwd, or a new folder for the files with --files, or go on without them with "
                "--no-files"
            )
        letters = (letter for letter in offer.session.session_id if letter.isalnum())
        new = place.files or beside(project, "".join(letters)[:SHORT_ID] or "moved")
        return Done(_below(new, offer.below), new, project=project)
    if place.cwd is not None:
        return Done(place.cwd)
    own = [_below(project, offer.below), project] if project else []
    same = [offer.session.cwd] if offer.session.cwd in known else []
    for folder in (mapped, *own, *same):
        if folder and isdir(folder):
            return Done(os.path.normpath(folder), project=project)
    raise MoveRefusedError(
        f"acphold on {socket.gethostname()} knows neither the folder {offer.session.cwd!r} nor a "
        "clone of its project; name a folder there with --cwd"
    )


def still_there(
    offer: SessionOffer, cwd: str, stores: Stores, deadline: float
) -> TurnSnapshot | None:
    """Return a snapshot of the folder that the session had left, if it still has exactly the files
    that come back; otherwise None. Blocks."""
    files, checkout = offer.files, checkout_of(cwd)
    if files is None or checkout is None or _below(checkout.top, offer.below) != realpath(cwd):
        return None
    taken = take_snapshot(stores, checkout, deadline=deadline)
    if isinstance(taken, NotTaken) or (taken.tree, taken.head.commit) != (files.tree, files.commit):
        return None
    return kept_snapshot(files, taken.store, checkout.top)


def kept_snapshot(files: SentFiles, store: str, top: str) -> TurnSnapshot:
    """Return the journal's row for files that came: in this store, laid out in `top`."""
    return TurnSnapshot(
        turn=files.turn,
        edge="end",
        root=resolved_folder(top),
        at=files.at,
        state="whole",
        store=store,
        tree=files.tree,
        commit=files.commit,
        branch=files.branch[:NAME_LETTERS],
        left_out=files.left_out[:MOST_LEFT_OUT],
        left_out_count=files.left_out_count,
    )


def _mapped(folder: str, folders: Mapping[str, str]) -> str | None:
    """Return the folder here that stands for a folder of another machine, by the longest entry
    of the map; None if there is none."""
    best: tuple[int, str] | None = None
    for far, near in folders.items():
        with suppress(ValueError):
            below = PurePath(folder).relative_to(far)
            if ".." not in below.parts and (best is None or len(far) > best[0]):
                best = (len(far), os.path.normpath(os.path.join(near, below)))
    return best[1] if best else None


async def known_folders(journal: Sessions) -> list[str]:
    """The folders of the newest sessions, each once."""
    wanted = ListFilter(archived="include")
    rows = await journal.page(wanted, None, KNOWN_SESSIONS)
    return [*dict.fromkeys(row.cwd for row in rows)]


def _below(folder: str, below: str) -> str:
    return os.path.normpath(os.path.join(folder, below)) if below else folder
