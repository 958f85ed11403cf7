"""Work trees for new sessions, with the ignored files that a project wants there."""

from __future__ import annotations

import time
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.surroundings import Surroundings
from acp_wire.workspace.threads import Checkpoint, Threads
from acphold.journal.journal import Journal
from acphold.live.hub.kept_stores import stores_of
from acphold.safety.snapshots import bounds, worktree
from acphold.safety.snapshots.branches import NewTree, new_tree
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
