"""The prompts that lines of a file came from.

A line is searched by content in the versions of its file in the snapshots of all sessions: see
`origins.versions`. A file that git sees as renamed continues the versions under its former name.
The version in which the line first appears gives the answer:

shown     the agent showed an edit that led to it, in one turn
seen      it appeared between the beginning and the end of one turn, and the agent did not show it:
          a command, a person or another session made it
likely    as seen, and one of the two snapshots is only likely of its moment
git       git brought it in that turn: see `origins.project_lines`. If an earlier snapshot had the
          line, it has the origin that it had there
unknown   anything else, with the reason
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final, Literal

from msgspec import Struct

from acp_wire.workspace.threads import Threads
from acphold.conversation.history.decisions import (
    AskedQuestion,
    ClosedQuestion,
    asked_question,
    closed_question,
)
from acphold.conversation.history.entries import ANSWER, QUESTION, turn_spans
from acphold.conversation.history.raw_update import items, members, storable, string
from acphold.conversation.history.words import document
from acphold.errors import UnknownSessionError
from acphold.journal.journal import Journal, history, row_of
from acphold.journal.seams import TurnSnapshot
from acphold.live.hub.kept_stores import stores_of
from acphold.live.origins.kept_changes import edits_by_turn, root_around
from acphold.live.origins.project_lines import COMMIT_GONE, STASH_GONE, ProjectLines
from acphold.live.origins.snapshot_versions import FolderHistory, VersionBuilder, read_files
from acphold.live.origins.versions import Claim, Versions, is_distinct
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots.checkouts import Checkout, checkout_at, checkout_of, object_format
from acphold.safety.snapshots.comparison import bare_folder

SECONDS: Final = 60.0
"""Seconds that asking `git blame` may take."""

PROMPT_CHARACTERS: Final = 100_000

NO_SNAPSHOT = "there is no snapshot of this file"
NOT_KEPT = "it is in no snapshot: it changed after the last one, or was added some other way"
BEFORE = "it existed before, or was added between two turns"
OLDER = "it may be in one of the {:,} oldest or longest versions of this file, which were left out"
SEVERAL = "it appeared in several turns"
GONE = "its session was deleted"


class LineOrigin(Struct, frozen=True):
    """The origin of a line; `reason` says why it is unknown, and `claims` are the turns in
    which it then may have been made. Of one from `git`, `reason` has the commit."""

    how: Literal["shown", "seen", "likely", "git", "unknown"]
    claims: tuple[Claim, ...] = ()
    reason: str = ""

    @property
    def is_known(self) -> bool:
        """True if the line is of one turn."""
        return self.how in ("shown", "seen", "likely")


class TurnFacts(Struct, frozen=True):
    """A turn that lines came from: `seq` is the entry of its prompt, `allowed` are lines about
    the answers to questions about the calls that showed them."""

    session_id: str
    title: str
    agent: str
    turn: int
    seq: int
    prompt: str
    allowed: tuple[str, ...] = ()


class LineRun(Struct):
    """Lines `first` to `last` of a file that have the same origin."""

    path: str
    first: int
    last: int
    origin: LineOrigin

    @property
    def turn(self) -> tuple[str, int]:
        """The session and the number of the turn that they came from, if it is known."""
        claim = self.origin.claims[0]
        return claim.session_id, claim.turn


class Lines(Struct, frozen=True):
    """Lines of a file, numbered from 1, of whose origin is asked; `path` is below the top."""

    path: str
    content: bytes
    lines: tuple[int, ...]


async def origins(
    journal: Journal, checkout: Checkout, asked: Sequence[Lines]
) -> list[dict[int, LineOrigin]]:
    """Return the origin of each line, in each of these files. Raises GitError, TimeoutError,
    BufferError and OSError."""
    stores = await stores_of(journal)
    named = await journal.snapshots.of_all()
    known = stores.find_for(checkout.common or checkout.top)
    ids = {one.store for _, one in named if one.root == checkout.top and one.store}
    ids |= {known.id} if known is not None else set()
    stores_found = [store for store in map(stores.find, sorted(ids)) if store is not None]
    by_folder: dict[tuple[str, str, str], list[TurnSnapshot]] = {}
    originals = {one.moment for _, one in named if not one.taken_for}
    for session_id, one in named:
        if one.taken_for and one.moment in originals:
            continue
        originals.add(one.moment)  # of copies, whose original is gone, the first
        if one.store in ids or (not one.is_kept and one.root == checkout.top):
            by_folder.setdefault((one.store, session_id, one.root), []).append(one)
    threads = Threads(1)
    paths = [it.path for it in asked]
    found_versions = [Versions() for _ in asked]
    for store in stores_found:
        of_store = {key: rows for key, rows in by_folder.items() if key[0] == store.id}
        rows_of_store = [*of_store.values()]
        files = await threads.run(read_files, store, rows_of_store, paths)
        chains: list[FolderHistory] = []
        for (_, session_id, _), rows in of_store.items():
            trees = [one.tree for one in rows if one.is_kept]
            if all(len({files.blobs.get((it, path)) for it in trees}) < 2 for path in files.paths):
                continue  # no file changed
            if (row := await row_of(journal, session_id)) is None:
                continue  # deleted meanwhile
            spans = await turn_spans(history(journal, session_id, brief=True))
            shown = await edits_by_turn(journal, row, spans, rows)
            chains.append(FolderHistory(row, spans, rows, shown))
        filling = VersionBuilder(files, chains)
        await threads.run(filling.fill, paths, found_versions)
    return await threads.run(_blame_lines, checkout, found_versions, asked)


def _blame_lines(
    checkout: Checkout, versions: Sequence[Versions], asked: Sequence[Lines]
) -> list[dict[int, LineOrigin]]:
    deadline = time.monotonic() + SECONDS
    found: list[dict[int, LineOrigin]] = []
    for of_file, lines in zip(versions, asked, strict=True):
        # A group and folders for each: nothing of one file can be met in another.
        with ExitStack() as held:
            group = held.enter_context(ProgramGroup(deadline))
            folder = held.enter_context(bare_folder())
            project = None
            if checkout.is_repository:
                bare = held.enter_context(bare_folder(object_format(checkout)))
                project = ProjectLines(group, checkout, bare)
            found.append(_FileOrigins(group, folder, of_file, project).of(lines))
    return found


class _FileOrigins:
    """Finds the origins of lines of one file."""

    def __init__(
        self, group: ProgramGroup, folder: str, versions: Versions, project: ProjectLines | None
    ) -> None:
        self._group = group
        self._folder = folder
        self._versions = versions
        self._project = project

    def of(self, asked: Lines) -> dict[int, LineOrigin]:
        """Return the origins of these lines."""
        versions = self._versions
        firsts = versions.origins(self._group, self._folder, asked.content, asked.lines)
        found = {line: _origin(versions, version) for line, version in firsts.items()}
        if self._project is None:
            return found
        texts = asked.content.split(b"\n")
        by_version: dict[tuple[str, bool], list[int]] = {}
        for line, origin in found.items():
            if origin.is_known and (version := firsts[line]) is not None:
                by_version.setdefault((version, origin.how == "shown"), []).append(line)
        for (version, is_shown), lines in by_version.items():
            for step in versions.git_steps[version]:
                if step.is_written is not is_shown:
                    continue
                brought = self._project.lines_from_git(step, {texts[line - 1] for line in lines})
                for line in lines:
                    if reason := brought.get(texts[line - 1]):
                        is_git = reason not in (COMMIT_GONE, STASH_GONE)
                        found[line] = self._earlier(texts[line - 1], step.since) or LineOrigin(
                            "git" if is_git else "unknown", reason=reason
                        )
        return found

    def _earlier(self, text: bytes, until: int) -> LineOrigin | None:
        """Return the origin of a line in the first snapshot that had it; None if no turn is it."""
        version = self._versions.first_with(text, until) if is_distinct(text) else None
        if version is None:
            return None
        content = self._versions.contents[version]
        number = content.split(b"\n").index(text) + 1
        origin = self.of(Lines("", content, (number,)))[number]
        return origin if origin.is_known else None


def _origin(versions: Versions, version: str | None) -> LineOrigin:
    """Return what is known of a line that first stood in this version."""
    older = OLDER.format(versions.left_out) if versions.left_out else ""
    if version is None:
        return LineOrigin(
            "unknown", reason=older or (NOT_KEPT if versions.contents else NO_SNAPSHOT)
        )
    claims = versions.claims[version]
    for is_shown in (True, False):
        of_kind = [claim for claim in claims if claim.is_shown is is_shown]
        turns = {(claim.session_id, claim.turn) for claim in of_kind}
        if len(turns) == 1:
            calls = tuple(dict.fromkeys(call for claim in of_kind for call in claim.calls))
            claim = Claim(of_kind[0].session_id, of_kind[0].turn, is_shown, calls)
            if is_shown:
                return LineOrigin("shown", (claim,))
            is_likely = all(it.is_likely for it in of_kind)
            return LineOrigin("likely" if is_likely else "seen", (claim,))
        if turns:
            return LineOrigin("unknown", tuple(of_kind), SEVERAL)
    is_oldest = version in versions.cut or not versions.parents[version]
    return LineOrigin("unknown", reason=(older if is_oldest else "") or BEFORE)


# -- what is known of a turn -------------------------------------------------------------------


async def prompts(
    journal: Journal, checkout: Checkout, asked: Sequence[Lines]
) -> tuple[list[LineRun], dict[tuple[str, int], TurnFacts]]:
    """Return these lines in runs of the same origin, and the turns that they came from, by session
    and number. Raises what `origins` raises."""
    found = await origins(journal, checkout, asked)
    every = [run for lines, its in zip(asked, found, strict=True) for run in runs(lines.path, its)]
    facts: dict[tuple[str, int], TurnFacts] = {}
    calls: dict[tuple[str, int], list[str]] = {}
    for run in every:
        if run.origin.is_known:
            calls.setdefault(run.turn, []).extend(run.origin.claims[0].calls)
    for (session_id, turn), its in calls.items():
        with suppress(UnknownSessionError):  # deleted meanwhile
            facts[session_id, turn] = await turn_facts(journal, session_id, turn, its)
    for run in every:
        if run.origin.is_known and run.turn not in facts:
            run.origin = LineOrigin("unknown", reason=GONE)
    return every, facts


def runs(path: str, origins: Mapping[int, LineOrigin]) -> list[LineRun]:
    """Return the lines of a file in runs of the same origin."""
    found: list[LineRun] = []
    for line, origin in sorted(origins.items()):
        if found and found[-1].last + 1 == line and found[-1].origin == origin:
            found[-1].last = line
        else:
            found.append(LineRun(storable(path), line, line, origin))
    return found


async def turn_facts(
    journal: Journal, session_id: str, turn: int, calls: Sequence[str]
) -> TurnFacts:
    """Return the prompt of a turn and the answers to questions about these calls; raises
    UnknownSessionError."""
    row = await journal.session(session_id)
    spans = await turn_spans(history(journal, session_id, brief=True))
    span = spans[turn - 1]
    seq, prompt = span.first, ""
    asked: dict[str, AskedQuestion] = {}
    answered: dict[str, list[str]] = {}
    async for segment in history(journal, session_id, span.first - 1, span.last):
        for entry in segment.entries():
            if not span.first <= entry.seq <= span.last:
                continue
            if not prompt and (words := document(entry).messages):
                prompt, seq = words[:PROMPT_CHARACTERS], entry.seq
            if entry.kind == QUESTION:
                question = asked_question(entry.raw)
                asked[question.id] = question
            elif entry.kind == ANSWER:
                closed = closed_question(entry.raw)
                if (about := asked.get(closed.question)) is None:
                    continue
                call = string(about.tool_call.get("toolCallId")) or ""
                if call in calls:
                    answered.setdefault(call, []).append(_answer(entry.raw, closed, about))
    allowed = dict.fromkeys(line for call in calls for line in answered.get(call, ()))
    return TurnFacts(session_id, row.title or "", row.agent, turn, seq, prompt, (*allowed,))


def _answer(raw: bytes, closed: ClosedQuestion, question: AskedQuestion) -> str:
    """Return the answer to a question, and who gave it."""
    if rule := members(members(raw).get("rule", b"")):
        texts = [text for it in items(rule.get("texts", b"")) if (text := string(it))]
        numbers = [it.decode() for it in items(rule.get("numbers", b""))]
        said = "; ".join(f"{n}: {text}" for n, text in zip(numbers, texts, strict=False))
        return f"by your rule {said}"
    if closed.outcome != "answered":
        return f"the question was {closed.outcome}"
    where = f" in {closed.client}" if closed.client else ""
    return f"answered{where} with “{closed.came(question).said}”"


async def folder_around(journal: Journal, file: str) -> Checkout | None:
    """Return the work tree of a file, or the folder that was kept with it in; None for none."""
    folder = os.path.realpath(os.path.dirname(os.path.abspath(file)))  # noqa: ASYNC240 - at hand
    found = checkout_of(folder)
    stores = await stores_of(journal)
    if found is not None and stores.find_for(found.common or found.top) is not None:
        return found
    root = root_around({one.root for _, one in await journal.snapshots.of_all()}, folder)
    return found if root is None else checkout_at(root) or Checkout(root)


def below(checkout: Checkout, file: str) -> str:
    """Return the path of a file below the top of its checkout."""
    folder = os.path.realpath(os.path.dirname(os.path.abspath(file)))
    return os.path.relpath(os.path.join(folder, os.path.basename(file)), checkout.top)
