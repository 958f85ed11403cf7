"""`acphold import --explain ID` and `--again ID`: one conversation and the files it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from acphold import errors
from acphold.conversation.history.titles import shorten
from acphold.faces.cli.command_line import Exit, confirm
from acphold.faces.cli.terminal_text import (
    folder,
    local,
    on_one_line,
    size,
    tell,
    visible,
    visible_json,
)
from acphold.imports import (
    OUTCOMES,
    Explanation,
    Home,
    ImportSelection,
    Intake,
    SourceSearch,
    explain,
    failure,
    reader,
    whole_id,
)
from acphold.journal.journal import row_of
from acphold.live.reading.local_reader import existing_journal

WORDS = 60
"""Characters shown of a prompt."""


async def explain_one(session_id: str, home: Home, names: Iterable[str], *, as_json: bool) -> int:
    """Print which files a session comes from, which turns each has, and what was left out."""
    async with existing_journal() as journal:
        session_id = (await journal.resolve(session_id)).session_id
        search = SourceSearch(journal, home)
        found = await search.of(session_id, names)
        told = await explain(journal, session_id, found)
    for unread in search.unread:
        tell(f"cannot read {on_one_line(folder(unread))}")
    if as_json:
        whole = msgspec.to_builtins({"sessionId": session_id, **asdict(told)})
        print(visible_json(json.dumps(whole, ensure_ascii=False)))
    else:
        print(visible("\n".join(_lines(told))))
    return Exit.OK


def _lines(told: Explanation) -> Iterable[str]:
    yield "Files" if told.sources else "No file has it: it was held here, or its files are gone."
    for source in told.sources:
        changed = local(source.changed_at)
        whole = "all else is here" if source.taken_out else "all of it is here"
        state = whole if source.is_current else "not current"
        if source.problem:
            state = f"cannot be read: {on_one_line(source.problem)}"
        where = on_one_line(folder(source.file))
        yield f"  {where}: {source.reader}, {size(source.size)}, {changed}; {state}"
        for moment in source.taken_out:
            yield f"    forgotten by you: the turn of {local(moment)}"
        for words in source.left_out:
            yield f"    left out: {shorten(on_one_line(words), WORDS)}"
        for what, count in source.missed.most_common():
            yield f"    skipped: {on_one_line(what)} ({count:,})"
    yield "Turns"
    places = {source.file: Path(source.file).name for source in told.sources}
    for turn in told.turns:
        at = local(turn.at)
        where = ", ".join(on_one_line(places[file]) for file in turn.files) or "in no file"
        yield f"  {turn.seq:>6}  {at}  {shorten(on_one_line(turn.words), WORDS)}  ({where})"


async def take_again(
    session_id: str, home: Home, names: Iterable[str], selection: ImportSelection, *, sure: bool
) -> int:
    """Take one conversation in anew; ask first if it was deleted here, unless `sure`."""
    async with existing_journal() as journal:
        intake = Intake(journal, selection)
        try:
            session_id = (await journal.resolve(session_id)).session_id
        except errors.UnknownSessionError:  # it was deleted here
            with suppress(errors.UnknownSessionError):
                session_id = whole_id(session_id, home, names)
        search = SourceSearch(journal, home)
        found = await search.of(session_id, names)
        for unread in search.unread:
            tell(f"cannot read {on_one_line(folder(unread))}")
        if not found:
            tell(f"acphold import: no file has the conversation {visible(session_id)}")
            return Exit.ERROR
        if await row_of(journal, session_id) is None:
            expected = [await intake.expect(source, reader(source.reader)) for source in found]
            question = f"{visible(session_id)} was deleted here. Import it again?"
            if "deleted" in expected and not confirm(question, "imported", sure=sure):
                return Exit.ERROR
        for source in found:
            is_first = source is found[0]
            try:
                taken = await intake.take(source, reader(source.reader), again=is_first)
            except (OSError, errors.TranscriptError) as error:
                tell(on_one_line(failure(error, source.paths[0])))
                return Exit.ERROR
            where = on_one_line(folder(source.place))
            if is_first and taken.outcome not in ("new", "apart", "grown"):
                tell(f"{where}: {OUTCOMES.get(taken.outcome, 'nothing was said in it')}")
                return Exit.ERROR
            print(f"{where}: {'read anew' if is_first else 'compared'}")
    return Exit.OK
