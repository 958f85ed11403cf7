"""`--server`: commands over the sessions of a real `acphold serve`."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from acphold.faces.cli.main import COMMANDS, parser_of
from tests.cli.command_line import run_here
from tests.cli.place import ask
from tests.editor import scripted_agent
from tests.screen_terminal import terminal
from tests.web.conftest import ACPHOLD, Served, serving
from tests.web.network import own_port
from tests.web.test_all_agents import two_agents

pytestmark = pytest.mark.slow

SECONDS = 60

RUN = ask(title="Run it", kind="execute", rawInput={"command": "make all"})


def far(
    served: Served, *words: str, typed: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """A command on the laptop, in a pipe, or in this process if it only reads what is there."""
    if words[0] in ("list", "search", "show", "export", "inbox"):
        done = run_here(words, laptop(served) | env)
        return subprocess.CompletedProcess(words, done.code, done.out, done.err)
    return subprocess.run(
        [*ACPHOLD, *words],
        input=typed,
        env=laptop(served) | env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def laptop(served: Served) -> dict[str, str]:
    """Another machine: it has no journal, and a folder for state of its own."""
    home = served.folder / "laptop"
    return served.env | {
        "ACPHOLD_JOURNAL": str(home / "journal.db"),
        "XDG_STATE_HOME": str(home),
        "TERM": "xterm",
    }


def test_a_session_is_begun_gone_on_with_and_joined_over_a_server(served: Served) -> None:
    here = str(served.folder)
    code = f"{served.url}#pair={served.pair}"
    begun = far(served, "chat", "--server", code, "--cwd", here, typed="quick: one\n")
    assert begun.returncode == 0, begun.stderr
    assert "You said: quick: one" in begun.stdout
    # From then on the machine's name will do, or a variable.
    on = far(served, "chat", "--continue", typed="quick: two\n", ACPHOLD_SERVER="localhost")
    assert on.returncode == 0, on.stderr
    assert "quick: one" in on.stdout
    assert "You said: quick: two" in on.stdout
    session_id = served.run("list", "--json").partition('"sessionId":"')[2].partition('"')[0]
    for words in (
        ("continue", session_id[:6]),
        ("chat", "--resume", session_id),
        ("continue", "-"),
    ):
        joined = far(served, *words, "--server", "localhost", typed="quick: three\n")
        assert joined.returncode == 0, joined.stderr
        assert "You said: quick: three" in joined.stdout
    assert len(served.run("list", "--all", "--json").splitlines()) == 1
    unknown = far(served, "continue", "nothing", "--server", "localhost")
    assert unknown.returncode == 3
    assert "no session 'nothing'" in unknown.stderr


def test_what_stands_in_the_way_of_a_server_is_said_with_what_to_do(served: Served) -> None:
    nobody = f"http://localhost:{own_port()}"
    told = {
        ("--server", served.url): "has not paired with it",
        ("--server", f"{served.url}#pair=WRONG"): "does not accept this code",
        ("--server", f"{nobody}#pair=X"): "is `acphold serve` running?",
        ("--server", "cellar"): "no server is known as 'cellar'",
        ("--server", "https://"): "is not the address of a server",
        ("--server", served.url, "--host", "desk"): "not both",
        ("--server", served.url, "--journal", "x.db"): "--server and --journal",
    }
    for words, why in told.items():
        done = far(served, "continue", "x", *words)
        assert done.returncode in (1, 2), done
        assert why in done.stderr
        assert "Traceback" not in done.stderr
    done = far(served, "chat", "--server", served.url, "--", "some-agent")
    assert "takes the name of an agent on that server" in done.stderr
    far(served, "continue", "x", "--server", f"{served.url}#pair={served.pair}")
    tokens = served.run("access", "list")
    served.run("access", "revoke", *(line.split()[0] for line in tokens.splitlines()[1:]))
    until = time.monotonic() + SECONDS  # the server looks at its tokens now and then
    while "the token was revoked" not in (
        said := far(served, "continue", "x", "--server", served.url).stderr
    ):
        assert time.monotonic() < until, said


def test_sessions_of_a_server_are_listed_found_shown_and_followed(served: Served) -> None:
    server = ("--server", f"{served.url}#pair={served.pair}")
    begun = far(served, "chat", *server, "--cwd", str(served.folder), typed="quick: a needle\n")
    assert begun.returncode == 0, begun.stderr
    server = ("--server", "localhost")
    for words in (
        ("list", "needle"),
        ("list", "--live", "--limit", "1", "--json"),
        ("search", "needle"),
        ("search", "needle", "--json", "--in", "messages", "--rank", "--limit", "1"),
    ):
        there = far(served, *words, *server)
        assert there.returncode == 0, (words, there.stderr)
        assert "needle" in there.stdout, words
        assert "Traceback" not in there.stderr
    assert "No results" in far(served, "search", "haystack", *server).stderr
    session_id = served.run("list", "--json").partition('"sessionId":"')[2].partition('"')[0]
    assert far(served, "show", session_id[:6], "--json", *server).stdout == (
        served.run("show", session_id, "--json") + "\n"
    )
    place = far(served, "search", "needle", "--json", *server).stdout.splitlines()[0]
    place = place.partition('"place":"')[2].partition('"')[0]
    assert "needle" in far(served, "show", place, *server).stdout
    assert far(served, "show", "nothing", *server).returncode == 3
    follow = subprocess.Popen(
        [*ACPHOLD, "show", "--follow", session_id[:6], *server],
        env=laptop(served),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert follow.stdout is not None
        while "a needle" not in (line := follow.stdout.readline()):
            assert line
        far(served, "chat", "--resume", session_id, *server, typed="quick: another\n")
        while "You said: quick: another" not in (line := follow.stdout.readline()):
            assert line
    finally:
        follow.kill()
        follow.communicate()


def test_what_happened_to_sessions_while_a_server_restarts_is_told(served: Served) -> None:
    server = ("--server", f"{served.url}#pair={served.pair}")
    for name in ("one", "two", "three"):
        typed = f"quick: {name}\n"
        far(served, "chat", *server, "--cwd", str(served.folder), typed=typed)
        server = ("--server", "localhost")
    rows = map(json.loads, served.run("list", "--json").splitlines())
    ids = {row["title"].split()[-1]: row["sessionId"] for row in rows}
    words = (*ACPHOLD, "list", "--follow", *server)
    follow = subprocess.Popen(
        words, env=laptop(served), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert follow.stdout is not None
        assert follow.stderr is not None
        while "quick: one" not in (line := follow.stdout.readline()):
            assert line
        served.kill()
        served.run("session", "delete", "--yes", ids["one"])
        served.run("session", "archive", ids["two"])
        served.run("session", "rename", ids["three"], "Renamed")
        port = served.url.rpartition(":")[2]
        served.words[served.words.index("127.0.0.1:0")] = f"127.0.0.1:{port}"
        served.start_alone_again()
        told = [follow.stdout.readline().split()[1:3] for _ in range(3)]
        assert "reconnecting" in follow.stderr.readline()
        assert "Reconnected to" in follow.stderr.readline()
        short = {name: id_[:8] for name, id_ in ids.items()}
        assert sorted(told) == [
            ["archived", short["two"]],
            ["completed", short["three"]],
            ["deleted", short["one"]],
        ]
    finally:
        follow.kill()
        follow.communicate()


@pytest.mark.parametrize("served", [[]], ids=[""], indirect=True)
def test_every_command_over_a_server_is_for_whose_a_session_is_and_for_those_it_is_shared_with(
    served: Served,
) -> None:
    tokens = {user: served.token("--user", user) for user in ("alice", "rita", "eve")}

    def run(user: str, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        variables = {"ACPHOLD_TOKEN": tokens[user], "XDG_STATE_HOME": str(served.folder / user)}
        done = far(served, *words, "--server", served.url, typed=typed, **variables)
        assert "Traceback" not in done.stderr
        return done

    begun = run("alice", "chat", "--cwd", str(served.folder), typed="quick: a needle\n")
    assert begun.returncode == 0, begun.stderr
    session_id = json.loads(run("alice", "list", "--json").stdout)["sessionId"]
    served.run("access", "share", session_id, "--with", "rita")
    finding = [("list", "--json"), ("search", "needle", "--json")]
    naming = [("show", session_id), ("export", session_id)]
    going_on = [
        ("continue", session_id),
        ("continue", "--watch", session_id),
        ("chat", "--resume", session_id),
    ]
    following = [("show", "--follow", session_id)]
    tried = (*finding, *naming, *going_on, *following, ("inbox",))
    assert {words[0] for words in tried} | {"check", "usage"} == {
        name
        for name in COMMANDS
        if any("--server" in action.option_strings for action in parser_of(name)._actions)
    }
    for words in finding:
        assert session_id in run("rita", *words).stdout, words
        assert run("eve", *words).stdout == "", words
    assert run("eve", "inbox", "--history", "--json").stdout == ""
    assert run("rita", "usage").returncode == 1  # sums are of all sessions together
    for words in naming:
        assert "needle" in run("rita", *words).stdout, words
    for words in (*naming, *following, *going_on):
        done = run("eve", *words, typed="quick: mine\n")
        assert (done.returncode, done.stdout) == (3, ""), (words, done)
        assert "no session" in done.stderr, words
    done = run("rita", "continue", session_id, typed="quick: mine\n")
    assert done.returncode != 0
    assert "not shared with you" in done.stdout + done.stderr
    assert "mine" not in run("alice", "show", session_id).stdout


def test_sessions_of_a_server_are_chosen_from_a_list_with_what_goes_on_and_what_was_said(
    served: Served,
) -> None:
    here, server = str(served.folder), ("--server", f"{served.url}#pair={served.pair}")
    for said in ("quick: apples", "quick: pears"):
        far(served, "chat", *server, "--cwd", here, typed=f"{said}\n")
        server = ("--server", "localhost")
    with terminal([*ACPHOLD, "continue", *server], laptop(served)) as one:
        one.until("2 of 2", "running or idle", "apples", "pears")
        one.type("you said apples", "found in the text")
        one.type("\t", "You said: quick: apples")
        one.type("\r", "ready")
        one.type("/resume pears\r", "1 of 2")
        one.type("\r", "You said: quick: pears", "ready")
        assert one.ended("\x04") == 0
    with terminal([*ACPHOLD], laptop(served) | {"ACPHOLD_SERVER": "localhost"}) as one:
        one.until("2 of 2")
        assert one.ended("\x1b") == 0
    with terminal([*ACPHOLD, "show", *server], laptop(served)) as one:
        one.until("2 of 2", "Enter shows it")
        one.type("apples\r", "You said: quick: apples")
    piped = far(served, "continue", *server)
    assert piped.returncode == 2
    assert "in a pipe, an ID is required" in piped.stderr
    on = far(served, "continue", "-", *server, typed="quick: on\n")
    assert "You said: quick: on" in on.stdout, on.stderr


def test_what_waits_at_a_server_is_seen_and_answered_from_another_machine(tmp_path: Path) -> None:
    steps = [RUN]
    with serving(tmp_path, agent=tuple(scripted_agent(steps=steps))) as served:
        server = ("--server", f"{served.url}#pair={served.pair}")
        assert "Nothing is waiting" in far(served, "inbox", *server).stderr
        server = ("--server", "localhost")
        chatting = [*ACPHOLD, "chat", *server, "--cwd", str(served.folder)]
        with terminal(chatting, laptop(served)) as chat:
            chat.until("ready")
            chat.type("please\r", ", then Enter")
            (question,) = far(served, "inbox", "--json", *server).stdout.splitlines()
            assert json.loads(question)["asks"] == "Run it"
            assert "command: make all" in far(served, "inbox", *server).stdout
            with terminal([*ACPHOLD, "inbox", *server], laptop(served)) as inbox:
                inbox.until("command: make all", ", then Enter")
                inbox.type("y\r", "allowed once: Run it → Go on")
                assert inbox.ended() == 0
            chat.until('"go"', "ready")
            decided = far(served, "inbox", "--history", "--json", *server).stdout
            assert json.loads(decided)["how"] == "allow_once"
            chat.type("\x04")


def test_a_person_who_pairs_in_a_terminal_is_told_how_to_go_on(served: Served) -> None:
    code = f"{served.url}#pair={served.pair}"
    for url in (code, code, served.url):  # the code is used up, and this machine known by it
        with terminal([*ACPHOLD, "connect", url], laptop(served)) as one:
            one.until("is paired with this machine", "acphold list --server http://localhost")
            assert one.ended() == 0
    unknown = far(served, "show", "nothing", "--server", served.url)
    assert f"`acphold list --server {served.url} --all --archived`" in unknown.stderr


def test_the_screen_says_that_the_line_is_away_and_what_is_typed_arrives_when_it_is_back(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--listen", f"127.0.0.1:{own_port()}") as served:
        code = f"{served.url}#pair={served.pair}"
        command = [*ACPHOLD, "chat", "--server", code, "--cwd", str(tmp_path)]
        with terminal(command, laptop(served), 120) as one:
            one.until("ready")
            one.type("quick: one\r", "You said: quick: one", "ready")
            served.process.kill()
            served.process.wait()
            one.until("offline since", "reconnecting")
            one.type("quick: two\r", "you  quick: two", "is lost")
            served.start_again()
            one.until("You said: quick: two", "is back", "ready", but="offline since")
            assert one.ended("\x04") == 0
            assert "acphold continue --server http://localhost" in one.text
        session_id = served.run("list", "--json").partition('"sessionId":"')[2].partition('"')[0]
        assert served.run("show", session_id, "--json").count('"quick: two"') == 1


def test_a_session_of_an_agent_that_a_server_does_not_serve_is_given_to_another_by_its_name_alone(
    tmp_path: Path,
) -> None:
    with two_agents(tmp_path) as served:
        agent = scripted_agent(info={"name": "elsewhere", "version": "1"})
        words = [*ACPHOLD, "ask", "hello", "--cwd", str(served.folder), "--", *agent]
        subprocess.run(words, env=served.env, check=True, capture_output=True)
        (row,) = map(json.loads, served.run("list", "--all", "--json").splitlines())
        session_id, code = row["sessionId"], f"{served.url}#pair={served.pair}"
        refused = far(served, "continue", session_id, "--server", code, typed="more\n")
        assert refused.returncode == 2, refused.stderr
        assert "this session's agent is elsewhere" in refused.stderr
        assert "acphold show" in refused.stderr
        assert "(one, two, broken)" in refused.stderr
        server = ("--server", "localhost")
        with terminal([*ACPHOLD, "continue", *server, session_id], laptop(served), 120) as one:
            one.until(
                "agent is elsewhere", "An agent that continues it", "with two", "3 or n, then Enter"
            )
            assert one.ended("n\r") == 0
        with terminal([*ACPHOLD, "continue", *server, session_id], laptop(served), 120) as one:
            one.until("continue with two", "3 or n, then Enter")
            one.type("2\r", "ready · raw")
            assert one.ended("\x04") == 0
        for again in (("chat", "two", "--resume"), ("continue",)):
            typed = json.dumps([{"say": f"from two by {again[0]}"}]) + "\n"
            on = far(served, *again, session_id, *server, typed=typed)
            assert f"from two by {again[0]}" in on.stdout, on.stderr
        (row,) = map(json.loads, served.run("list", "--all", "--json").splitlines())
        assert row["agent"] == "the second"
