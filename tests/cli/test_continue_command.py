"""`acphold` alone and `acphold continue`: find a conversation, and go on with it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from rich.cells import cell_len

from acphold.faces.cli.command_line import Exit
from tests.cli.conversation import remember
from tests.cli.place import Place, ask
from tests.editor import scripted_agent
from tests.raw_entries import ended, prompt

pytestmark = pytest.mark.slow

SETTINGS = "[agents.scripted]\ncommand = {}\n"


@pytest.fixture
def home(place: Place) -> Place:
    """A place whose settings know how the agent of its sessions is started."""
    (folder := place.folder / "config" / "acphold").mkdir(parents=True)
    (folder / "settings.toml").write_text(SETTINGS.format(json.dumps(list(scripted_agent()))))
    return place


def hold(home: Place, words: str, folder: Path | None = None) -> str:
    """Have a session in which the agent said this; its id."""
    prompt = json.dumps([{"say": words}])
    done = home.here("ask", prompt, "scripted", "--cwd", str(folder or os.getcwd()))
    assert done.code == 0, done.err
    listed = home.here("list", "--json").out.splitlines()
    title = f"about {words}"
    assert home.here("session", "rename", json.loads(listed[0])["sessionId"], title).code == 0
    return str(json.loads(listed[0])["sessionId"])


def test_acphold_alone_shows_all_sessions_and_words_and_enter_go_on_with_one(home: Place) -> None:
    (elsewhere := home.folder / "elsewhere").mkdir()
    hold(home, "apples")
    hold(home, "pears")
    hold(home, "plums", elsewhere)
    with home.on_terminal(columns=160) as one:
        shown = one.until("3 of 3", "Enter continues")
        places = [shown.index(it) for it in ("this folder", "pears", "apples", "other", "plums")]
        assert places == sorted(places), shown
        one.type("app", "1 of 3", "▸ Sc about apples", but="about pears")
        one.type("\r")
        one.until("to continue “about apples”", "agent  apples", "ready", but="Enter continues")
        one.type(json.dumps([{"say": "more of them"}]) + "\r", "agent  more of them", "ready")
        assert one.ended("\x04") == 0
        one.until("To continue: acphold continue")


def test_keys_for_a_session_are_offered_once_there_is_one_to_choose(home: Place) -> None:
    hold(home, "apples")
    with home.on_terminal("continue", columns=100) as one:
        one.until("▸ Sc about apples", "Enter continues", "^R rename")
        one.type("bananas", "no matches", "Esc clears", but="Enter continues")
        assert "^R rename" not in one.text
        assert one.ended("\r\x03") == 0


@pytest.mark.parametrize("columns", [60, 80, 99])
def test_of_a_long_path_the_last_folder_stays_readable_and_columns_line_up(
    home: Place,
    columns: int,
) -> None:
    deep = home.folder / "a-long-way" / "down-from-home" / "through-many-folders"
    for name, words in (("shop-eu", "apples"), ("店-日本", "pears")):
        (folder := deep / name).mkdir(parents=True)
        hold(home, words, folder)
    with home.on_terminal("continue", columns=columns) as one:
        shown = one.until("about apples", "about pears", "2 of 2")
        lines = [line for line in shown.splitlines() if "/shop-eu" in line or "/店-日本" in line]
        assert lines[0].rstrip().endswith("/店-日本")
        assert lines[1].rstrip().endswith("/shop-eu")
        assert all("  …" in line for line in lines), shown
        assert {cell_len(line.rstrip()) for line in lines} == {columns - 1}, shown


def test_from_a_hundred_columns_on_the_end_of_the_selected_session_stands_beside_the_list(
    home: Place,
) -> None:
    hold(home, "apples")
    hold(home, "pears")
    with home.on_terminal("continue", columns=100) as one:
        shown = one.until("▸ Sc about pears", "agent: pears", but="agent: apples")
        assert "│" in shown
        one.type("\x1b[B", "▸ Sc about apples", "agent: apples", but="agent: pears")
        one.type("\t", "▸ Sc about apples", but="│")
        assert one.ended("\x1b") == 0


def test_the_list_takes_all_rows_of_the_terminal(home: Place) -> None:
    for number in range(30):
        said = prompt(f"about apples {number}"), ended()
        remember(home.journal, f"s{number}", *said, title=f"about apples {number}", cwd=os.getcwd())
    with home.on_terminal("continue", columns=90) as one:
        shown = one.until("30 of 30", "about apples 0 ")  # the last row may come later
        assert sum("Sc about" in line for line in shown.splitlines()) == 30
        assert one.ended("\x1b") == 0


def test_what_was_said_is_found_below_and_its_end_is_shown(home: Place) -> None:
    hold(home, "apples")
    session = hold(home, "zwetschgen")
    home.run("session", "rename", session, "nothing of that kind")
    with home.on_terminal("continue", "zwetschgen", columns=90) as one:
        shown = one.until("found in the text", "▸ Sc nothing of that kind", "     zwetschgen")
        assert "1 of 2" in shown
        one.type("\t", "agent: zwetschgen")
        assert one.ended("\x03") == 0
        assert one.text == ""
        assert b"\x1b[6n" not in one.raw  # a slow terminal would be warned of, after two seconds


@pytest.mark.parametrize(
    ("pager", "ends"),
    [
        ({}, "(END)"),
        ({"LESS": "-FRX"}, "(END)"),
        ({"PAGER": "less -FX"}, "(END)"),
        ({"PAGER": "cat"}, "Any key goes back."),
    ],
)
def test_a_short_session_is_read_until_a_key_goes_back_to_the_list(
    home: Place, pager: dict[str, str], ends: str
) -> None:
    hold(home, "apples")
    hold(home, "pears")
    home.env = {k: v for k, v in home.env.items() if k not in ("PAGER", "LESS")} | pager
    with home.on_terminal("continue", columns=80) as one:
        one.until("▸ Sc about pears", "^O reads it")
        one.type("\x1b[B", "▸ Sc about apples")
        one.type("\x0f", "session ", "2 messages", "apples", ends, but="^O reads it")
        one.type("q", "▸ Sc about apples", "^O reads it", "2 of 2")
        assert one.ended("\x1b") == 0  # no words are typed that it would clear first


def test_what_waits_for_an_answer_stands_on_top(home: Place) -> None:
    hold(home, "apples")
    with home.on_terminal("chat", "scripted") as live, home.on_terminal("continue") as one:
        live.until("ready")
        live.type(json.dumps([ask(title="Run it")]) + "\r")
        live.until("Run it", ", then Enter")
        assert one.ended("\x1b") == 0
        with home.on_terminal("continue", columns=100) as again:
            shown = again.until("waiting for you", "waiting", "this folder", "about apples")
            assert shown.index("waiting for you") < shown.index("this folder")
            again.type("\r", "Run it", ", then Enter")


def test_a_session_is_renamed_and_deleted_from_the_list(home: Place) -> None:
    hold(home, "apples")
    hold(home, "pears")
    with home.on_terminal("continue", "apples", columns=100) as one:
        one.until("1 of 2")
        one.type("\x12", "New title:")
        one.type("\x15red apples\r", "is now red apples", "1 of 2", "▸ Sc red apples")
        one.type("\x1b[3~", "deleted 1 session, ^Z undoes", "0 of 1")
        one.type("\x1a", "Undone: deleted 1 session", "▸ Sc red apples")
        one.type("\x1b[3~", "^Z undoes", "0 of 1")
        assert "red apples" in home.run("list").stdout  # until the list is left
        one.type("\x03", "Deleted 1 session.")
        assert one.ended() == 0
    assert "red apples" not in home.run("list").stdout
    assert "about pears" in home.run("list").stdout


def test_several_sessions_are_archived_and_tagged_at_once_and_back_again(home: Place) -> None:
    for what in ("apples", "pears", "plums"):
        hold(home, what)

    def tags() -> list[list[str]]:
        return [json.loads(line)["tags"] for line in home.run("list", "--json").stdout.splitlines()]

    with home.on_terminal("continue", "about", columns=100) as one:
        one.until("3 of 3", "about apples")
        one.type("\x13\x1b[B\x13", "2 selected")
        asking = "Tags of 2 sessions, each one word (needs-review); - before one removes it:"
        one.type("\x14", asking)
        one.type("fruit salad; \r", asking, below="is no tag")
        one.type("\x13, fruit,\r", "tagged 2 sessions, ^Z undoes", "#fruit")
        assert sorted(tags()) == [[], ["fruit"], ["fruit"]]
        one.until("▸ Sc about pears")  # where it was
        one.type("\x1a", "Undone: tagged 2 sessions", "3 of 3")
        assert tags() == [[], [], []]
        one.type("\x13\x1b[B\x13\x18", "archived 2 sessions, ^Z undoes", "1 of 1")
        one.type("\x1a", "Undone: archived 2 sessions", "3 of 3")
        assert one.ended("\x03") == 0


def test_sessions_are_pinned_in_the_list_and_what_was_done_last_is_undone_first(
    home: Place,
) -> None:
    for what in ("apples", "pears", "plums"):
        hold(home, what)

    def listed() -> list[tuple[bool, str]]:
        rows = map(json.loads, home.run("list", "--json").stdout.splitlines())
        return [(row["pinned"], row["title"]) for row in rows]

    before = listed()
    with home.on_terminal("continue", "about", columns=100) as one:
        one.until("3 of 3")
        one.type("\x13\x1b[B\x13\x02", "pinned 2 sessions, ^Z undoes")
        assert sum(pinned for pinned, _ in listed()) == 2
        one.type("\x12", "New title:")
        one.type("\x15about figs\r", "renamed 1 session, ^Z undoes", "about figs")
        one.type("\x1a", "Undone: renamed 1 session", "Sc about apples")
        one.type("\x1a", "Undone: pinned 2 sessions")
        assert listed() == before
        assert one.ended("\x03") == 0


def test_a_copy_continues_at_once_with_the_agent_that_the_person_names(home: Place) -> None:
    session = hold(home, "apples")
    asking = "Continue in a copy: Enter for scripted, or another agent (demo):"
    with home.on_terminal("continue", "about", columns=100) as one:
        one.until("1 of 1", "▸ Sc about apples")
        one.type("\x06", asking)
        one.type("\x1b", "1 of 1", "▸ Sc about apples")
        one.type("\x06", asking)
        one.type("nobody\r", "no agent 'nobody'", asking)
        one.type("demo\r", "agent  apples", "ready · Demo agent")
        assert one.ended("\x04") == 0
    with home.on_terminal("continue", session, columns=100) as one:
        one.until("ready")
        assert one.ended("\x04") == 0
    rows = map(json.loads, home.run("list", "--json").stdout.splitlines())
    agents = {row["sessionId"] == session: row["agent"] for row in rows}
    assert agents == {True: "scripted", False: "demo-agent"}


def test_a_copy_whose_agent_cannot_be_started_goes_again(home: Place) -> None:
    remember(home.journal, "one", prompt("apples"), ended(), agent="codex-acp", title="apples")
    with home.on_terminal(columns=100) as one:
        one.until("1 of 1", "▸ Co apples")
        one.type("\x06", "Continue in a copy: Enter for codex")
        one.type("\r", "fetch it?")
        one.type("n\r", "Nothing is left of the copy", "1 of 1", "▸ Co apples")
        assert one.ended("\x1b") == 0


def test_an_archived_session_is_marked_where_its_words_find_it(home: Place) -> None:
    home.run("session", "archive", hold(home, "apples"))
    hold(home, "pears")
    with home.on_terminal("continue", "apples", columns=100) as one:
        one.until("found in the text", "about apples", "archived")
        assert one.ended("\x1b\x1b") == 0


def test_a_title_that_nobody_had_given_is_there_again_once_a_rename_is_undone(home: Place) -> None:
    remember(home.journal, "one", prompt("apples"), ended(), title="Apples")
    with home.on_terminal(columns=100) as one:
        one.until("1 of 1")
        one.type("\x12", "New title:")
        one.type("\x15Figs\r", "renamed 1 session, ^Z undoes", "▸ Sc Figs")
        one.type("\x1a", "Undone: renamed 1 session", "▸ Sc Apples")
        assert one.ended("\x03") == 0
    assert json.loads(home.run("list", "--json").stdout)["title"] == "Apples"


def test_an_id_and_an_agent_go_on_in_a_copy_with_it_unless_it_is_its_own(home: Place) -> None:
    session = hold(home, "apples")
    own = home.run("continue", session, "scripted", typed=json.dumps([{"say": "more"}]))
    assert (own.returncode, "more" in own.stdout) == (0, True), own.stderr
    assert len(home.run("list", "--json").stdout.splitlines()) == 1
    for words in ((session[:8], "demo"), ("demo", session[:8])):
        copied = home.run("continue", *words)
        assert copied.returncode == 0, copied.stderr
        assert copied.stderr.startswith("With demo, it continues in a copy (--with demo).\n")
    rows = map(json.loads, home.run("list", "--json").stdout.splitlines())
    assert sorted(row["agentName"] for row in rows) == ["demo", "demo", "scripted"]


def test_a_no_to_fetching_the_agent_of_a_chosen_session_leads_back_to_the_list(
    home: Place,
) -> None:
    remember(home.journal, "one", prompt("apples"), ended(), agent="codex-acp", title="apples")
    remember(home.journal, "two", prompt("pears"), ended(), agent="codex-acp", title="pears")
    with home.on_terminal(columns=160) as one:
        one.until("2 of 2", "Enter continues")
        one.type("app", "1 of 2")
        one.type("\r", "fetch it?")
        one.type(
            "n\r", "1 of 2", "▸ Co apples", "^F in the list continues it", but="install it with"
        )
        one.type("\r", "fetch it?", below="[y/N]: n")
        one.process.send_signal(
            signal.SIGINT
        )  # as Ctrl-C, for which it lacks a terminal of its own
        assert one.ended() == 130


def test_options_may_stand_between_the_words_of_a_command(home: Place) -> None:
    hold(home, "apples")
    prompt = json.dumps([{"say": "more of them"}])
    done = home.run("ask", prompt, "--continue", "scripted")
    assert (done.returncode, done.stdout) == (0, "more of them\n"), done.stderr
    [line] = home.run("list", "--json").stdout.splitlines()
    assert json.loads(line)["messageCount"] == 4
    found = home.run("search", "more", "--json", "them").stdout.splitlines()
    assert [json.loads(hit)["speaker"] for hit in found].count("agent") == 1
    assert "no option" not in home.run("search", "--", "-x", "apples").stderr


def test_a_folder_that_is_gone_is_told_and_another_one_taken(home: Place, tmp_path: Path) -> None:
    folder, other = tmp_path / "soon gone", tmp_path / "there"
    folder.mkdir()
    other.mkdir()
    session = hold(home, "apples", folder)
    folder.rmdir()
    for words in (["continue", session], ["ask", "more", "--session", session]):
        done = home.run(*words)
        assert done.returncode == Exit.USAGE
        assert f"this session's folder no longer exists: {folder}; continue in" in done.stderr
    assert "does not exist" in home.run("continue", session, "--cwd", str(folder)).stderr
    more = json.dumps([{"say": "more"}])
    done = home.run("continue", session, "--cwd", str(other), typed=more)
    assert (done.returncode, "more" in done.stdout) == (0, True), done.stderr
    assert f"moves from {folder} to {other}" in done.stderr
    [line] = home.run("list", "--json", "--cwd", str(other)).stdout.splitlines()
    assert (json.loads(line)["sessionId"], json.loads(line)["messageCount"]) == (session, 4)
    folder.mkdir()
    done = home.run("ask", more, "--session", session, "--cwd", str(folder))
    assert (done.returncode, done.stdout) == (0, "more\n"), done.stderr
    [line] = home.run("list", "--json").stdout.splitlines()
    assert json.loads(line)["cwd"] == str(folder)
