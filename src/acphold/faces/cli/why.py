"""`acphold why`: the prompts that lines of a file, or of a commit, came from."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from shlex import quote

from msgspec.structs import replace

from acp_wire.markdown_text import plain
from acp_wire.workspace.regular_files import contents
from acphold.conversation.history.titles import shorten
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.journals import sessions_here
from acphold.faces.cli.settings import agent_name
from acphold.faces.cli.terminal_text import on_one_line, quantity, tell
from acphold.journal.journal import Journal
from acphold.live.origins.why import LineRun, Lines, TurnFacts, below, folder_around, prompts
from acphold.live.reading.json_facts import facts_json, place_name
from acphold.live.reading.local_reader import entries_of
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots.checkouts import Checkout, checkout_of, object_format
from acphold.safety.snapshots.comparison import CommitReader, bare_folder
from acphold.safety.snapshots.git import GitError

HOW = {
    "shown": "shown by the agent",
    "seen": "new in this turn, but not shown by the agent",
    "likely": "likely new in this turn, but not shown by the agent",
}

FILE_LINES = re.compile(r"(?s)(?P<file>.+):(?P<first>[1-9][0-9]{0,8})(-(?P<last>[1-9][0-9]{0,8}))?")

Facts = Mapping[tuple[str, int], TurnFacts]


@command("why", "[OPTIONS] FILE:LINE | COMMIT", options.JOURNAL, is_read=True)
async def why(
    *,
    target: str = options.argument(
        "FILE:LINE | COMMIT",
        "a line of a file, or lines: FILE:3-9; or a commit of the repository here",
    ),
    form: str = options.value(
        None,
        "text, or JSON with one object per line [default: text]",
        "--format",
        choices=("text", "json"),
        default="text",
    ),
    pr: bool = options.flag(
        "Markdown for a pull request, without secrets, home paths and addresses"
    ),
) -> int:
    """Show which prompt a line or a commit came from.

    This needs sessions whose files were kept. acphold searches for the content of a line in the
    snapshots of this repository, in all work trees and sessions; rebases, squashes and copies of a
    commit do not matter, and dates are ignored.

    "shown by the agent": the agent showed an edit that has the line; you see the prompt, the
    session, the agent, and the answer to the question about that edit. "new in this turn, but not
    shown by the agent": a command of the agent, you, or another session made it. "From git": git
    brought it in that turn, as with a merge, a checkout or a stash; you see the commit and its
    author. "Unknown": everything else, such as a line that changed between two turns, was there
    before the first snapshot, or was reformatted since.

    With --pr the prompts are redacted as in `export --redact`; read them before you publish them.
    With --format json each line is an object with path, firstLine, lastLine, how (shown, seen,
    likely, git, unknown), reason, sessionId, seq, turn, agent, prompt and allowed.
    """
    if pr and form != "text":
        raise UsageError("use --pr or --format, not both")
    named = FILE_LINES.fullmatch(target)
    commit: str | None = None
    try:
        async with sessions_here() as (reader, kept):
            if named and os.path.isfile(named["file"]):
                folder = await folder_around(kept, named["file"])
                if folder is None:
                    raise UsageError(
                        f"{named['file']} is not in a git repository, and was not kept"
                    )
                checkout = folder
                asked = [_lines_of_file(checkout, named)]
            else:
                checkout, commit, asked = await asyncio.to_thread(_lines_of_commit, target)
            runs, facts = await prompts(kept, checkout, asked)
            if pr:
                facts = {key: await _redact(kept, turn) for key, turn in facts.items()}
            ids = {session_id for session_id, _ in facts}
            ids |= {claim.session_id for run in runs for claim in run.origin.claims}
            short_ids = await reader.short_ids(ids)
    except (GitError, BufferError, OSError) as error:
        raise UsageError(f"{target}: {error}") from None
    if form == "json":
        for run in runs:
            print(facts_json(_json(run, facts)))
    elif pr:
        print("\n".join(_markdown(runs, facts)))
    else:
        title = f"commit {commit[:12]}" if commit else target
        for line in _text(title, runs, facts, short_ids):
            print(line)
    return Exit.OK


# -- the lines ---------------------------------------------------------------------------


def _lines_of_commit(target: str) -> tuple[Checkout, str, list[Lines]]:
    """Return the checkout, the id of the commit, and the lines that it added."""
    checkout = checkout_of(os.getcwd())
    if checkout is None or not checkout.is_repository:
        raise UsageError("this folder is not in a git repository")
    deadline = time.monotonic() + bounds.COMMIT_SECONDS
    kind = object_format(checkout)
    with ProgramGroup(deadline) as group, bare_folder(kind) as folder:
        reader = CommitReader(group, checkout, folder)
        try:
            commit = reader.resolve(target)
        except GitError:
            reason = f"no commit {target!r} here; for a line of a file: acphold why FILE:LINE"
            if os.path.isfile(target):
                reason = f"add a line: acphold why {quote(target)}:1"
            elif named := FILE_LINES.fullmatch(target):
                reason = f"no file {named['file']!r} and no commit {target!r} here"
            raise UsageError(reason) from None
        added = [it for it in reader.additions(commit) if it.lines]
        read = added[: bounds.COMMIT_FILES]
        if len(added) > len(read):
            tell(f"Only the first {len(read):,} of {len(added):,} files are checked.")
        found = reader.files.contents([it.blob for it in read], bounds.COMMIT_FILE_BYTES)
    texts = [it for it in read if it.blob in found and b"\0" not in found[it.blob]]
    return checkout, commit, [Lines(it.path, found[it.blob], it.lines) for it in texts]


def _lines_of_file(checkout: Checkout, named: re.Match[str]) -> Lines:
    file, first, last = named["file"], int(named["first"]), int(named["last"] or named["first"])
    try:
        content = contents(file, bounds.COMMIT_FILE_BYTES)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from None
    count = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    if not first <= last <= count:
        raise UsageError(f"{file} has {quantity(count, 'line')}")
    return Lines(below(checkout, file), content, tuple(range(first, last + 1)))


async def _redact(journal: Journal, facts: TurnFacts) -> TurnFacts:
    """Return the facts without secrets, as exports have them; RedactionError."""
    from acphold.conversation.exports.redacted import redactor_of  # late: few need it

    texts = {"title": facts.title, "prompt": facts.prompt, "allowed": [*facts.allowed]}
    redactor = await redactor_of(texts, partial(entries_of, journal, facts.session_id))
    shown = redactor.value(texts)
    assert isinstance(shown, dict)
    return replace(
        facts, title=shown["title"], prompt=shown["prompt"], allowed=tuple(shown["allowed"])
    )


# -- the output --------------------------------------------------------------------------


def _json(run: LineRun, facts: Facts) -> dict[str, object]:
    turn = facts[run.turn] if run.origin.is_known else None
    return {
        "path": run.path,
        "firstLine": run.first,
        "lastLine": run.last,
        "how": run.origin.how,
        "reason": run.origin.reason or None,
        "sessionId": turn and turn.session_id,
        "seq": turn and turn.seq,
        "turn": turn and turn.turn,
        "agent": turn and turn.agent,
        "prompt": turn and turn.prompt,
        "allowed": list(turn.allowed) if turn else [],
    }


def _by_turn(found: Sequence[LineRun]) -> dict[tuple[str, int], list[LineRun]]:
    """Return the lines of each turn that is known, in order of its first line."""
    turns: dict[tuple[str, int], list[LineRun]] = {}
    for run in found:
        if run.origin.is_known:
            turns.setdefault(run.turn, []).append(run)
    return turns


def _count(found: Sequence[LineRun]) -> int:
    return sum(run.last - run.first + 1 for run in found)


def _places(found: Sequence[LineRun]) -> str:
    """Return lines as text: `a.py 3-5, 9; b.py 1`."""
    files: dict[str, list[str]] = {}
    for run in found:
        lines = str(run.first) if run.first == run.last else f"{run.first}-{run.last}"
        files.setdefault(run.path, []).append(lines)
    return "; ".join(f"{path} {', '.join(lines)}" for path, lines in files.items())


def _beginning(prompt: str) -> str:
    """Return the beginning of a prompt, on one line."""
    return shorten(prompt, bounds.PROMPT_CHARACTERS)


def _describe_runs(found: Sequence[LineRun]) -> Iterator[str]:
    """Yield the lines of one turn: those that were shown, and the others."""
    for how, words in HOW.items():
        if runs := [run for run in found if run.origin.how == how]:
            yield f"{words}: {_places(runs)}"


def _text(
    title: str, found: Sequence[LineRun], facts: Facts, short_ids: Mapping[str, str]
) -> Iterator[str]:
    """Yield the answer for a person, in lines."""
    yield on_one_line(title)
    if not found:
        yield "  no lines of text were added"
    for key, runs in _by_turn(found).items():
        fact = facts[key]
        about = [
            place_name(short_ids[fact.session_id], fact.seq),
            f"turn {fact.turn}",
            agent_name(fact.agent),
            fact.title,
        ]
        yield ""
        yield on_one_line(f"“{_beginning(fact.prompt)}”")
        yield "  " + on_one_line(" · ".join(filter(None, about)))
        for line in _describe_runs(runs):
            yield "  " + on_one_line(line)
        if any(run.origin.how in ("seen", "likely") for run in runs):
            yield "  not shown means: a command of the agent, you, or another session made it"
        if any(run.origin.how == "shown" for run in runs):
            allowed = "; ".join(fact.allowed) or "nobody was asked about this edit"
            yield "  " + on_one_line(f"allowed: {allowed}")
    # The lines without a known turn, by reason, with the turns that may have made them.
    reasons: dict[tuple[str, str], list[LineRun]] = {}
    for run in found:
        if not run.origin.is_known:
            reasons.setdefault((run.origin.how, run.origin.reason), []).append(run)
    for (how, reason), runs in reasons.items():
        yield ""
        word = "From git" if how == "git" else "Unknown"
        yield on_one_line(f"{word}: {quantity(_count(runs), 'line')}: {_places(runs)}")
        yield "  " + on_one_line(reason)
        claims = sorted({(it.session_id, it.turn) for run in runs for it in run.origin.claims})
        if not claims:
            continue
        shown = claims[: bounds.TURNS_OF_LINE]
        turns = ", ".join(f"turn {turn} of {short_ids[session_id]}" for session_id, turn in shown)
        if len(claims) > len(shown):
            turns += f" and {len(claims) - len(shown)} more"
        yield "  " + on_one_line(turns)


def _markdown(found: Sequence[LineRun], facts: Facts) -> Iterator[str]:
    """Yield the answer for a pull request, in lines of Markdown."""
    turns = _by_turn(found)
    known = sum(map(_count, turns.values()))
    yield "### Prompts"
    yield ""
    for key, runs in turns.items():
        fact = facts[key]
        yield f"- {_quote(_beginning(fact.prompt))}"
        yield f"  {_quote('; '.join([agent_name(fact.agent), *_describe_runs(runs)]))}"
    if turns:
        yield ""
    every = quantity(_count(found), "line")
    yield f"{known:,} of {every} came from these turns; the others did not, or nobody knows."


def _quote(text: str) -> str:
    """Return a text of others on one line that Markdown shows as it is; it notifies nobody."""
    return plain(text).replace("@", "@\N{ZERO WIDTH SPACE}")
