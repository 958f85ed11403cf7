"""The file by which a machine starts `acphold serve`."""

from __future__ import annotations

import os
import plistlib
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest

from acphold.errors import SettingsError
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.service_unit import service_file

pytestmark = pytest.mark.slow

ACPHOLD = (sys.executable, "-m", "acphold")

WORDS = ("/opt/my tools/python", "-m", "acphold", "serve", 'a"b', "back\\slash", "50%", "$HOME", "")


def settings(text: str) -> dict[str, list[str]]:
    """The settings of a unit, by `SECTION.KEY`, parsed as strictly as systemd.syntax(7)."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            assert line.endswith("]")
            section = line[1:-1]
        elif line and not line.startswith("#"):
            key, mark, value = line.partition("=")
            assert mark
            assert section
            assert key.isalpha()
            assert not line.endswith("\\")
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


def unquoted(value: str) -> list[str]:
    """The words of a setting, each in quotes."""
    words, word, letters = [], "", iter(value)
    for letter in letters:
        assert letter == '"', value
        word = ""
        for inner in letters:
            if inner == '"':
                break
            if inner in "\\%":
                following = next(letters)
                assert following in ('\\"' if inner == "\\" else "%")
                word += following
            else:
                word += inner
        words.append(word)
        assert next(letters, " ") == " "
    return words


def on_machine(monkeypatch: pytest.MonkeyPatch, platform: str, home: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", home)


def test_a_unit_of_systemd_starts_just_these_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_machine(monkeypatch, "linux", "/home/me")
    env = {"PATH": "/bin:/odd %n", "XDG_CONFIG_HOME": str(tmp_path), "OPENAI_API_KEY": "secret"}
    file = service_file(WORDS, env)
    assert file.path == str(tmp_path / "systemd/user/acphold-serve.service")
    unit = settings(file.text.decode())
    (command,) = unit["Service.ExecStart"]
    assert [word.replace("$$", "$") for word in unquoted(command)] == [*WORDS]
    variables = [unquoted(value)[0] for value in unit["Service.Environment"]]
    assert variables == ["PATH=/bin:/odd %n", f"XDG_CONFIG_HOME={tmp_path}"]
    assert unit["Install.WantedBy"] == ["default.target"]
    assert b"secret" not in file.text
    assert "loginctl enable-linger" in "".join(file.start)


def test_a_property_list_of_launchd_starts_just_these_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_machine(monkeypatch, "darwin", str(tmp_path))
    file = service_file(WORDS, {"PATH": "/bin"})
    assert file.path == str(tmp_path / "Library/LaunchAgents/acphold.serve.plist")
    said = plistlib.loads(file.text)
    assert said["ProgramArguments"] == [*WORDS]
    assert said["EnvironmentVariables"] == {"PATH": "/bin"}
    assert file.install(overwrite=False)
    assert file.remove()


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_what_opens_the_journal_and_the_other_machines_is_in_a_file_that_nobody_else_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    on_machine(monkeypatch, platform, str(tmp_path))
    env = {
        "ACPHOLD_JOURNAL": "postgresql://me@db.example/acphold",
        "ACPHOLD_NODE_TOKEN": "acphold_secret",
        "PGPASSWORD": "another secret",
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    file = service_file(WORDS, env)
    assert all(value.encode() in file.text for value in env.values() if value != str(tmp_path))
    before = os.umask(0)
    try:
        assert file.install(overwrite=False)
    finally:
        os.umask(before)
    path = Path(file.path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)  # as an earlier release made it
    assert file.install(overwrite=False)
    assert path.stat().st_mode & 0o777 == 0o600
    assert not file.install(overwrite=False)


def test_a_line_break_in_a_word_makes_no_setting_of_its_own() -> None:
    with pytest.raises(SettingsError):
        service_file(["serve", "a\nExecStart=/bin/evil"], {})


@pytest.mark.interop
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-m", "acphold", "serve", "--", "/odd 100%/$agent"]
    env = {"PATH": "/bin", "XDG_CONFIG_HOME": str(tmp_path)}
    file = service_file(words, env)
    file.install(overwrite=False)
    # Its runtime folder is only looked for: nothing is started.
    checked = run(
        ["systemd-analyze", "--user", "verify", file.path],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "acphold-serve" not in checked.stderr, checked.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="a unit of systemd")
def test_what_is_installed_serves_and_another_file_is_not_written_over(tmp_path: Path) -> None:
    env = {
        **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "ACPHOLD_JOURNAL": str(tmp_path / "journal.db"),
    }

    def serve(*words: str) -> tuple[int, str]:
        done = run([*ACPHOLD, "serve", *words], env=env, capture_output=True, text=True, stdin=-3)
        return done.returncode, done.stdout + done.stderr

    words = ("--install", "--listen", "127.0.0.1:0", "--", *ACPHOLD, "agent", "demo")
    assert "Written" in serve(*words)[1]
    assert "Already up to date" in serve(*words)[1]
    path = tmp_path / "config/systemd/user/acphold-serve.service"
    unit = settings(path.read_text())
    command = [word.replace("$$", "$") for word in unquoted(unit["Service.ExecStart"][0])]
    variables = dict(unquoted(it)[0].split("=", 1) for it in unit["Service.Environment"])
    # As the manager starts it: in the home folder, with its variables and few others.
    place = command.index("--")
    with Popen(
        [*command[:place], "--json", *command[place:]],
        env={**variables, "HOME": str(tmp_path)},
        cwd=tmp_path,
        stdout=PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert '"url"' in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0

    code, told = serve("--install", "--", *ACPHOLD, "agent", "demo", "--other")
    assert code == Exit.USAGE
    assert "--force" in told
    assert serve("--install", "--force", "--", *ACPHOLD, "agent", "demo", "--other")[0] == 0
    assert "--other" in path.read_text()
    assert "Removed" in serve("--uninstall")[1]
    assert "Nothing to remove" in serve("--uninstall")[1]
    path.write_text("[Service]\nExecStart=/bin/mine\n")
    assert serve("--uninstall")[0] == Exit.USAGE
    assert path.exists()
