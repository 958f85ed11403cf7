"""Requests of clients about the work trees of sessions: brought back, or removed with a session.

Nothing is done but what a person has seen: each deed names the mark that was shown with it, and is
refused once anything is different. It needs the scopes manage and files in the session.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

from msgspec.structs import replace

from acp_wire.rpc.requests import Request
from acp_wire.schema import encode
from acp_wire.workspace.threads import Threads
from acphold.conversation.history.raw_update import storable
from acphold.errors import ForbiddenError, WorkspaceError
from acphold.journal.journal import Journal
from acphold.journal.rows import SessionRow
from acphold.live.agents.extensions import SessionTree, TreeRequest
from acphold.live.hub.attachment import Client
from acphold.live.hub.session_trees import SeenTree, see_tree, title_of_work, trees_of
from acphold.live.reading.local_reader import LocalReader
from acphold.live.server import bounds
from acphold.live.server.checked_params import decode_params
from acphold.live.server.directory import Directory
from acphold.safety.snapshots.branches import BranchTree, commit_all, merge, remove_tree, tree_of

STATES_AT_WORK = ("running", "waiting")

CHANGED = "this has changed since you saw it: look at it again"


async def answer_tree(directory: Directory, client: Client, request: Request) -> bytes:
    """Answer what would come from the work tree of a session, after a deed if one is wanted; an
    empty object if it has none. Raises WorkspaceError."""
    asked = decode_params(request.params, TreeRequest)
    journal = directory.hub.journal
    row = await journal.session(asked.session_id)
    if (tree := await Threads(1).run(tree_of, row.cwd)) is None:
        return b"{}"
    seen = await Threads(1).run(see_tree, tree)
    if asked.do:
        back = seen.back
        if back is None:
            raise WorkspaceError(seen.problem)
        if asked.seen != seen.mark:
            raise WorkspaceError(CHANGED)
        if await _is_busy(directory, row.session_id):
            raise WorkspaceError("a turn is running in this session: wait for its end")
        title = title_of_work(row)
        scopes = client.scopes_in(asked.session_id)
        async with directory.of(request, asked.session_id, scopes) as desk:
            here = desk.agent.surroundings
            if asked.do == "commit":
                tree = await Threads(1).run(commit_all, back, title, here)
            elif back.is_ready:
                await Threads(1).run(merge, back, title, here)
            else:
                raise WorkspaceError(f"git has to merge it by itself: {back.command}")
        seen = await Threads(1).run(see_tree, tree)
    its = await _described(journal, row, seen)
    return encode(replace(its, is_merged=asked.do == "merge"))


async def _is_busy(directory: Directory, session_id: str) -> bool:
    """Return True if a turn may run in a session, here or in another process."""
    if (here := directory.hub.live.get(session_id)) is not None:
        return here.turns.running is not None
    return await LocalReader(directory.hub.journal).live_state(session_id) in STATES_AT_WORK


async def tree_to_remove(journal: Journal, session_id: str, mark: str) -> BranchTree:
    """Return the work tree that goes with a deleted session, as it was seen under this mark; raises
    WorkspaceError."""
    row = await journal.session(session_id)
    for tree in await trees_of(journal, [row]):
        if (await Threads(1).run(see_tree, tree)).mark == mark:
            return tree
    raise WorkspaceError(f"its work tree: {CHANGED}")


async def remove(tree: BranchTree) -> str:
    """Remove a work tree; return what stays, "" if nothing does."""
    try:
        return await Threads(1).run(remove_tree, tree)
    except WorkspaceError as error:
        return f"the work tree {tree.top} ({error})"


def require_files(client: Client, session_id: str) -> None:
    """Raise ForbiddenError if a client may not remove a session's work tree."""
    if "files" not in client.scopes_in(session_id):
        raise ForbiddenError("deleting a work tree", "files")


async def _described(journal: Journal, row: SessionRow, seen: SeenTree) -> SessionTree:
    tree, back = seen.tree, seen.back
    its = SessionTree(
        top=storable(tree.top),
        source=tree.source,
        branch=tree.branch,
        mark=seen.mark,
        title=title_of_work(row),
        locked=storable(tree.locked),
        is_gone=not tree.is_there,
        is_ours=bool(await trees_of(journal, [row])),
        problem=storable(seen.problem),
    )
    if back is None:
        return its
    names = {
        "commits": back.commits,
        "uncommitted": back.uncommitted,
        "changed": back.changed,
        "conflicts": back.conflicts,
    }
    most = bounds.TREE_NAMES
    return replace(
        its,
        target=back.target,
        into=storable(back.into),
        command=storable(back.command),
        own_git=storable(back.own_git),
        numbers={"files": len(back.files), **{name: len(them) for name, them in names.items()}},
        files=tuple((storable(name), plus, minus) for name, plus, minus in back.files[:most]),
        **{name: tuple(map(storable, them[:most])) for name, them in names.items()},
    )
