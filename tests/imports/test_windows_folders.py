"""A conversation of a program of Windows, or of a project that is gone, keeps its folder."""

from __future__ import annotations

import json
import sqlite3
from os.path import expanduser
from pathlib import Path

import pytest

from acphold.imports import reader, sources
from acphold.imports.sources import Facts, folder_here
from tests.cli.command_line import CommandLine
from tests.imports.claude_home import Transcript
from tests.imports.every_reader import Said, found, write
from tests.imports.test_missed import imported
from tests.imports.told import Story


@pytest.fixture
def drives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where WSL has mounted the drives, by its configuration."""
    root = tmp_path / "drives"
    (root / "c/Users/me/my project").mkdir(parents=True)
    configuration = tmp_path / "wsl.conf"
    configuration.write_text(
        f'[boot]\nsystemd = true\n[automount]\nenabled = true\nRoot = "{root}/"\n[user]\nroot=/x\n'
    )
    monkeypatch.setattr(sources, "CONFIGURATION", str(configuration))
    monkeypatch.setenv("WSL_DISTRO_NAME", "Ubuntu")
    folder_here.cache_clear()
    return root


@pytest.mark.parametrize(
    "written",
    ["C:\\Users\\me\\my project", "c:/Users/me/my project", "C:\\Users/me\\my project\\"],
)
def test_a_folder_of_windows_is_the_one_that_wsl_has_mounted(drives: Path, written: str) -> None:
    assert Facts("a", "s", written).folder == str(drives / "c/Users/me/my project")


@pytest.mark.parametrize("host", ["wsl$", "wsl.localhost", "WSL.LocalHost"])
def test_a_folder_of_this_distribution_is_the_one_here(
    drives: Path, tmp_path: Path, host: str
) -> None:
    written = f"\\\\{host}\\ubuntu" + str(tmp_path).replace("/", "\\")
    assert Facts("a", "s", written).folder == str(tmp_path)
    assert Facts("a", "s", f"//{host}/Ubuntu{tmp_path}").folder == str(tmp_path)


@pytest.mark.usefixtures("drives")
@pytest.mark.parametrize(
    "written",
    [
        "C:\\Users\\me\\gone",
        "D:/work",
        "\\\\wsl$\\Debian\\home\\me",
        "\\\\wsl.localhost\\Ubuntu\\no\\such\\folder",
        "\\\\server\\share\\work",
    ],
)
def test_one_that_is_not_here_stays_as_it_is(written: str) -> None:
    assert Facts("a", "s", written).folder == written


@pytest.mark.usefixtures("drives")
@pytest.mark.parametrize("written", ["", "work", "C:work", "\\work", "C:\\" + "x" * 5000])
def test_what_is_no_absolute_folder_is_none(written: str, tmp_path: Path) -> None:
    assert Facts("a", "s", written).named_folder == ""


@pytest.mark.usefixtures("drives")
def test_a_folder_of_windows_that_is_not_here_is_said(journal: Path, tmp_path: Path) -> None:
    acphold = CommandLine(journal)
    transcript = Transcript("Hello.")
    for record in transcript.records:
        record["cwd"] = "D:\\work"
    transcript.write(tmp_path)
    done = acphold.run("import", "--from", str(tmp_path))
    such = "1 conversation in folders that are not here, such as D:\\work"
    assert f"claude: {such}" in done.err
    assert "D:\\work" in acphold.run("list", "--json").out.replace("\\\\", "\\")


def test_each_of_a_project_that_is_gone_is_counted(journal: Path, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    for number in range(3):
        transcript = Transcript(f"Hello {number}.")
        transcript.assistant("Hi.")
        for record in transcript.records:
            record |= {"cwd": gone if number else str(tmp_path), "sessionId": f"s-{number}"}
        transcript.write(tmp_path, f"s-{number}")
    done = CommandLine(journal).run("import", "--from", str(tmp_path))
    assert f"2 conversations in folders that are not here, such as {gone}" in done.err


@pytest.mark.parametrize("other", ["/", "/tmp", "~"])
def test_one_whose_project_is_gone_is_not_moved_to_where_no_project_is(
    journal: Path, tmp_path: Path, other: str
) -> None:
    acphold, gone = CommandLine(journal), str(tmp_path / "gone")
    transcript = Transcript("Hello.")
    transcript.assistant("Hi.")
    for record, folder in zip(transcript.records, (gone, expanduser(other)), strict=True):
        record["cwd"] = folder
    transcript.write(tmp_path)
    done = acphold.run("import", "--from", str(tmp_path))
    assert f"1 conversation in folders that are not here, such as {gone}" in done.err
    assert json.loads(acphold.run("list", "--json").out)["cwd"] == gone


def test_one_folder_of_windows_can_be_asked_for_by_its_path_here(
    journal: Path, tmp_path: Path, drives: Path
) -> None:
    acphold = CommandLine(journal)
    transcript = Transcript("Hello.")
    for record in transcript.records:
        record["cwd"] = "C:\\Users\\me\\my project"
    transcript.write(tmp_path)
    here = str(drives / "c/Users/me/my project")
    (told,) = imported(acphold, tmp_path, "--cwd", here)
    assert told["new"] == 1


@pytest.mark.parametrize(
    "uri",
    [
        "file:///c%3A/Users/me/my%20project",
        "file://wsl.localhost/Ubuntu{drives}/c/Users/me/my%20project",
        "vscode-remote://wsl%2Bubuntu{drives}/c/Users/me/my%20project",
    ],
)
@pytest.mark.parametrize("name", ["vscode", "cursor"])
def test_a_folder_that_an_editor_names_by_its_uri_is_the_one_here(
    drives: Path, tmp_path: Path, name: str, uri: str
) -> None:
    write(name, tmp_path, [Said(1, 1_767_322_800_000, "Hello.", "Hi.")])
    if name == "vscode":
        (path,) = tmp_path.glob(".config/*/User/workspaceStorage/*/workspace.json")
        path.write_text(json.dumps({"folder": uri.format(drives=drives)}))
    else:
        database = sqlite3.connect(tmp_path / ".config/Cursor/User/globalStorage/state.vscdb")
        place = {"uri": {"external": uri.format(drives=drives)}}
        about = {"composerId": "c1", "workspaceIdentifier": place}
        heads = json.dumps({"allComposers": [about]})
        database.execute("INSERT INTO ItemTable VALUES ('composer.composerHeaders', ?)", (heads,))
        database.commit()
        database.close()
    (source,) = found(name, tmp_path)
    told = Story(reader(name), source)
    assert told.facts.named_folder == str(drives / "c/Users/me/my project")
