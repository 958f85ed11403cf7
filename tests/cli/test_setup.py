"""`acphold setup`: one entry in an editor's settings, shown first, and nothing else touched."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from difflib import ndiff
from pathlib import Path

import pytest

from acphold.faces.cli import setup
from acphold.faces.cli.editors import EDITORS, FileEditor, adapter_for
from acphold.faces.cli.jsonc import value_at
from acphold.faces.cli.setup import absolute_command
from acphold.machine.own_program import own_command
from tests.cli.command_line import CommandLine, Finished, run_here
from tests.editor import introduced, scripted_agent

ZED = """\
// Zed settings
//
// They are mine.
{
  "ui_font_size": 16, // points
  "theme": { "mode": "system", "light": "One Light", "dark": "One Dark" },
  "agent_servers": {
    /* "old": { "command": "old" }, */
    "Gemini": {
      "type": "custom",
      "command": "gemini",
      "args": ["--acp"],
    },
  },
  "vim_mode": true,
}
"""

VSCODE = """\
{\r
    "editor.fontSize": 14,\r
    // from the marketplace\r
    "acp.agents": {\r
        "Codex CLI": { "command": "npx", "args": ["codex-acp"], "env": {} }\r
    },\r
    "files.eol": "\\r\\n"\r
}\r
"""


class Person:
    """Somebody with a home folder, some programs, and editors' settings."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.programs = home / "bin"
        self.programs.mkdir()
        for name in ("acphold", "gemini", "npx"):
            (self.programs / name).write_text("#!/bin/sh\n")
            (self.programs / name).chmod(0o755)
        self.environment: dict[str, str] = {
            "HOME": str(home),
            "PATH": f"{self.programs}:/usr/bin:/bin",
        }

    @property
    def acphold(self) -> str:
        return str(self.programs / "acphold")

    def run(self, *arguments: str) -> Finished:
        return run_here(("setup", *arguments), self.environment)

    def write(self, path: str, text: str) -> Path:
        """A file of the home folder."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file

    def names(self, *lines: str) -> None:
        """A settings file of acphold with these agents."""
        self.write(".config/acphold/settings.toml", "\n".join(lines))


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def added(before: str, after: str) -> list[str]:
    """The lines that are new; none may be gone but for a comma behind it."""
    lines = list(ndiff(before.splitlines(), after.splitlines()))
    gone = {line[2:] for line in lines if line.startswith("- ")}
    new = [line[2:] for line in lines if line.startswith("+ ")]
    assert {f"{line}," for line in gone} <= set(new)
    return [line for line in new if line.removesuffix(",") not in gone]


# -- each editor ------------------------------------------------------------------------------


def test_zed_gets_an_entry_and_keeps_all_else(person: Person) -> None:
    file = person.write(".config/zed/settings.json", ZED)
    done = person.run("zed", "--yes", "--", "gemini", "--acp", "ü")
    assert done.code == 0, done.err
    assert added(ZED, file.read_text()) == [
        '    "gemini (acphold)": {',
        '      "type": "custom",',
        f'      "command": "{person.acphold}",',
        f'      "args": ["wrap", "--", "{person.programs}/gemini", "--acp", "ü"],',
        '      "env": {}',
        "    },",
    ]


def test_vscode_gets_an_entry_with_its_own_line_ends_and_indentation(person: Person) -> None:
    file = person.write(".config/Code/User/settings.json", VSCODE)
    person.names("[agents.claude]", f'command = ["{person.programs}/npx", "x"]')
    assert person.run("vscode", "claude", "--yes").code == 0
    after = file.read_bytes().decode()
    assert after.count("\n") == after.count("\r\n")
    assert value_at(after, ["acp.agents", "claude (acphold)"]) == {
        "command": person.acphold,
        "args": ["wrap", "claude"],
        "env": {},
    }
    assert value_at(after, ["acp.agents", "Codex CLI", "command"]) == "npx"


@pytest.mark.parametrize(
    ("platform", "editor", "path"),
    [
        ("linux", "zed", ".config/zed/settings.json"),
        ("darwin", "zed", ".config/zed/settings.json"),
        ("linux", "vscode", ".config/Code/User/settings.json"),
        ("darwin", "vscode", "Library/Application Support/Code/User/settings.json"),
        ("linux", "jetbrains", ".jetbrains/acp.json"),
        ("linux", "acpx", ".acpx/config.json"),
    ],
)
def test_a_file_that_is_not_there_yet_is_made_where_the_editor_looks(
    person: Person, monkeypatch: pytest.MonkeyPatch, platform: str, editor: str, path: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    done = person.run(editor, "--yes", "--", "gemini", "--acp")
    assert done.code == 0, done.err
    written = json.loads((person.home / path).read_text())
    found = EDITORS[editor]
    assert isinstance(found, FileEditor)
    [(name, entry)] = written[found.table].items()
    command = [person.acphold, "wrap", "--", f"{person.programs}/gemini", "--acp"]
    if editor == "acpx":
        assert (name, entry) == ("gemini-acphold", {"argv": command})
    else:
        assert name == "gemini (acphold)"
        assert [entry["command"], *entry["args"]] == command
    assert ".bak" not in " ".join(os.listdir((person.home / path).parent))


def test_a_file_in_a_folder_that_is_not_there_is_refused(person: Person) -> None:
    done = person.run("zed", "--yes", "--file", "~/nowhere/settings.json", "--", "gemini", "--acp")
    assert done.code == 2
    assert "the folder ~/nowhere does not exist" in done.err
    assert not (person.home / "nowhere").exists()


def test_the_folder_for_settings_and_another_vscode_are_found(person: Person) -> None:
    person.environment["XDG_CONFIG_HOME"] = str(person.home / "etc")
    file = person.write("etc/VSCodium/User/settings.json", "{}\n")
    assert person.run("vscode", "--yes", "--", "gemini").code == 0
    assert "acp.agents" in file.read_text()
    file = person.write("elsewhere.json", "{}\n")
    assert person.run("zed", "--yes", "--file", "~/elsewhere.json", "--", "gemini").code == 0
    assert "agent_servers" in file.read_text()


def test_acpx_loses_the_older_form_of_an_entry_and_gets_variables_as_words(person: Person) -> None:
    older = {"agents": {"gemini-acphold": {"command": "gemini", "args": []}}, "ttl": 300}
    file = person.write(".acpx/config.json", json.dumps(older, indent=2))
    person.environment["ACPHOLD_JOURNAL"] = "sqlite:////j.db"
    assert person.run("acpx", "--yes", "--", "gemini").code == 0
    written = json.loads(file.read_text())
    assert written["ttl"] == 300
    argv = written["agents"]["gemini-acphold"].pop("argv")
    assert argv[1:3] == ["ACPHOLD_JOURNAL=/j.db", person.acphold]
    assert os.path.isabs(argv[0])
    assert written["agents"] == {"gemini-acphold": {}}


def test_what_is_pasted_is_lua_and_lisp(person: Person) -> None:
    person.names('[agents."my \'b\\\\\\""]', 'command = ["/bin/gemini"]')
    for name in ("neovim", "emacs"):
        done = person.run(name)
        assert done.code == 0
        assert '"wrap"' in done.out
        assert f'"{person.acphold}"' in done.out
        assert "my 'b\\\\\\\"" in done.out
        assert "aste" in done.err
        code = re.sub(r'"(?:[^"\\]|\\.)*"', "", done.out)
        assert all(code.count(a) == code.count(b) for a, b in ("()", "[]", "{}"))
    assert "--remove" not in done.err
    assert person.run("emacs", "--remove").code == 2


@pytest.mark.parametrize(
    ("words", "adapter"),
    [
        (["npx", "-y", "@agentclientprotocol/claude-agent-acp"], "claude_code"),
        (["npx", "-y", "@agentclientprotocol/claude-agent-acp@1.2"], "claude_code"),
        (["/usr/bin/gemini", "--acp"], "gemini_cli"),
        (["mine"], "opencode"),
    ],
)
def test_neovim_gets_the_adapter_that_knows_the_agent(words: list[str], adapter: str) -> None:
    assert adapter_for(words) == adapter


# -- the written settings ---------------------------------------------------------------------


def test_a_second_run_has_nothing_to_do(person: Person) -> None:
    file = person.write(".config/zed/settings.json", ZED)
    assert person.run("zed", "--yes", "--", "gemini").code == 0
    before, there = file.read_bytes(), sorted(os.listdir(file.parent))
    done = person.run("zed", "--", "gemini")
    assert (done.code, "Nothing to do" in done.out) == (0, True)
    assert (file.read_bytes(), sorted(os.listdir(file.parent))) == (before, there)


def test_an_entry_is_brought_up_to_date_and_keeps_what_the_person_added(person: Person) -> None:
    file = person.write(
        ".config/zed/settings.json",
        '{ "agent_servers": { "g": { "command": "old", "default_mode": "plan", '
        '"env": { "KEY": "1" } } } }',
    )
    person.environment["ACPHOLD_JOURNAL"] = str(person.home / "j.db")
    assert person.run("zed", "--yes", "--as", "g", "--", "gemini").code == 0
    assert json.loads(file.read_text())["agent_servers"]["g"] == {
        "command": person.acphold,
        "default_mode": "plan",
        "env": {"KEY": "1", "ACPHOLD_JOURNAL": str(person.home / "j.db")},
        "type": "custom",
        "args": ["wrap", "--", str(person.programs / "gemini")],
    }


def test_an_entry_is_removed_again_to_the_byte(person: Person) -> None:
    file = person.write(".config/zed/settings.json", ZED)
    person.names("[agents.a]", 'command = ["/bin/a"]', "[agents.b]", 'command = ["/bin/b"]')
    assert person.run("zed", "--yes").code == 0
    assert "b (acphold)" in file.read_text()
    person.names("[agents.b]", 'command = ["/bin/b"]')
    assert person.run("zed", "a", "--remove", "--yes").code == 0
    assert person.run("zed", "--remove", "--yes").code == 0
    assert file.read_text() == ZED
    done = person.run("zed", "--remove")
    assert (done.code, "Nothing to do" in done.out) == (0, True)


@pytest.mark.parametrize("before", [None, "{}\n", ""])
def test_a_file_that_setup_made_is_removed_again_and_one_that_was_there_stays(
    person: Person, before: str | None
) -> None:
    path = ".config/zed/settings.json"
    if before is not None:
        person.write(path, before)
    for agent in ("a", "b"):
        person.names(f"[agents.{agent}]", f'command = ["/bin/{agent}"]')
        assert person.run("zed", agent, "--yes").code == 0
    assert person.run("zed", "a", "--remove", "--yes").code == 0
    assert (person.home / path).exists()  # with that of the other
    assert person.run("zed", "b", "--remove", "--yes").code == 0
    assert (person.home / path).exists() == (before is not None)


def test_the_file_keeps_its_mode_and_its_link_and_a_copy_is_beside_it(person: Person) -> None:
    real = person.write("dotfiles/zed.json", ZED)
    real.chmod(0o640)
    link = person.home / ".config/zed/settings.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    done = person.run("zed", "--yes", "--", "gemini")
    assert done.code == 0
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    [copy] = link.parent.glob("settings.json.*.bak")
    assert copy.read_text() == ZED
    assert stat.S_IMODE(copy.stat().st_mode) == 0o640
    assert copy.name in done.out
    for _ in range(2):
        person.run("zed", "--yes", "--remove", "--", "gemini")
        person.run("zed", "--yes", "--", "gemini")
    assert [*link.parent.glob("settings.json.*.bak")] == [copy]
    person.run("zed", "--yes", "--remove", "--", "gemini")
    real.write_text(f"// more of mine\n{ZED}")
    person.run("zed", "--yes", "--", "gemini")
    copies = [each.read_text() for each in link.parent.glob("settings.json.*.bak")]
    assert sorted(copies) == sorted([ZED, f"// more of mine\n{ZED}"])


@pytest.mark.parametrize(
    ("editor", "path"), [("zed", ".config/zed/settings.json"), ("acpx", ".acpx/config.json")]
)
@pytest.mark.parametrize("undo", [(), ("EDITOR",), ("EDITOR", "--existing")])
def test_one_undo_is_for_all_ways_of_setting_up(
    person: Person, editor: str, path: str, undo: tuple[str, ...]
) -> None:
    (person.programs / "opencode").symlink_to(person.programs / "gemini")
    file = person.write(path, before := '{\n  "theme": "mine"\n}\n')
    for words in ((), (editor, "opencode"), (editor, "--", "gemini", "--acp")):
        assert person.run("--yes", *words).code == 0
    assert "acphold" in file.read_text()
    undo = tuple(word.replace("EDITOR", editor) for word in undo)
    assert person.run(*undo, "--remove", "--yes").code == 0
    assert file.read_text() == before


# -- asked first ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["acphold", "agent", "demo"], "demo (acphold)"),
        (["acphold", "agent", "run", "some/agent.py"], "agent.py (acphold)"),
    ],
)
def test_an_agent_of_ours_is_not_called_like_the_program(
    person: Person, command: list[str], name: str
) -> None:
    done = person.run("zed", "--", *command)
    assert f'"{name}": {{' in done.out


def test_without_a_terminal_it_shows_the_change_and_writes_nothing(person: Person) -> None:
    file = person.write(".config/zed/settings.json", ZED)
    done = person.run("zed", "--", "gemini")
    assert done.code == 2
    assert '+    "gemini (acphold)": {' in done.out
    assert "--yes" in done.err
    assert file.read_text() == ZED
    assert os.listdir(file.parent) == ["settings.json"]


def test_which_agent_of_the_settings_file_has_no_program_is_told(person: Person) -> None:
    person.write(".config/acphold/settings.toml", '[agents.mine]\ncommand = ["no-such"]\n')
    done = person.run("zed", "--yes")
    assert done.code == 5
    assert "mine: there is no program 'no-such' on PATH" in done.err


def test_a_file_that_cannot_be_written_is_told_with_what_to_do(person: Person) -> None:
    (person.home / ".config").mkdir()
    (person.home / ".config" / "zed").symlink_to("/dev/fd/none")  # where nobody can make a folder
    done = person.run("zed", "--yes", "--", "gemini")
    assert done.code == 2
    assert "settings.json cannot be written: " in done.err
    assert "write the lines above into it yourself" in done.err


def test_on_a_terminal_it_shows_the_change_in_colour_and_asks(
    person: Person, acphold: CommandLine
) -> None:
    file = person.write("zed.json", ZED)
    arguments = ("setup", "zed", "--file", str(file), "--", sys.executable)
    shown = acphold.on_terminal(*arguments, typed=b"\n")
    assert shown.code == 1
    assert "\x1b[32m+" in shown.out
    assert "[y/N]" in shown.out
    assert file.read_text() == ZED


def test_a_file_that_an_editor_writes_meanwhile_is_left_alone(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = person.write(".config/zed/settings.json", ZED)

    def write_too(*_: object, **_sure: object) -> bool:
        file.write_text("{}")
        return True

    monkeypatch.setattr("acphold.faces.cli.setup.confirm", write_too)
    done = person.run("zed", "--", "gemini")
    assert (done.code, "changed in the meantime" in done.err) == (2, True)
    assert file.read_text() == "{}"
    assert os.listdir(file.parent) == ["settings.json"]


# -- impossible setups ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["zd", "--", "gemini"], 2, ["EDITOR", "zed"]),
        (["zed", "gemini", "--existing"], 2, ["do not name one"]),
        (["zed", "mine"], 2, ["no agent 'mine'", "settings.toml"]),
        (["zed", "--", "no-such-agent"], 5, ["no program 'no-such-agent'"]),
        (["emacs", "--file", "x", "--", "gemini"], 2, ["cannot write the settings of Emacs"]),
        (["emacs"], 2, ["cannot write the settings of Emacs", "`acphold setup emacs gemini`"]),
    ],
)
def test_what_cannot_be_used_is_told(
    person: Person, arguments: list[str], code: int, words: list[str]
) -> None:
    done = person.run(*arguments)
    assert (done.code, done.out) == (code, "")
    assert all(word in done.err for word in words), done.err


@pytest.mark.parametrize("text", ["{ 'a': 1 }", "[]", '{ "agent_servers": 3 }'])
def test_a_file_that_cannot_be_edited_is_left_alone(person: Person, text: str) -> None:
    file = person.write(".config/zed/settings.json", text)
    done = person.run("zed", "--yes", "--", "gemini")
    assert (done.code, done.out) == (2, "")
    assert str(file) in done.err
    assert "nothing was written" in done.err
    assert file.read_text() == text


def test_a_program_that_an_editor_may_not_find_is_told_with_its_path(person: Person) -> None:
    person.names("[agents.a]", 'command = ["npx", "b"]', "[agents.b]", 'command = ["npx"]')
    done = person.run("zed", "a", "--yes")
    assert done.code == 0
    assert f'below [agents.a]: command = ["{person.programs}/npx", "b"]' in done.err
    person.names("[agents.a]", 'command = ["env", "b"]')  # where every editor looks
    assert person.run("zed", "a", "--yes").err == ""
    person.names("[agents.a]", 'command = ["npx", "b"]', "[agents.b]", 'command = ["npx"]')
    assert person.run("zed", "--as", "one", "--yes").code == 2


def test_what_is_no_file_is_neither_waited_for_nor_replaced(person: Person) -> None:
    pipe = person.home / "pipe"
    os.mkfifo(pipe)
    link = person.home / ".jetbrains" / "acp.json"
    link.parent.mkdir()
    link.symlink_to(pipe)
    for option in ([], ["--remove"]):
        done = person.run("jetbrains", *option, "--yes", "--", "gemini")
        assert done.code == 2
        assert "it is a pipe, not a file" in done.err
    assert link.is_symlink()
    assert pipe.is_fifo()
    with pipe.with_name("huge").open("wb") as file:
        file.truncate(64 << 30)
    done = person.run("zed", "--file", file.name, "--yes", "--", "gemini")
    assert "it has more than 16,384 KiB" in done.err


# -- the command that is written --------------------------------------------------------------


def test_it_is_the_script_that_runs_or_the_one_on_path_or_python(
    person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(person.programs))
    assert absolute_command() == (person.acphold,)
    other = person.write("venv/bin/acphold", "")
    other.chmod(0o755)
    monkeypatch.chdir(other.parent)
    monkeypatch.setattr(sys, "argv", ["./acphold", "setup"])
    assert absolute_command() == (str(other),)
    monkeypatch.setattr(sys, "argv", ["x/__main__.py"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert absolute_command() == own_command()


async def test_what_is_written_starts_the_agent(person: Person, journal: Path) -> None:
    (person.programs / "acphold").unlink()  # then it is this Python and the module
    program = person.write("bin/agent", f'#!/bin/sh\nexec {shlex.join(scripted_agent())} "$@"\n')
    program.chmod(0o755)
    file = person.home / "acp.json"
    command = ["setup", "jetbrains", "--file", str(file), "--yes", "--", "agent"]
    environment = {**os.environ, **person.environment, "ACPHOLD_JOURNAL": str(journal)}
    command = [sys.executable, "-m", "acphold", *command]
    done = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    [entry] = json.loads(file.read_text())["agent_servers"].values()
    served = [entry["command"], *entry["args"]]
    async with introduced(served, journal=journal, env={**entry["env"], "PATH": "/bin"}) as client:
        await client.new()
        assert await client.leave() == 0


# -- settings that the editor has already ------------------------------------------------------

HAS = """// mine
{
  "theme": "One Dark", // and this
  "agent_servers": {
    "Gemini": { "command": "gemini", "args": ["--acp"], "env": { "A": "1" } }, // the old one
    /* two */
    "mine": {
      "type": "custom",
      "command": "/opt/my agent"
    },
    "amp-acp": { "type": "registry" },
  },
}
"""


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("x", {"command": " ", "args": []}),
        ("my own (acphold)", {"command": "/bin/gemini", "args": ["--acp"]}),
        # The id of one that the editor would install itself.
        ("gemini", {"type": "custom", "command": "npx", "args": ["-y", "@google/gemini-cli"]}),
    ],
)
def test_whatever_an_agent_is_called_it_gets_its_own_command_back(
    person: Person, name: str, entry: dict[str, object]
) -> None:
    file = person.write(
        ".config/zed/settings.json", text := json.dumps({"agent_servers": {name: entry}})
    )
    done = person.run("zed", "--existing", "--yes")
    assert (done.code, done.err) == (0, "")
    args = value_at(file.read_text(), ["agent_servers", name, "args"])
    assert args == ["wrap", "--", entry["command"], *entry["args"]]  # type: ignore[misc]
    assert person.run("--remove", "--yes").code == 0
    assert json.loads(file.read_text()) == json.loads(text)


def test_acphold_is_put_in_front_of_what_the_editor_has_and_taken_out_again(
    person: Person,
) -> None:
    file = person.write(".config/zed/settings.json", HAS)
    person.environment["ACPHOLD_JOURNAL"] = str(person.home / "other.db")
    done = person.run("zed", "--yes")
    assert done.code == 0, done.err
    [left] = [line for line in done.out.splitlines() if line.startswith("amp-acp is unchanged")]
    assert "the editor installs it itself, and acphold does not know its command" in left
    after = file.read_text()
    assert value_at(after, ["agent_servers"]) == {
        "Gemini": {
            "command": person.acphold,
            "args": ["wrap", "--", "gemini", "--acp"],
            "env": {"A": "1", "ACPHOLD_JOURNAL": str(person.home / "other.db")},
        },
        "mine": {
            "type": "custom",
            "command": person.acphold,
            "args": ["wrap", "--", "/opt/my agent"],
            "env": {"ACPHOLD_JOURNAL": str(person.home / "other.db")},
        },
        "amp-acp": {"type": "registry"},
    }
    assert all(note in after for note in ("// mine", "// and this", "// the old", "/* two */"))
    again = person.run("zed", "--existing", "--yes")
    assert "Nothing to do" in again.out
    assert file.read_text() == after
    assert person.run("zed", "--existing", "--remove", "--yes").code == 0
    assert value_at(file.read_text(), ["agent_servers"]) == {
        "Gemini": {"command": "gemini", "args": ["--acp"], "env": {"A": "1"}},
        "mine": {"type": "custom", "command": "/opt/my agent", "args": []},
        "amp-acp": {"type": "registry"},
    }


@pytest.mark.parametrize("journal", [["--journal", "/a.db"], ["--journal=/a.db"]])
def test_acphold_with_a_journal_before_its_command_is_not_put_in_front_of_itself(
    person: Person, journal: list[str]
) -> None:
    entry = {"command": "/bin/acphold", "args": [*journal, "wrap", "--", "gemini", "--acp"]}
    text = json.dumps({"agent_servers": {"Gemini": entry}})
    file = person.write(".config/zed/settings.json", text)
    assert "Nothing to do" in person.run("zed", "--existing", "--yes").out
    assert file.read_text() == text
    assert person.run("zed", "--existing", "--remove", "--yes").code == 0
    bare = value_at(file.read_text(), ["agent_servers", "Gemini"])
    assert bare == {"command": "gemini", "args": ["--acp"]}


HAND_WRITTEN = """\
{
  "agent_servers": {
    "mine (acphold)": {
      "command": "ACPHOLD", "args": ["wrap", "--turn-timeout", "60", "--", "mine", "--acp"]
    },
    "claude (acphold)": { "command": "acphold", "args": ["wrap", "claude"] },
    "other (acphold)": { "command": "/bin/other" }
  }
}
"""


@pytest.mark.parametrize("words", [(), ("zed",), ("zed", "claude")])
def test_entries_that_a_person_wrote_are_not_removed_whatever_they_are_called(
    person: Person, words: tuple[str, ...]
) -> None:
    before = HAND_WRITTEN.replace("ACPHOLD", person.acphold)
    file = person.write(".config/zed/settings.json", before)
    done = person.run(*words, "--remove", "--yes")
    assert (done.code, done.err) == (0, "")
    assert file.read_text() == before
    assert "Nothing to do" in done.out
    left = [line.partition(" stays: ")[0] for line in done.out.splitlines() if " stays: " in line]
    assert left == [*([] if words[1:] else ["mine (acphold)"]), "claude (acphold)"]
    assert "To remove it, edit ~/.config/zed/settings.json" in done.out


REGISTRY = """\
{
  "agent_servers": {
    "claude-acp": { "type": "registry", "default_mode": "plan", "env": { "A": "1" } },
    "gemini": {
      "type": "registry" // from the registry
    },
    "opencode": { "type": "extension" },
    "codex": { "default_mode": "auto" },
    "goose": { "type": "registry", "env": {} }
  }
}
"""


@pytest.mark.parametrize("words", [("zed", "--existing"), ()])
def test_agents_that_zed_installs_itself_are_put_behind_acphold_and_given_back(
    person: Person, words: tuple[str, ...]
) -> None:
    file = person.write(".config/zed/settings.json", REGISTRY)
    done = person.run(*words, "--yes")
    assert done.code == 0, done.err
    fetched = ["wrap", "--", str(person.programs / "npx"), "--yes"]
    ours: dict[str, object] = {"type": "custom", "command": person.acphold}
    claude, codex = "@agentclientprotocol/claude-agent-acp", "@agentclientprotocol/codex-acp"
    after = value_at(file.read_text(), ["agent_servers"])
    assert after == {
        "claude-acp": {
            **ours,
            "default_mode": "plan",
            "env": {"A": "1"},
            "args": [*fetched, claude],
        },
        "gemini": {**ours, "args": ["wrap", "gemini"]},
        "opencode": {**ours, "args": [*fetched, "opencode-ai", "acp"]},
        "codex": {**ours, "default_mode": "auto", "args": [*fetched, codex]},
        "goose": {"type": "registry", "env": {}},
    }
    [left] = [line for line in done.out.splitlines() if " is unchanged: " in line]
    assert left == (
        "goose is unchanged: the editor installs it itself, and acphold can start it only "
        "if it is on PATH: brew install block-goose-cli."
    )
    again = person.run(*words, "--yes").out
    assert "Nothing to do" in again
    assert left in again
    assert person.run(*words, "--remove", "--yes").code == 0
    before = value_at(REGISTRY, ["agent_servers"])
    assert isinstance(before, dict)
    before["opencode"] = {"type": "registry"}  # as Zed reads the older word
    assert value_at(file.read_text(), ["agent_servers"]) == before
    assert "// from the registry" in file.read_text()


INSTALLED = json.dumps(
    {
        "agents": {
            f"acp.registry.{name}": {"agent": {"id": name, "version": "1.0.0"}}
            for name in ("claude-acp", "gemini", "junie")
        }
    }
)


@pytest.mark.parametrize("words", [("jetbrains", "--existing"), ()])
@pytest.mark.parametrize("before", [None, '{ "default_mcp_settings": { "use_idea_mcp": true } }\n'])
def test_agents_that_jetbrains_installs_itself_get_an_entry_behind_acphold(
    person: Person, words: tuple[str, ...], before: str | None
) -> None:
    kept = person.write(".local/share/JetBrains/acp-agents/installed.json", INSTALLED)
    file = person.home / ".jetbrains" / "acp.json"
    if before is not None:
        person.write(".jetbrains/acp.json", before)
    done = person.run(*words, "--yes")
    assert done.code == 0, done.err
    assert value_at(file.read_text(), ["agent_servers"]) == {
        "claude (acphold)": {
            "command": person.acphold,
            "args": [
                *("wrap", "--", str(person.programs / "npx"), "--yes"),
                "@agentclientprotocol/claude-agent-acp",
            ],
            "env": {},
        },
        "gemini (acphold)": {"command": person.acphold, "args": ["wrap", "gemini"], "env": {}},
    }
    own = "JetBrains still offers its own"
    assert [line for line in done.out.splitlines() if own in line] == [
        f"{own} Claude Code, without acphold; choose `claude (acphold)` instead.",
        f"{own} Gemini CLI, without acphold; choose `gemini (acphold)` instead.",
    ]
    [left] = [line for line in done.out.splitlines() if " is unchanged: " in line]
    assert left.startswith("junie is unchanged: the editor installs it itself, and acphold does")
    assert "Nothing to do" in person.run(*words, "--yes").out
    assert person.run(*words, "--remove", "--yes").code == 0
    assert file.exists() == (before is not None)
    assert before is None or file.read_text() == before
    assert kept.read_text() == INSTALLED


@pytest.mark.parametrize("text", ["", "[]", "{", '{"agents": 1}', '{"agents": {"other": {}}}'])
def test_a_list_of_jetbrains_that_cannot_be_read_names_no_agent(person: Person, text: str) -> None:
    person.write(".local/share/JetBrains/acp-agents/installed.json", text)
    done = person.run("jetbrains", "--existing", "--yes")
    assert (done.code, done.err) == (0, "")
    assert not (person.home / ".jetbrains").exists()


def test_where_the_settings_name_agents_those_are_written_and_the_editors_own_stay(
    person: Person,
) -> None:
    file = person.write(".config/zed/settings.json", HAS)
    person.names("[agents.claude]", f'command = ["{person.programs}/npx", "x"]')
    assert person.run("zed", "--yes").code == 0
    assert value_at(file.read_text(), ["agent_servers", "Gemini", "command"]) == "gemini"
    person.run("zed", "--existing", "--yes")
    assert value_at(file.read_text(), ["agent_servers", "Gemini", "command"]) == person.acphold
    entry = value_at(file.read_text(), ["agent_servers", "claude (acphold)"])
    assert entry == {
        "type": "custom",
        "command": person.acphold,
        "args": ["wrap", "claude"],
        "env": {},
    }
    person.run("zed", "--remove", "--yes")
    left = HAS.replace('/opt/my agent"\n', '/opt/my agent",\n      "args": []\n')
    assert file.read_text() == left


def test_an_editor_that_has_nothing_is_left_alone(person: Person) -> None:
    done = person.run("zed", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "Nothing to do: ~/.config/zed/settings.json is not there. Name an agent" in done.out
    assert "as in `acphold setup zed gemini`" in done.out  # it is on PATH
    assert not (person.home / ".config").exists()


@pytest.mark.parametrize(
    ("editor", "path", "table", "entry", "words"),
    [
        ("jetbrains", ".jetbrains/acp.json", "agent_servers", {"command": "g"}, ["g"]),
        ("vscode", ".config/Code/User/settings.json", "acp.agents", {"command": "g"}, ["g"]),
        ("acpx", ".acpx/config.json", "agents", {"argv": ["g", "-x"]}, ["g", "-x"]),
        ("acpx", ".acpx/config.json", "agents", {"command": "g", "args": ["y"]}, ["g", "y"]),
    ],
)
def test_each_editor_with_a_file_has_acphold_in_front_of_its_agents(
    person: Person, editor: str, path: str, table: str, entry: object, words: list[str]
) -> None:
    file = person.write(path, json.dumps({table: {"g": entry}}))
    assert person.run(editor, "--yes").code == 0
    after = value_at(file.read_text(), [table, "g"])
    assert isinstance(after, dict)
    found = after.get("argv") or [after["command"], *after["args"]]
    assert found == [person.acphold, "wrap", "--", *words]
    assert person.run(editor, "--remove", "--existing", "--yes").code == 0
    left = value_at(file.read_text(), [table, "g"])
    assert isinstance(left, dict)
    assert (left.get("argv") or [left["command"], *left["args"]]) == words


@pytest.mark.parametrize(
    "entry", [1, None, [], {}, {"command": 1}, {"command": ""}, {"command": "x", "args": 1}]
)
def test_an_entry_that_is_none_is_left_as_it_is(person: Person, entry: object) -> None:
    text = json.dumps({"agent_servers": {"x": entry}})
    file = person.write(".config/zed/settings.json", text)
    assert person.run("zed", "--yes").code == 0
    assert file.read_text() == text


@pytest.mark.slow
def test_of_several_at_once_each_that_says_written_stands(person: Person) -> None:
    person.write(".config/zed/settings.json", "{}")
    names = [f"agent{number}" for number in range(8)]
    for name in names:
        (person.programs / name).symlink_to(person.programs / "gemini")
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "acphold", "setup", "--yes", *words],
            env=person.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for words in [*(("zed", "--", name) for name in names), ()]
    ]
    said = [each.communicate()[0] for each in begun]
    written = json.loads((person.home / ".config/zed/settings.json").read_text())
    assert [each.returncode for each in begun] == [0] * 9
    assert all("Written" in each for each in said)
    assert len(written["agent_servers"]) == 9


# -- without words ----------------------------------------------------------------------------


def test_without_words_it_finds_editors_and_agents_and_asks_once(person: Person) -> None:
    zed = person.write(".config/zed/settings.json", ZED)
    code = person.write(".config/Code/User/settings.json", VSCODE)
    opencode = person.programs / "opencode"
    opencode.write_text("#!/bin/sh\n")
    opencode.chmod(0o755)
    asked = person.run()
    assert "there is no terminal to ask on; nothing was written" in asked.err
    assert zed.read_bytes() == ZED.encode()
    done = person.run("--yes")
    assert done.code == 0
    assert done.out.count("Written: ") == 2
    in_zed = EDITORS["zed"].commands(zed.read_text())  # type: ignore[union-attr]
    assert in_zed["Gemini"][1:] == ["wrap", "--", "gemini", "--acp"]
    assert in_zed["opencode (acphold)"][1:] == ["wrap", "opencode"]
    assert [*in_zed] == ["Gemini", "opencode (acphold)"]
    in_code = EDITORS["vscode"].commands(code.read_text())  # type: ignore[union-attr]
    assert in_code["Codex CLI"][1:] == ["wrap", "--", "npx", "codex-acp"]
    assert {"gemini (acphold)", "opencode (acphold)"} <= {*in_code}
    again = person.run("--yes")
    assert again.out.count("Nothing to do: ~/.config/") == 2
    assert person.run("zed", "--remove", "--yes").code == 0
    assert "/settings.json has no agent" in person.run("--yes").out
    assert person.run("--remove", "--yes").code == 0
    assert (zed.read_text(), code.read_bytes()) == (ZED, VSCODE.encode())
    assert person.run("--remove", "--yes").out.count("has nothing that `setup` wrote") == 2


def test_without_words_an_agent_that_npm_fetches_in_an_editor_is_not_added_again(
    person: Person,
) -> None:
    package = "@agentclientprotocol/codex-acp@1.0"
    table = {"agent_servers": {"Codex": {"command": "npx", "args": ["-y", package]}}}
    file = person.write(".jetbrains/acp.json", json.dumps(table))
    (person.programs / "codex-acp").symlink_to(person.programs / "gemini")
    assert person.run("--yes").code == 0
    assert [*json.loads(file.read_text())["agent_servers"]] == ["Codex", "gemini (acphold)"]


def test_without_words_npm_fetches_what_an_agent_lacks_to_speak_the_protocol(
    person: Person,
) -> None:
    file = person.write(".config/zed/settings.json", '{\n  "agent_servers": {}\n}\n')
    (person.programs / "gemini").unlink()
    (person.programs / "claude").symlink_to(person.programs / "npx")
    done = person.run("--yes")
    assert done.code == 0, done.err
    entries = EDITORS["zed"].commands(file.read_text())  # type: ignore[union-attr]
    fetched = [str(person.programs / "npx"), "--yes", "@agentclientprotocol/claude-agent-acp"]
    assert entries == {"claude (acphold)": [person.acphold, "wrap", "--", *fetched]}
    assert person.run("--yes").out.startswith("Nothing to do: ~/.config/zed/")
    assert person.run("--remove", "--yes").code == 0
    assert EDITORS["zed"].commands(file.read_text()) == {}  # type: ignore[union-attr]


def test_without_words_and_without_an_editor_it_says_where_it_looked_and_what_to_type(
    person: Person,
) -> None:
    done = person.run()
    assert (done.code, done.out) == (2, "")
    looked, what_to_do = done.err.splitlines()
    for place in ("~/.config/zed/settings.json", "~/.jetbrains/acp.json", "Cursor", "~/.acpx/"):
        assert place in looked
    commands = re.findall("`acphold (setup .*? gemini)`", what_to_do)
    assert commands == ["setup zed gemini", "setup neovim gemini", "setup emacs gemini"]
    for command in commands[1:]:
        assert person.run(*command.split()[1:]).code == 0
    undone = person.run("--remove")
    assert (undone.code, undone.err) == (0, "")
    assert undone.out.startswith("Nothing to do: found no settings of an editor: looked for ~/")
    named = person.run("--as", "Mine")
    assert "name the editor, one of zed, jetbrains" in named.err


def test_an_agent_that_is_not_installed_is_fetched_after_a_yes(
    person: Person, acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = person.write(".config/zed/settings.json", ZED)
    for name, value in person.environment.items():
        monkeypatch.setenv(name, value)
    done = acphold.on_terminal("setup", "zed", "claude", typed=b"y\ny\n")
    assert "Claude Code is not installed. Let `npx -y @agentclientprotocol/" in done.out
    entry = EDITORS["zed"].commands(file.read_text())["claude (acphold)"]  # type: ignore[union-attr]
    assert entry[1:3] == ["wrap", "--"]
    assert entry[3:] == [
        str(person.programs / "npx"),
        "-y",
        "@agentclientprotocol/claude-agent-acp",
    ]
    assert person.run("zed", "claude", "--remove", "--yes").code == 0
    assert file.read_text() == ZED


def test_a_strangers_backup_is_none_of_ours(tmp_path: Path) -> None:
    (settings := tmp_path / "settings.json").write_text('{"theme": "acphold dark"}')
    (tmp_path / "settings.json.mine.bak").write_bytes(b"\xff")
    (tmp_path / "settings.json.20260101-000000.bak").write_bytes(b"\xff")
    kept = setup._keep(str(settings), str(settings), settings.read_text())
    assert kept is not None
    assert Path(kept).read_text() == settings.read_text()
    assert setup._keep(str(settings), str(settings), settings.read_text()) is None
