"""aider's chats: a log in Markdown in the folder of each project."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from acphold.imports import Home, Intake
from acphold.imports.aider import HISTORY, READER
from acphold.imports.sources import FOLDERS
from acphold.journal.journal import Journal
from acphold.journal.rows import ListFilter
from tests.imports.told import Story, sources


def ms(words: str) -> int:
    """A local time, as aider writes it."""
    return int(datetime.fromisoformat(words).timestamp() * 1000)


BEGUN = "\n# aider chat started at 2026-01-02 03:04:05\n\n"
STARTED = (
    "> Aider v0.86.2  \n> Main model: openai/gpt-5 with diff edit format  \n> Repo-map: off  \n"
)
ANSWER = """
I change it:

notes.txt
```
<<<<<<< SEARCH
one
=======
two
>>>>>>> REPLACE
```

#### What is next
> nothing

"""
COST = (
    "> Tokens: 4.6k sent, 1.5k cache hit, 137 received. Cost: $0.0025 message, $0.01 session.  \n"
)


def project(home: Path, *said: str, name: str = "code/project") -> Path:
    path = home / name / HISTORY
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(said))
    return path


def test_a_chat_is_told_as_it_was_held(tmp_path: Path) -> None:
    path = project(
        tmp_path,
        BEGUN,
        STARTED,
        "\n#### Change one  \n#### to two.  \n",
        ANSWER,
        COST,
        "> Applied edit to notes.txt  \n> Commit 5ac5b53 Two  \n",
        "\n#### /add other.txt  \n> Added other.txt to the chat  \n",
        "\n#### /drop  \n\n#### /exit  \n",
    )
    typed = "\n# 2026-01-02 03:05:00.123456\n+Change one\n+to two.\n"
    path.with_name(".aider.input.history").write_text(typed)
    told = Story.of(READER, tmp_path)
    assert (told.facts.agent, told.facts.cwd) == ("aider", str(path.parent))
    assert told.facts.session_id.startswith("2026-01-02T030405-")
    assert told.facts.created_at == ms("2026-01-02 03:04:05")
    assert told.entries[0].at == ms("2026-01-02 03:05:00.123")
    assert told.said() == [
        ("user", "Change one\nto two."),
        ("agent", ANSWER.strip()),
        ("call", "Edit notes.txt"),
        ("agent", "> Commit 5ac5b53 Two"),
        ("user", "/add other.txt"),
        ("agent", "> Added other.txt to the chat"),
        ("user", "/drop"),
        ("user", "/exit"),
    ]
    (shown,) = told.call()["content"]
    assert (shown["path"], shown["oldText"], shown["newText"]) == (
        f"{path.parent}/notes.txt",
        "one",
        "two",
    )
    first, *_ = told.ends()
    counts = {"inputTokens": 4600, "outputTokens": 137, "cachedReadTokens": 1500}
    assert first["usage"] == counts | {"totalTokens": 6237}
    assert first["_meta"]["acphold/model"] == "openai/gpt-5"
    assert first["_meta"]["acphold/soFar"]["cost"] == {"amount": 0.0025, "currency": "USD"}


def test_prompts_that_lost_the_spaces_behind_them_are_counted(tmp_path: Path) -> None:
    project(tmp_path, BEGUN, "> Aider v0.86.2\n\n#### One.\n\n#### Two.\n\nDone.\n")
    told = Story.of(READER, tmp_path)
    assert told.facts.missed.counts == {"prompts without the two spaces behind them": 2}


def test_each_chat_of_a_file_is_one_and_keeps_its_name_when_the_file_grows(tmp_path: Path) -> None:
    again = BEGUN.replace("03:04:05", "04:00:00")
    path = project(tmp_path, BEGUN, "\n#### One.  \n\nFirst.\n\n", again, "\n#### Two.  \n")
    before = sources(READER, tmp_path)
    assert [Story(READER, source).said() for source in before] == [
        [("user", "One."), ("agent", "First.")],
        [("user", "Two.")],
    ]
    with path.open("a") as file:
        file.write("\nSecond.\n\n" + again + "\n#### Three.  \n")
    after = sources(READER, tmp_path)
    assert [source.session_id for source in after][:2] == [one.session_id for one in before]
    assert before[0] == after[0]
    assert before[1] != after[1]
    assert len({source.session_id for source in after}) == 3


def test_an_answer_that_was_not_made_and_a_search_without_an_end_are_told_as_text(
    tmp_path: Path,
) -> None:
    half = "\nnotes.txt\n<<<<<<< SEARCH\none\n"
    project(tmp_path, BEGUN, "\n#### Change it.  \n", half, "> Applied edit to notes.txt  \n")
    told = Story.of(READER, tmp_path)
    assert "content" not in told.call()
    assert told.said()[1] == ("agent", half.strip())


@pytest.mark.parametrize("words", ["4.6.6k", "k", "9" * 400, "1e5"])
def test_a_number_that_is_none_costs_only_itself(tmp_path: Path, words: str) -> None:
    cost = f"> Tokens: {words} sent, {words} received. Cost: $1.2.3 message.  \n"
    project(tmp_path, BEGUN, "\n#### Hello.  \n\nHi.\n\n", cost, "\n#### Bye.  \n")
    assert [who for who, _ in Story.of(READER, tmp_path).said() if who == "user"] == ["user"] * 2


def test_one_s_own_projects_are_found_and_what_others_checked_in_is_not(tmp_path: Path) -> None:
    own = Home(tmp_path, {"HOME": str(tmp_path)})
    for name in ("mine", "a/b/c/deep", "a/b/c/d/e/too-deep", ".cache/x", "x/node_modules/y", "z"):
        project(tmp_path, BEGUN, "\n#### Hello.  \n", name=name)
    cloned = project(tmp_path, BEGUN, "\n#### Theirs.  \n", name="cloned/inner").parent
    (tmp_path / "link").symlink_to(cloned)
    for command in (["init", "-q", ".."], ["add", "-f", HISTORY]):
        subprocess.run(["git", *command], cwd=cloned, check=True)
    (tmp_path / "z" / HISTORY).unlink()
    (tmp_path / "z" / HISTORY).symlink_to(cloned / HISTORY)
    found = [os.path.relpath(source.paths[0], tmp_path) for source in READER.find(own)]
    assert found == [f"mine/{HISTORY}", f"a/b/c/deep/{HISTORY}"]
    assert len(sources(READER, tmp_path / "cloned")) == 1


def test_of_many_folders_those_that_are_not_so_deep_are_looked_at(tmp_path: Path) -> None:
    for number in range(FOLDERS + 10):
        (tmp_path / f"{number:05}").mkdir()
    project(tmp_path, BEGUN, "\n#### Hello.  \n", name="00000")
    project(tmp_path, BEGUN, "\n#### Hello.  \n", name="99999")
    assert len(sources(READER, tmp_path)) == 1


def test_a_pipe_or_a_file_without_a_chat_is_none(tmp_path: Path) -> None:
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / HISTORY)
    project(tmp_path, "#### Hello.  \n", name="none")
    (tmp_path / "zeros").mkdir()
    (tmp_path / "zeros" / HISTORY).write_bytes(b"\x00" * 100_000)
    assert sources(READER, tmp_path) == []


def test_the_file_that_the_environment_names_is_read(tmp_path: Path) -> None:
    path = project(tmp_path / "elsewhere", BEGUN, "\n#### Hello.  \n", name=".hidden")
    (tmp_path / "home").mkdir()
    home = Home(tmp_path / "home", {"AIDER_CHAT_HISTORY_FILE": str(path)})
    (source,) = READER.find(home)
    assert Story(READER, source).said() == [("user", "Hello.")]
    assert json.loads(Story(READER, source).entries[0].raw) == [{"type": "text", "text": "Hello."}]


async def test_a_project_that_was_moved_or_renamed_has_the_same_chats(
    opened: Journal, tmp_path: Path
) -> None:
    async def take(place: str, *said: str, **more: str) -> list[tuple[str, str]]:
        said = BEGUN, "\n#### One.  \n\nFirst.\n\n", *said
        project(tmp_path / place, *said, name=f"code/{place}")
        (source,) = sources(READER, tmp_path / place)
        await Intake(opened).take(replace(source, **more), READER)
        rows = await opened.page(ListFilter())
        return [(row.session_id, str(row.message_count)) for row in rows]

    (source,) = [
        *sources(
            READER, project(tmp_path / "1", BEGUN, "\n#### One.  \n", name="code/1").parents[2]
        )
    ]
    its_id = source.default_id  # as an earlier release called and knew it
    assert await take("1", session_id=its_id, kept_as="") == [(its_id, "2")]
    assert await take("1") == [(its_id, "2")]
    assert await take("2", "\n#### Two.  \n\nSecond.\n\n") == [(its_id, "4")]
    await opened.delete(its_id)
    assert await take("2") == []


async def test_a_chat_that_an_earlier_release_told_beside_another_grows_there(
    opened: Journal, tmp_path: Path
) -> None:
    said = BEGUN, "\n#### One.  \n\nFirst.\n\n"
    for apart, more in ((False, ""), (True, ""), (False, "\n#### Two.  \n\nSecond.\n\n")):
        project(tmp_path, *said, more)
        (source,) = sources(READER, tmp_path)
        before = replace(source, session_id=source.kept_as, kept_as="", apart=apart)
        await Intake(opened).take(source if more else before, READER)
    rows = await opened.page(ListFilter())
    assert {row.session_id: row.message_count for row in rows} == {
        before.session_id: 2,
        replace(before, apart=True).downstream_id: 4,
    }


def test_zeros_that_a_crash_left_are_no_words(tmp_path: Path) -> None:
    said = "#### continue  \n\nDone.\n" + "\0" * 300 + "\n\n#### Again.  \n\nDone.\n\n"
    project(tmp_path, BEGUN, said + "\0" * 4096)
    (source,) = sources(READER, tmp_path)
    told = Story(READER, source)
    assert [words for _, words in told.said()] == ["continue", "Done.", "Again.", "Done."]
    assert told.facts.missed.sizes["zeros in the place of records"] == 4396


def test_a_line_that_was_cut_in_its_mark_is_told_once_it_is_whole(tmp_path: Path) -> None:
    for cut, said in (("##", []), ("#### Tw", []), ("#### Two.  \n", [("user", "Two.")])):
        project(tmp_path, BEGUN, "#### One.  \n\n1\n\n", cut)
        assert Story.of(READER, tmp_path).said() == [("user", "One."), ("agent", "1"), *said]


TURNS = ("\n#### One.  \n", "\n1\n\n", COST, "\n#### Two  \n#### words.  \n", "\n2\n\n")


def test_what_a_kill_cut_is_no_part_of_an_answer_once_another_chat_follows(tmp_path: Path) -> None:
    whole = "".join((BEGUN, STARTED, *TURNS))
    again = BEGUN.replace("03:04:05", "04:00:00") + "\n#### Three.  \n\n3\n\n"
    begun = [whole.index(words) for words in TURNS]
    for upto in range(len(BEGUN), len(whole)):
        project(tmp_path, whole[:upto], again)
        first, second = (Story(READER, source).said() for source in sources(READER, tmp_path))
        assert second == [("user", "Three."), ("agent", "3")]
        expected = [("user", "One.")] if upto > begun[0] + len("\n#### One. ") else []
        expected += [("agent", "1")] if upto > begun[1] + 1 else []
        if upto > begun[3] + len("\n#### Two  \n#### words. "):
            expected += [("user", "Two\nwords.")]
        elif upto > begun[3] + len("\n#### Two "):
            expected += [("user", "Two")]
        expected += [("agent", "2")] if upto > begun[4] + 1 else []
        assert first == expected, whole[:upto]


def test_answers_around_zeros_that_a_crash_left_do_not_run_together(tmp_path: Path) -> None:
    zeros = "\0" * len(TURNS[3])
    project(tmp_path, BEGUN, *TURNS[:2], zeros, TURNS[4])
    assert Story.of(READER, tmp_path).said() == [("user", "One."), ("agent", "1"), ("agent", "2")]
