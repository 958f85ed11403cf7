"""`acphold ask`: one turn, its text on stdout, its end in the exit code."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from msgspec import convert

from acphold.errors import JOURNAL_FAILED, AgentStartError
from acphold.faces.cli import ask_streams, bounds
from acphold.faces.cli.ask_arguments import AskArguments
from acphold.faces.cli.ask_streams import TextOutput
from acphold.faces.cli.ask_turn import AskingTurn
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.front import OwnFront, first_frame, journal_of
from acphold.faces.cli.main import parser_of
from acphold.faces.cli.settings import NamedAgent
from acphold.faces.cli.starts import Start
from acphold.journal_location import VARIABLE
from acphold.live.reading import processes
from acphold.machine.first_frame import BRIEF
from acphold.sync import connect
from tests.cli.command_line import ACPHOLD, SECONDS, CommandLine, Finished
from tests.conftest import Defaults
from tests.editor import scripted_agent, under_name
from tests.failures.test_journal import file_limit

pytestmark = pytest.mark.slow

PERMISSION = [
    "session/request_permission",
    {
        "toolCall": {"toolCallId": "t", "title": "Run \x1b[2J it", "kind": "execute"},
        "options": [
            {"optionId": "y", "name": "Yes", "kind": "allow_once"},
            {"optionId": "n", "name": "No", "kind": "reject_once"},
        ],
    },
]


def steps(*wanted: dict[str, Any]) -> str:
    """The prompt that makes the scripted agent do this."""
    return json.dumps(wanted)


def ask(acphold: CommandLine, prompt: str, *options: str, **agent: Any) -> Finished:
    """Run `ask` in this process, without a terminal and with nothing on stdin."""
    return acphold.run("ask", prompt, *options, "--", *scripted_agent(**agent))


def ask_with(
    acphold: CommandLine, stdin: bytes, prompt: str, *options: str, **agent: Any
) -> Finished:
    """Run it as a process that reads this."""
    done = subprocess.run(
        [*ACPHOLD, "ask", prompt, *options, "--", *scripted_agent(**agent)],
        input=stdin,
        capture_output=True,
        env=acphold.environment,
        timeout=SECONDS,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def prompted(log: Path) -> list[dict[str, Any]]:
    """The content blocks of the last prompt that an agent with this log got."""
    messages = [json.loads(line) for line in log.read_text().splitlines()]
    prompts = [it["params"]["prompt"] for it in messages if it.get("method") == "session/prompt"]
    found: list[dict[str, Any]] = prompts[-1]
    return found


# -- the answer -----------------------------------------------------------------------------


def test_what_the_agent_says_is_on_stdout_and_the_session_in_the_list(acphold: CommandLine) -> None:
    prompt = steps({"think": "hm"}, {"say": "hello "}, {"say": "you"})
    done = ask(acphold, prompt)
    assert (done.code, done.out, done.err) == (0, "hello you\n", "")
    [listed] = acphold.run("list", "--json").out.splitlines()
    assert json.loads(listed)["cwd"] == os.path.abspath(".")


def test_messages_stand_apart_and_halves_of_characters_are_put_together(
    acphold: CommandLine,
) -> None:
    def chunk(text: str, message: str) -> dict[str, Any]:
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "messageId": message, "content": content}
        return {"update": update}

    tool = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Look"}
    prompt = steps(
        chunk("one", "a"), chunk("two\n", "b"), chunk("three", "c"), {"update": tool},
        chunk("\ud83d", "d"), chunk("\ude00", "d"),
    )  # fmt: skip
    assert ask(acphold, prompt).out == "one\ntwo\nthree\n\U0001f600\n"


def test_a_file_gets_the_text_as_it_is_and_a_terminal_nothing_that_it_obeys(
    acphold: CommandLine,
) -> None:
    prompt = steps({"say": "a\x1b[2Jb\tc"})
    assert ask(acphold, prompt).out == "a\x1b[2Jb\tc\n"
    shown = acphold.on_terminal("ask", prompt, "--", *scripted_agent())
    assert "a\\x1b[2Jb" in shown.out
    assert "\x1b" not in shown.out


def test_a_notice_begins_a_line_of_the_terminal(acphold: CommandLine) -> None:
    told = {"sessionUpdate": "notice", "severity": "info", "title": "Look"}
    shown = acphold.on_terminal(
        "ask", steps({"say": "half"}, {"update": told}), "--", *scripted_agent()
    )
    assert "half\n[notice] Look\n" in shown.out


def test_json_has_each_update_as_it_came_and_the_end(acphold: CommandLine) -> None:
    plan = {"sessionUpdate": "plan", "entries": [], "_meta": {"x": [1]}}
    done = ask(acphold, steps({"say": "hi"}, {"update": plan}), "--json")
    first, *updates, last = [json.loads(line) for line in done.out.splitlines()]
    assert first.keys() == {"type", "sessionId", "agent", "cwd"}
    assert first["type"] == "session"
    assert [it["update"] for it in updates if it["type"] == "update"][:2] == [
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hi"}},
        plan,
    ]
    assert last == {"type": "end", "stopReason": "end_turn", "exitCode": 0}


# -- how it ends ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("refusal", Exit.REFUSED),
        ("max_tokens", Exit.LIMITED),
        ("max_turn_requests", Exit.LIMITED),
        ("cancelled", Exit.CANCELLED),
    ],
)
def test_the_exit_code_says_how_the_turn_ended(
    acphold: CommandLine, reason: str, code: Exit
) -> None:
    done = ask(acphold, steps({"say": "so far"}, {"stop": reason}))
    assert (done.code, done.out) == (code, "so far\n")
    assert f"({reason})" in done.err


@pytest.mark.parametrize(
    ("step", "code", "said"),
    [
        ({"error": {"code": -32603, "message": "overloaded"}}, Exit.AGENT, "overloaded"),
        ({"error": {"code": -32000, "message": "no key"}}, Exit.SIGN_IN, "says: no key"),
        ({"error": {"code": JOURNAL_FAILED, "message": "mine"}}, Exit.AGENT, "mine"),
        ({"exit": 3}, Exit.AGENT, "exit status 3"),
    ],
)
def test_what_keeps_a_turn_from_its_end_is_told_after_what_was_said(
    acphold: CommandLine, step: dict[str, Any], code: Exit, said: str
) -> None:
    done = ask(acphold, steps({"say": "so far"}, step))
    assert (done.code, done.out) == (code, "so far\n")
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    lines = ask(acphold, steps({"say": "so far"}, step), "--json").out.splitlines()
    error = json.loads(lines[-1])
    assert (error["type"], error["exitCode"]) == ("error", code)
    assert said in error["message"]


def test_an_agent_that_does_not_start_is_told_once(acphold: CommandLine) -> None:
    done = acphold.run("ask", "hi", "--", "no-such-agent")
    assert (done.code, len(done.err.splitlines())) == (Exit.AGENT, 1)
    done = ask(acphold, "hi", initialize="exit")
    assert (done.code, len(done.err.splitlines())) == (Exit.AGENT, 1)
    assert "ended before it answered `initialize`" in done.err
    # Nor can it say that the journal has failed.
    refusal = {"code": JOURNAL_FAILED, "message": "mine", "data": [1]}
    done = ask(acphold, "hi", initialize=json.dumps({"jsonrpc": "2.0", "id": 1, "error": refusal}))
    assert (done.code, done.err) == (Exit.AGENT, "acphold: mine\n")


def test_a_journal_that_cannot_be_used_is_told_by_its_own_code(
    acphold: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "no.db").write_text("no journal, but a text")
    done = ask(acphold, "hi", "--journal", str(tmp_path / "no.db"))
    assert done.code == Exit.JOURNAL
    assert "not an acphold journal" in done.err


def test_so_is_one_that_becomes_full_in_the_daemon(journal: Path) -> None:
    full = CommandLine(journal, before=file_limit(400_000))
    flood = steps({"say": "begin"}, {"flood": [1000, 1000]})
    done = full.run_as_process("ask", flood, "--", *scripted_agent())
    assert done.code == Exit.JOURNAL
    assert done.err.startswith(f"acphold: the journal {journal} cannot be used: ")
    chat = subprocess.run(
        [*ACPHOLD, "chat", "--", *scripted_agent()],
        input=f"{flood}\n".encode(),
        capture_output=True,
        env={**full.environment, VARIABLE: f"{journal}.other"},
        timeout=SECONDS,
        check=False,
        preexec_fn=file_limit(400_000),
    )
    assert chat.returncode == Exit.JOURNAL
    assert b"turn: failed: the journal" in chat.stdout


@pytest.mark.parametrize(
    ("grace", "steps_on", "words"),
    [
        (SECONDS, ({"until": "cancel"}, {"say": " and no further"}), "so far and no further\n"),
        # It is waited for as long as the settings say, and the daemon's answer comes first.
        (0.1, ({"until": "cancel ignored"},), "so far\n"),
    ],
)
async def test_a_turn_that_is_stopped_is_cancelled_and_read_to_its_end(
    journal: Path,
    defaults: Defaults,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    grace: float,
    steps_on: tuple[dict[str, str], ...],
    words: str,
) -> None:
    defaults(cancel_grace=grace)
    monkeypatch.setenv(VARIABLE, str(journal))
    monkeypatch.setattr(sys, "stdin", None)
    agent = NamedAgent(tuple(scripted_agent()))
    prompt = steps({"say": "so far"}, *steps_on)
    read = parser_of("ask").read([prompt, "--cwd=/tmp", "--permission=reject"])
    given = convert(read, AskArguments)
    start = Start("", agent.command)
    front = OwnFront(first_frame(start.words, agent.command, kind=BRIEF), journal_of((), journal))
    asking = AskingTurn(agent, start, given, monotonic(), front)
    asking.output = stopping = Stopping()
    stopping.asking = asking
    async with asyncio.timeout(2 * SECONDS):
        assert await asking.run() == Exit.TIMEOUT
    told = capsys.readouterr()
    assert told.out == words
    assert "the --timeout expired (cancelled)" in told.err


class Stopping(TextOutput):
    """Prints, and stops the turn when something was said."""

    asking: AskingTurn
    has_stopped = False

    def updates(self, raws: Sequence[bytes]) -> None:
        super().updates(raws)
        if not self.has_stopped:
            self.has_stopped = True
            self.asking.stop(Exit.TIMEOUT)


def test_a_front_for_which_a_descriptor_cannot_be_made_leaves_none_open(journal: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(AgentStartError, match="Bad file descriptor"):
        OwnFront(b"", str(journal), stderr=99_999)
    assert len(os.listdir("/dev/fd")) == before


def test_the_timeout_counts_before_the_turn_too(acphold: CommandLine) -> None:
    done = ask(acphold, "hi", "--timeout", "0.5", initialize="never")
    assert (done.code, done.out) == (Exit.TIMEOUT, "")
    assert "before the turn ended" in done.err


def test_ctrl_c_cancels_the_turn(acphold: CommandLine) -> None:
    prompt = steps({"say": "so far"}, {"until": "cancel"}, {"say": " and no further"})
    shown = acphold.on_terminal("ask", prompt, "--", *scripted_agent(), interrupted_at=b"so far")
    assert shown.code == Exit.INTERRUPTED
    assert "so far and no further" in shown.out


# -- permission -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "option"), [(("--permission", "allow"), "y"), (("--permission", "reject"), "n")]
)
def test_permission_is_answered_as_the_arguments_say(
    acphold: CommandLine, options: tuple[str, ...], option: str
) -> None:
    done = ask(acphold, steps({"ask": PERMISSION}), *options)
    assert f'"optionId": "{option}"' in done.out
    lines = ask(acphold, steps({"ask": PERMISSION}), *options, "--json").out.splitlines()
    [told] = [it for it in map(json.loads, lines) if it["type"] == "permission"]
    assert told == {
        "type": "permission",
        "toolCallId": "t",
        "title": "Run \x1b[2J it",
        "optionId": option,
        "byPerson": False,
    }


def asks_to_run(command: str, call: str) -> str:
    """The prompt that makes the scripted agent ask as Claude does."""
    tool = {
        "toolCallId": call,
        "title": command,
        "kind": "execute",
        "name": "Bash",
        "rawInput": {"command": command},
    }
    options = [
        {"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")
    ]
    return steps({"ask": [PERMISSION[0], {"toolCall": tool, "options": options}]})


def test_a_rejection_of_the_arguments_is_above_every_rule_and_one_for_want_of_a_terminal_is_not(
    acphold: CommandLine, tmp_path: Path
) -> None:
    claude = under_name("claude-agent-acp", tmp_path, scripted_agent())
    assert acphold.run("ask", "[]", "--", *claude).code == 0
    assert acphold.run("rules", "add", "run make check").code == 0
    prompt = asks_to_run("make check", "a")
    assert "rule 1" not in acphold.run("ask", prompt, "--json", "--", *claude).err
    assert "used 1 time" in acphold.run("rules").out
    done = acphold.run("ask", prompt, "--permission", "reject", "--json", "--", *claude)
    lines = map(json.loads, done.out.splitlines())
    [told] = [it for it in lines if it["type"] == "permission"]
    assert told["optionId"] == "reject_once"
    assert "used 1 time" in acphold.run("rules").out
    [session, *_] = map(json.loads, acphold.run("list", "--json").out.splitlines())
    why = acphold.run("rules", "why", session["sessionId"]).out
    assert "then: this turn was begun with --permission reject" in why


def test_a_rejection_that_no_person_gave_is_not_one_that_you_refused(
    acphold: CommandLine, tmp_path: Path
) -> None:
    claude = under_name("claude-agent-acp", tmp_path, scripted_agent())
    for option in ((), ("--permission", "reject")):
        prompt = asks_to_run("make check", "a")
        assert "not permitted" in acphold.run("ask", prompt, *option, "--", *claude).err
    added = acphold.run("rules", "add", "run make check")
    assert (added.code, "refused" in added.err) == (0, False)


def test_without_a_terminal_permission_is_rejected_and_nobody_is_waited_for(
    acphold: CommandLine,
) -> None:
    done = ask_alone(acphold, steps({"ask": PERMISSION}))
    assert (done.code, '"optionId": "n"' in done.out) == (0, True)
    assert done.err == "acphold ask: not permitted (see --permission): Run \\x1b[2J it\n"
    done = ask_alone(acphold, "hi", "--permission", "ask")
    assert done.code == Exit.USAGE
    assert "needs a terminal" in done.err


def ask_alone(acphold: CommandLine, prompt: str, *options: str) -> Finished:
    """Run it in a session of its own, where there is no /dev/tty either."""
    done = subprocess.run(
        [*ACPHOLD, "ask", prompt, *options, "--", *scripted_agent()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=acphold.environment,
        timeout=SECONDS,
        check=False,
        start_new_session=True,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def test_forms_files_and_terminals_are_not_offered(acphold: CommandLine, tmp_path: Path) -> None:
    form = {"mode": "form", "message": "Who?", "requestedSchema": {"properties": {}}}
    asked = (
        {"ask": ["elicitation/create", form]},
        {"ask": ["fs/read_text_file", {"path": "/etc/hosts"}]},
        {"ask": ["terminal/create", {"command": "true"}]},
    )
    done = ask(acphold, steps(*asked), log=str(tmp_path / "log"))
    assert done.code == 0
    first = json.loads((tmp_path / "log").read_text().splitlines()[0])
    offered = first["params"]["clientCapabilities"]
    assert "elicitation" not in offered
    assert "terminal" not in offered
    assert not any(offered["fs"].values())


# -- sessions -------------------------------------------------------------------------------


def test_continue_goes_on_with_the_newest_session_of_the_folder(
    acphold: CommandLine, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    none = ask(acphold, "hi", "--continue", "--cwd", str(here))
    assert none.code == Exit.NO_SESSION
    assert f"no session in {here}" in none.err
    for folder in (here, there):
        assert ask(acphold, steps({"say": folder.name}), "--cwd", str(folder)).code == 0
    again = ask(acphold, steps({"say": "again"}), "--continue", "--cwd", str(here))
    assert (again.code, again.out) == (0, "again\n")
    counts = {
        json.loads(line)["cwd"]: json.loads(line)["messageCount"]
        for line in acphold.run("list", "--json").out.splitlines()
    }
    assert counts == {str(here): 4, str(there): 2}


def test_a_session_is_named_by_any_prefix_of_its_id(acphold: CommandLine) -> None:
    said = ask(acphold, steps({"say": "one"}), "--json").out.splitlines()
    session = json.loads(said[0])["sessionId"]
    again = ask(acphold, steps({"say": "two"}), "--session", session[:8], "--json")
    assert json.loads(again.out.splitlines()[0])["sessionId"] == session
    unknown = ask(acphold, "hi", "--session", "nothing-like-it")
    assert unknown.code == Exit.NO_SESSION


def test_a_session_that_is_live_elsewhere_needs_no_command(acphold: CommandLine) -> None:
    with connect(*scripted_agent(), durable=True, journal=acphold.journal) as agent:
        session = agent.new_session()
        session.prompt(steps({"say": "first"})).wait()
        done = acphold.run("ask", steps({"say": "me too"}), "--session", session.id[:10])
        assert (done.code, done.out, done.err) == (0, "me too\n", "")
        assert session.prompt(steps({"say": "still here"})).wait().text == "still here"
    assert session.id in acphold.run("list", "--json").out


@pytest.mark.parametrize("agent", [(), ("--", *scripted_agent())], ids=["alone", "with an agent"])
def test_the_question_of_another_client_is_left_to_it(
    acphold: CommandLine, monkeypatch: pytest.MonkeyPatch, agent: tuple[str, ...]
) -> None:
    looked, look = threading.Event(), processes.has_other_clients

    async def looks(session_id: str) -> bool:
        found = await look(session_id)
        looked.set()
        return found

    async def decide(_: object) -> bool:
        return await asyncio.to_thread(looked.wait, SECONDS)

    monkeypatch.setattr(processes, "has_other_clients", looks)
    command = scripted_agent()
    with connect(*command, durable=True, journal=acphold.journal, on_permission=decide) as owner:
        session = owner.new_session()
        session.prompt(steps({"say": "first"})).wait()
        theirs = session.prompt(steps({"say": "asks"}, {"ask": PERMISSION}))
        next(iter(theirs))
        own = steps({"say": "me too"})
        done = acphold.run("ask", own, "--session", session.id, "--permission", "reject", *agent)
        assert looked.is_set()
        assert (done.code, done.out, done.err) == (0, "me too\n", "")
        assert '"y"' in theirs.wait().text


# -- its requests ---------------------------------------------------------------------------


def test_stdin_is_sent_behind_the_prompt(acphold: CommandLine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = ask_with(acphold, b"the \xff log\n", steps({"say": "seen"}), log=str(log))
    assert (done.code, done.out, done.err) == (0, "seen\n", "")
    assert [block["text"] for block in prompted(log)][1:] == ["the \ufffd log\n"]
    done = ask_with(acphold, steps({"say": "all of it"}).encode(), "-", log=str(log))
    assert done.out == "all of it\n"
    assert len(prompted(log)) == 1


@pytest.mark.parametrize(("stdin", "prompt"), [(b"", "-"), (b" \n", " "), (b"a\0b", "what is it")])
def test_what_cannot_be_said_is_a_usage_error(
    acphold: CommandLine, stdin: bytes, prompt: str
) -> None:
    assert ask_with(acphold, stdin, prompt).code == Exit.USAGE


def test_a_pipe_on_which_nothing_comes_is_not_waited_for(
    acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "FIRST_BYTE_SECONDS", 0.1)
    reads, writes = os.pipe()
    with open(reads) as stdin, open(writes, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert ask_streams.prompt_and_stdin("hi", None) == ["hi"]
        with pytest.raises(TimeoutError):
            ask_streams.prompt_and_stdin("-", 0.0)


def test_files_are_sent_with_it(acphold: CommandLine, tmp_path: Path) -> None:
    log, note = tmp_path / "log", tmp_path / "note.txt"
    note.write_text("remember")
    prompt = steps({"say": "seen"})
    ask(acphold, prompt, "--file", str(note), log=str(log))
    assert prompted(log)[1]["type"] == "resource_link"
    takes = {"promptCapabilities": {"embeddedContext": True}}
    ask(acphold, prompt, "-f", str(note), "-f", str(tmp_path), log=str(log), capabilities=takes)
    text, folder = prompted(log)[1:]
    assert text["resource"]["text"] == "remember"
    assert folder["uri"] == tmp_path.as_uri()
    missing = ask(acphold, prompt, "--file", str(tmp_path / "gone"))
    assert (missing.code, "does not exist" in missing.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("hi",),
        (),
        ("hi", "--session", "x", "--continue", "--", "true"),
        ("hi", "--cwd", "/nowhere", "--", "true"),
        ("hi", "--timeout", "0", "--", "true"),
        ("hi", "--permission", "maybe", "--", "true"),
    ],
)
def test_arguments_that_make_no_sense_are_a_usage_error(
    acphold: CommandLine, arguments: tuple[str, ...]
) -> None:
    assert acphold.run("ask", *arguments).code == Exit.USAGE


def test_a_named_agent_is_asked_as_the_settings_file_has_it(
    acphold: CommandLine, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.toml"
    kept = tmp_path / "kept.db"
    settings.write_text(
        f"[agents.mine]\ncommand = {json.dumps(scripted_agent())}\nname = 'kept-as'\n"
        f"journal = {json.dumps(str(kept))}\n"
    )
    done = acphold.run_as_process(
        "ask", steps({"say": "by name"}), "mine", ACPHOLD_SETTINGS=str(settings)
    )
    assert (done.code, done.out) == (0, "by name\n")
    [line] = acphold.run("list", "--json", "--journal", str(kept)).out.splitlines()
    assert json.loads(line)["agent"] == "kept-as"


@pytest.mark.parametrize("words", [("demo", "hi"), ("hi", "demo"), ("claude", "demo")])
def test_agent_and_prompt_are_told_apart_in_either_order(
    acphold: CommandLine, words: tuple[str, str]
) -> None:
    title = "claude" if "claude" in words else "hi"
    done = acphold.run("ask", *words)
    assert done.code == 0, done.err
    [line] = acphold.run("list", "--json").out.splitlines()
    assert (json.loads(line)["agent"], json.loads(line)["title"]) == ("demo-agent", title)


def test_the_typed_journal_goes_before_one_in_the_agent_s_own_variables(
    acphold: CommandLine, tmp_path: Path
) -> None:
    settings, typed = tmp_path / "settings.toml", tmp_path / "typed.db"
    settings.write_text(
        f"[agents.mine]\ncommand = {json.dumps(scripted_agent())}\n"
        f"env = {{ ACPHOLD_JOURNAL = {json.dumps(str(tmp_path / 'its.db'))} }}\n"
    )
    words = "ask", "--journal", str(typed), steps({"say": "by name"}), "mine"
    done = acphold.run_as_process(*words, ACPHOLD_SETTINGS=str(settings))
    assert (done.code, done.out) == (0, "by name\n"), done.err
    assert len(acphold.run("list", "--json", "--journal", str(typed)).out.splitlines()) == 1
    assert not (tmp_path / "its.db").exists()


def test_ask_and_chat_without_an_agent_take_the_first_one_of_the_settings_file(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.toml"
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    monkeypatch.setenv("PATH", "/bin")
    done = acphold.run("ask", "hello")
    assert (done.code, "name one" in done.err) == (Exit.USAGE, True), done.err
    first, second = (
        json.dumps(under_name(it, tmp_path, scripted_agent(steps=[{"say": f"I am {it}."}])))
        for it in ("one", "two")
    )
    settings.write_text(f"[agents.one]\ncommand = {first}\n[agents.two]\ncommand = {second}\n")
    assert acphold.run("ask", "hello").out == "I am one.\n"
    talked = subprocess.run(
        [*ACPHOLD, "chat"],
        input=b"hello\n",
        capture_output=True,
        env=acphold.environment,
        timeout=SECONDS,
        check=False,
    )
    assert b"I am one." in talked.stdout, talked.stderr
