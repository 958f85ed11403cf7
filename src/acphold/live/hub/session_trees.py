"""Work trees of sessions: new ones, with the ignored files that a project wants there, and what a
person is asked before their work comes back, or before they go with a deleted session."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.surroundings import Surroundings, resolve_folder
from acp_wire.visible_text import on_one_line
from acp_wire.workspace.threads import Checkpoint, Threads
from acphold.errors import WorkspaceError
from acphold.journal.journal import Journal
from acphold.journal.rows import ListFilter, SessionRow
from acphold.live.hub import bounds as hub_bounds
from acphold.live.hub.kept_stores import stores_of
from acphold.safety.snapshots import bounds, worktree
from acphold.safety.snapshots.branches import (
    BranchTree,
    NewTree,
    WayBack,
    new_tree,
    tree_of,
    way_back,
)
from acphold.safety.snapshots.checkouts import checkout_at


class PlaceOfWork(Struct, frozen=True):
    """A new work tree, and the ignored files of the project that were copied into it."""

    tree: NewTree
    included: worktree.Included

    @property
    def lines(self) -> Iterator[str]:
        """Lines about it, for a person."""
        yield f"It works in {self.tree.cwd}, on the branch {self.tree.branch}"
        yield from self.tree.notes
        if self.included.count:
            yield f"with {self.included.count} ignored files of .worktreeinclude"
        if self.included.is_possible:
            yield "--include copies the ignored files of .worktreeinclude, too"
        elif self.included.missing:
            yield f"not all of .worktreeinclude was copied: {self.included.missing}"


async def make_tree(
    journal: Journal, cwd: str, surroundings: Surroundings, *, include: bool
) -> PlaceOfWork:
    """Make a work tree of the repository of `cwd`; with `include`, with the ignored files that
    its `.worktreeinclude` names. Raises WorkspaceError; then nothing is left of it."""
    stores = await stores_of(journal) if include else None
    done: list[PlaceOfWork] = []  # in a list: also known if this is cancelled at that very moment

    def work(checkpoint: Checkpoint) -> None:
        tree = new_tree(cwd)
        done.append(PlaceOfWork(tree, worktree.Included()))
        checkpoint()
        if stores is None:
            included = worktree.Included(is_possible=worktree.has_list(tree.project))
        else:
            placed = [*tree.laid.placed]
            try:
                checkout = checkout_at(tree.project)
                assert checkout is not None, "it has a work tree now"
                deadline = time.monotonic() + bounds.INCLUDING_SECONDS
                store = stores.of(checkout.common, deadline)
                included = worktree.include(
                    *(store, tree.project, tree.laid.folder, (), surroundings, placed, checkpoint)
                )
            finally:
                tree = replace(tree, laid=replace(tree.laid, placed=tuple(placed)))
                done[:] = [PlaceOfWork(tree, worktree.Included())]
        done[:] = [PlaceOfWork(tree, included)]

    try:
        await Threads(1).run_in_steps(work)
    except BaseException:
        if done:
            await Threads(1).run(done[0].tree.remove)
        raise
    return done[0]


class SeenTree(Struct, frozen=True):
    """The work tree of a session, as a person sees it before a yes. `back` is None if there is no
    way back, and `problem` says why."""

    tree: BranchTree
    back: WayBack | None = None
    problem: str = ""

    @property
    def mark(self) -> str:
        """Another one, once anything is different that the person was asked about."""
        back = self.back
        facts = (self.tree, self.problem, *(() if back is None else (back.at, back.uncommitted)))
        return sha256(repr(facts).encode(errors="surrogateescape")).hexdigest()[:32]


def title_of_work(row: SessionRow) -> str:
    """Return the message of a commit with the work of a session."""
    return on_one_line(row.title or "Work of an agent")


def see_tree(tree: BranchTree) -> SeenTree:
    """Look at a work tree as a person is to see it; blocks."""
    try:
        return SeenTree(tree, way_back(tree))
    except WorkspaceError as error:
        return SeenTree(tree, problem=str(error))


async def trees_of(journal: Journal, rows: Sequence[SessionRow]) -> list[BranchTree]:
    """Return the work trees of ours in which of all sessions only these have worked."""
    found: dict[str, BranchTree] = {}
    ids = {row.session_id for row in rows}
    # What an import has of the same conversation, under another name of its agent, is no other.
    known = {it for row in rows for it in (row.session_id, row.downstream_id) if it}
    for row in rows:
        tree = await Threads(1).run(tree_of, row.cwd)
        if tree is None or not tree.is_ours or tree.git_folder in found:
            continue
        its = ListFilter(words=((tree.top.casefold(), (), ()),), archived="include")
        beside = [
            *await journal.page(replace(its, words=(), cwd=row.cwd), None, len(ids) + 1),
            *(some := await journal.page(its, None, hub_bounds.REMAINS_ROWS)),
        ]
        is_all = len(some) < hub_bounds.REMAINS_ROWS
        others = [it for it in beside if it.session_id not in ids and it.downstream_id not in known]
        if is_all and not any(_is_within(it, tree) for it in others):
            found[tree.git_folder] = tree
    return [*found.values()]


def _is_within(row: SessionRow, tree: BranchTree) -> bool:
    return f"{resolve_folder(row.cwd)}/".startswith(f"{tree.top}/")
