"""Work trees of sessions: a new one for `acphold chat --worktree`, and the way back from it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from acp_wire.surroundings import Surroundings
from acphold.faces.cli import options
from acphold.faces.cli.command_line import Exit, UsageError, command, is_confirmed, require_folder
from acphold.faces.cli.continuation import title_of
from acphold.faces.cli.journals import journal_if_any, sessions_here
from acphold.faces.cli.places import place
from acphold.faces.cli.screen_session import WantedConversation
from acphold.faces.cli.terminal_text import on_one_line, quantity, say, tell
from acphold.journal.rows import ListFilter, SessionRow
from acphold.journal.stores import journal_name, open_journal
from acphold.live.hub.session_trees import make_tree, see_tree, title_of_work
from acphold.safety.snapshots.branches import (
    BranchTree,
    commit_all,
    merge,
    remove_tree,
    tree_of,
    way_back,
)

SHOWN = 10
"""Commits and files that are listed."""


async def talk_in_tree(
    wanted: WantedConversation,
    cwd: str,
    talk: Callable[[WantedConversation], Awaitable[int]],
    *,
    include: bool,
) -> int:
    """Talk in a new work tree of the repository of `cwd`, which is removed if nobody uses it."""
    require_folder(cwd)
    async with aclosing(open_journal(journal_name())) as journal:
        made = await make_tree(journal, cwd, Surroundings.here(), include=include)
    for line in made.lines:
        tell(line)
    try:
        return await talk(wanted._replace(cwd=made.tree.cwd))
    finally:
        inside = ListFilter(cwd=made.tree.cwd, archived="include")
        async with journal_if_any() as kept:
            is_used = kept is not None and bool(await kept.page(inside, None, 1))
        if not is_used and made.tree.is_unused():
            made.tree.remove()
            tell(f"Nothing is left of {made.tree.laid.folder}.")


@command("session merge", "[OPTIONS] [ID]", options.JOURNAL)
async def merge_session(
    *,
    session_id: str | None = options.argument(
        "ID", "the session's id, or a prefix of it [default: you choose]", nargs="?"
    ),
    sure: bool = options.flag("commit and merge without asking", "--yes", "-y"),
) -> int:
    """Bring the work of a session back from its work tree.

    Says which branch it goes to, and what would come: the commits, and the files with their lines.
    What is not committed there you can commit first, with the session's title as message. Then it
    is merged if you say yes, into the branch that the work tree came from, where that is checked
    out without any changes; otherwise the command of git is printed.

    It is refused if the branch has uncommitted changes in the same files. Conflicts are left to
    your own git, and so are files that a filter or a merge driver of the repository writes,
    submodules, signatures and hooks: nothing of the repository's configuration runs here.
    """
    async with sessions_here() as (reader, _):
        row = (await place(reader, session_id, "merges its work")).row
        if await reader.live_state(row.session_id) in ("running", "waiting"):
            raise UsageError("a turn is running in this session: wait for its end")
    return bring_back(row, _tree_of(row), sure=sure)


def _tree_of(row: SessionRow) -> BranchTree:
    if (tree := tree_of(row.cwd)) is None:
        raise UsageError(
            f"{row.cwd} is no work tree beside a repository, or was moved without git: then "
            "`git worktree repair` there, and `acphold continue ID --cwd FOLDER`"
        )
    return tree


def bring_back(row: SessionRow, tree: BranchTree, *, sure: bool) -> int:
    """Say what would come from a work tree, and merge it if the person wants it."""
    here, title = Surroundings.here(), title_of_work(row)
    asks = sys.stdin.isatty()
    back = way_back(tree)
    where = f" in {back.into}" if back.into else ""
    say(f"{title_of(row)}: {tree.source} → {back.target}{where}")
    if not tree.is_there:
        say(f"  {tree.top} was deleted: what was not committed there is lost")
    elif tree.locked:
        say(f"  {tree.top} is locked: {tree.locked}")
    if back.uncommitted:
        say(f"  {quantity(len(back.uncommitted), 'file')} not committed:")
        _list(back.uncommitted)
        if sure or (asks and is_confirmed(f"Commit them as “{title}”?")):
            back = way_back(commit_all(back, title, here))
        else:
            say("  they stay there")
    if not back.commits:
        say(f"  nothing to merge: {back.target} has all of its commits")
        return Exit.OK
    say(f"  {quantity(len(back.commits), 'commit')}:")
    _list(back.commits)
    say(f"  {quantity(len(back.files), 'file')}:")
    _list([_lines_of(*it) for it in back.files])
    if back.changed:
        tell(f"{back.into} has uncommitted changes in the same files:")
        for name in back.changed[:SHOWN]:
            tell(f"    {on_one_line(name)}")
        tell("Commit or stash them there first.")
        return Exit.ERROR
    if back.conflicts:
        say(f"  git finds conflicts in {quantity(len(back.conflicts), 'file')}:")
        _list(back.conflicts)
        say(f"Resolve them with your own git:\n  {back.command}")
        return Exit.ERROR
    if back.own_git:
        say(f"Your own git has to merge it: {back.own_git}.\n  {back.command}")
        return Exit.OK
    if not (sure or (asks and is_confirmed(f"Merge it into {back.target}?"))):
        say(f"To merge it:\n  {back.command}")
        return Exit.OK
    merge(back, title, here)
    say(f"Merged into {back.target}.")
    return Exit.OK


def _list(lines: Sequence[str]) -> None:
    for line in lines[:SHOWN]:
        say(f"    {on_one_line(line)}")
    if len(lines) > SHOWN:
        say(f"    and {len(lines) - SHOWN} more")


def _lines_of(name: str, added: int | None, removed: int | None) -> str:
    numbers = "binary" if added is None or removed is None else f"+{added} -{removed}"
    return f"{name} {numbers}"


# -- with a deleted session ------------------------------------------------------------------


def about_tree(tree: BranchTree) -> str:
    """Return a sentence about a work tree that a deleted session leaves."""
    seen = see_tree(tree)
    losses, back = [seen.problem] if seen.problem else [], seen.back
    if back is not None:
        if back.commits:
            losses.append(f"{quantity(len(back.commits), 'commit')} that {back.target} lacks")
        if back.uncommitted:
            losses.append(f"{quantity(len(back.uncommitted), 'uncommitted file')}")
    branch = f" and the branch {tree.branch}" if tree.branch else ""
    return f"its work tree {tree.top}{branch}{', with ' if losses else ''}{' and '.join(losses)}"


def ask_about_trees(trees: Sequence[BranchTree], *, sure: bool) -> None:
    """Remove work trees of deleted sessions, if the person wants it; otherwise say that they
    stay."""
    for tree in trees:
        about = about_tree(tree)
        if not sure and sys.stdin.isatty() and is_confirmed(f"Also delete {about}?"):
            stays = remove_tree(tree)
            if stays:
                tell(f"{stays} stays")
        else:
            tell(f"{about[:1].upper()}{about[1:]}, stays.")
