"""Every option, variable and exit code is in docs/reference.md, each JSON field in docs/json.md,
each key of the settings file in docs/use.md."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from argparse import SUPPRESS
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from acphold.conversation.exports.redacted import Removed
from acphold.conversation.history.entries import KINDS, Entry
from acphold.faces.cli.alert_settings import COMMANDS as COMMANDS_OF_ALERTS, SECONDS, alert_rules
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.import_command import Tally
from acphold.faces.cli.main import COMMANDS, parser_of
from acphold.faces.cli.settings import OWN_KEYS
from acphold.journal import bounds
from acphold.journal.rows import SessionRow
from acphold.journal.seams import SearchHit
from acphold.live.hub.alerts import Alert
from acphold.live.reading.json_facts import (
    entry_json as shown,
    hit_json as found,
    session_json as listed,
)
from acphold.live.reading.listed_sessions import ListedSession
from acphold.live.server import alert_commands
from docs.option_tables import PAGES
from tests.test_plan import SOURCES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join(
    (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("use", "reference", "json")
)


def section(heading: str) -> str:
    """The section below the heading that contains this, up to the next heading."""
    after = re.split(rf"^#+ .*{re.escape(heading)}.*$", PAGE, maxsplit=1, flags=re.MULTILINE)[1]
    return re.split(r"^#+ ", after, maxsplit=1, flags=re.MULTILINE)[0]


def test_every_option_of_a_command_is_in_its_section() -> None:
    for name in COMMANDS:
        heading = next(it for it in PAGE.splitlines() if f"`acphold {name}" in it and "#" in it)
        page = heading + section(f"`acphold {name}")
        shown = (it for it in parser_of(name).actions if it.help != SUPPRESS)  # others are gone
        flags = {flag for action in shown for flag in action.option_strings}
        everywhere = {"-h", "--help", "--journal", "-n"}  # the last one is among the common ones
        assert {flag for flag in flags - everywhere if flag not in page} == set(), name


def test_the_commands_stand_in_the_order_of_the_help() -> None:
    headings = "".join(line for line in PAGE.splitlines() if line.startswith("### `acphold"))
    assert [*dict.fromkeys(re.findall(r"`acphold ([a-z-]+(?: [a-z][a-z-]*)*)", headings))] == [
        *COMMANDS
    ]


def test_no_option_is_in_the_page_that_no_command_has() -> None:
    flags = {
        flag
        for name in COMMANDS
        for action in parser_of(name).actions
        for flag in action.option_strings
    }
    assert set(re.findall(r"`(--[a-z0-9-]+)", PAGE.split("# JSON output")[0])) <= {*flags, "--acp"}


def test_every_key_of_an_agent_is_in_the_section_on_the_settings_file() -> None:
    flags = {flag for action in parser_of("wrap").actions for flag in action.option_strings}
    options = {flag[2:].replace("-", "_") for flag in flags if flag.startswith("--")}
    page = section("The settings file")
    assert {key for key in (*OWN_KEYS, *options - {"help"}) if f"`{key}`" not in page} == set()


def test_every_key_and_field_of_alerts_is_in_their_section() -> None:
    about = Alert("waiting", "s", "a", "/", "t", 1)
    fields = {
        *json.loads(alert_commands.stdin_json(about)),
        *json.loads(alert_commands.stdin_json(replace(about, event="turn_end"))),
    }
    names = {*COMMANDS_OF_ALERTS, *SECONDS, *alert_commands.variables(about), *fields}
    assert {name for name in names if f"`{name}`" not in section("Alerts")} == set()


def test_the_examples_of_alerts_can_be_used() -> None:
    examples = re.findall(r"```toml\n(\[alerts\].*?)```", PAGE, flags=re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        assert alert_rules(tomllib.loads(example), "here").on_waiting[:2] == ("sh", "-c")
    (example,) = re.findall(r"```toml\n(\[titles\].*?)```", PAGE, flags=re.DOTALL)
    assert alert_rules(tomllib.loads(example), "here").title


def test_every_environment_variable_of_the_code_is_in_the_page() -> None:
    paths = [
        path
        for package in SOURCES.keys() - {"acp_check"}
        for path in SOURCES[package].rglob("*.py")
        if "node_modules" not in path.parts
    ]
    used = {name for path in paths for name in variables(path)}
    assert {"ACPHOLD_JOURNAL", "XDG_DATA_HOME", "COLUMNS", "PATH"} <= used
    of_agents = (DOCS / "import.md").read_text("utf-8").partition("## Where they are found")[2]
    named = section("Environment variables") + of_agents
    assert {name for name in used if f"`{name}`" not in named} == set()


def variables(path: Path) -> Iterator[str]:
    """Names of environment variables that a module asks for, or makes up."""
    source = path.read_text(encoding="utf-8")
    if "environ" not in source and "ACPHOLD_" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(name)) if re.fullmatch("ACPHOLD_[A-Z_]+", name):
                yield name
            case ast.Call(
                func=ast.Attribute(value=place, attr="get"),
                args=[ast.Constant(value=str(name)), *_],
            ) if "environ" in ast.dump(place):
                yield name
            case ast.Subscript(value=place, slice=ast.Constant(value=str(name))) if (
                "environ" in ast.dump(place)
            ):
                yield name
            case ast.Compare(left=ast.Constant(value=str(name)), comparators=[place]) if (
                "environ" in ast.dump(place)
            ):
                yield name


def test_every_meta_key_that_clients_see_is_in_the_page_on_the_protocol() -> None:
    rooms = [SOURCES["acphold"] / room for room in ("live/hub", "live/server", "library")]
    sources = [path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py")]
    keys = {key for source in sources for key in re.findall(r'"(acphold/[a-zA-Z]+)"', source)}
    assert len(keys) > 4
    page = (DOCS / "protocol.md").read_text(encoding="utf-8")
    assert {key for key in keys if f"`{key}`" not in page} == set()


def test_every_exit_code_is_in_the_page() -> None:
    rows = section("Exit codes")
    assert all(f"- {code.value}: {code.meaning}\n" in rows for code in Exit)


def test_every_field_of_the_json_output_is_in_the_page() -> None:
    row = SessionRow("s", "agent", "/", (), None, 0, 0, 0, True, 0)
    hit = SearchHit("s", 1, 0, "user", "x", (), "agent", "/", None, None)
    lines = (listed(ListedSession(row)), found(hit), shown(Entry(1, "prompt", 0, b"[]")))
    fields = {name for line in lines for name in json.loads(line)} | {"agent", *Tally().json()}
    fields |= json.loads(Removed("s", 1, "home path", 1).line()).keys()
    assert {
        name for name in (*fields, *KINDS) if f"`{name}`" not in section("JSON output")
    } == set()


def test_the_options_of_serving_stand_there_as_they_are() -> None:
    for name, written in PAGES.items():
        text = (DOCS / name).read_text(encoding="utf-8")
        assert written(text) == text, "make docs"


def words(text: str) -> str:
    """The same on one line."""
    return " ".join(text.split())


def test_who_may_do_what_with_a_session_is_said_in_the_help_as_on_the_page() -> None:
    for sentence in (
        "Only they see it, and you, who run the server: here, or with a token without a user.",
        "Only its owner, and you, can rename, archive, copy or delete it.",
    ):
        assert sentence in words(parser_of("access share").format_help())
        assert sentence in words(section("`acphold access share"))


def test_how_far_a_search_reads_what_is_not_indexed_yet_is_said() -> None:
    sessions, kibibytes = bounds.UNSETTLED_SESSIONS, bounds.UNSETTLED_BYTES >> 10
    most = f"the ends of the {sessions} newest sessions, up to {kibibytes} KiB of each"
    assert most in words(parser_of("search").format_help())
    assert most in words(section("`acphold search"))
