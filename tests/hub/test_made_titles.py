"""The person's own command may make the title of a first turn, where nobody gave one."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from acp_wire.surroundings import Surroundings
from acphold.journal.rows import RowChange
from acphold.live.agents.interface import Updates
from acphold.live.hub import bounds as hub_bounds
from acphold.live.hub.alerts import AlertRules
from acphold.live.server import bounds
from acphold.live.server.alert_commands import AlertCommands
from acphold.live.server.principals import Principal
from tests.hub.shared import Onlooker, Shared, shared
from tests.watched_processes import gone, until

TOKEN = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"


class Titles(AlertCommands):
    """Titles by a command of Python code."""

    def __init__(self, code: str, *words: str, **env: str) -> None:
        here = Surroundings.here()
        super().__init__(Surroundings({**here.env, **env}, here.folder))
        self.command = (sys.executable, "-S", "-E", "-c", code, *words)

    def rules(self) -> AlertRules:
        return AlertRules(title=self.command)

    async def over(self) -> None:
        """Wait until no command runs."""
        await until(lambda: not self._entitling)


@asynccontextmanager
async def entitled(journal: Path, titles: Titles) -> AsyncIterator[Shared]:
    async with aclosing(titles), shared(journal, alerts=titles) as house:
        yield house


async def said(house: Shared, client: Onlooker, session: str, prompt: str = "Mend it") -> None:
    """A turn."""
    await house.turn(client, session, prompt, "Done")


async def title_of(house: Shared, session: str) -> str | None:
    return (await house.journal.session(session)).title


def told(client: Onlooker) -> list[str]:
    return [it["title"] for it in client.updates() if it["sessionUpdate"] == "session_info_update"]


PRINTS = "import sys; print(sys.argv[1])"


async def test_the_command_reads_the_first_turn_without_secrets_and_prints_its_title(
    journal: Path, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    code = (
        "import os, sys\n"
        "open(sys.argv[1], 'a').write(sys.stdin.read() + os.environ['ACPHOLD_EVENT'] + '|')\n"
        "print('A fence\\x1b[31m that  stands\\x07\\u202e')\n"
    )
    titles = Titles(code, str(given))
    async with entitled(journal, titles) as house:
        client, session = await house.opened()
        await said(house, client, session, f"Mend it with {TOKEN} for ada@example.com")
        await titles.over()
        assert await title_of(house, session) == "A fence that stands"
        await client.until(lambda: told(client)[-1:] == ["A fence that stands"])
        removed = "Mend it with [removed: API key] for [removed: mail address]\n\nDone"
        assert given.read_text() == f"{removed}title|"
        await said(house, client, session)  # once in a session
        await titles.over()
        assert given.read_text() == f"{removed}title|"


async def test_it_gets_4_kib_at_most_and_no_part_of_a_secret_at_their_end(
    journal: Path, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    titles = Titles("import sys; open(sys.argv[1], 'w').write(sys.stdin.read())", str(given))
    async with entitled(journal, titles) as house:
        client, session = await house.opened()
        long = "é" * (hub_bounds.TITLED_BYTES - 10) + f" {TOKEN} "
        await said(house, client, session, "\n".join([long] * 20))
        await titles.over()
        size = len(given.read_bytes())
        assert hub_bounds.TITLED_BYTES - 4 < size <= hub_bounds.TITLED_BYTES
        client, session = await house.opened()
        keys = "\n".join(f"key: {TOKEN[:-4]}{n:04}" for n in range(2000))
        await said(house, client, session, keys)
        await titles.over()
        assert "ghp_" not in given.read_text()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; print('A lie'); sys.exit(3)", "exit status 3"),
        ("print('\\n \\x1b[2J ... \\n')", "printed no title"),
        ("", "printed no title"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
async def test_the_rules_title_stays_if_the_command_fails_or_prints_none(
    journal: Path, code: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    titles = Titles(code)
    async with entitled(journal, titles) as house:
        client, session = await house.opened()
        await said(house, client, session)
        await titles.over()
        assert await title_of(house, session) == "Mend it"
        assert why in caplog.text


async def test_80_characters_of_one_line_are_taken_however_much_is_printed(journal: Path) -> None:
    titles = Titles("print('\\n' + 'very ' * 2_000_000 + '\\nand another')")
    async with entitled(journal, titles) as house:
        client, session = await house.opened()
        await said(house, client, session)
        await titles.over()
        title = await title_of(house, session) or ""
        assert title.startswith("very very")
        assert len(title) <= 80


async def test_a_command_that_hangs_holds_nothing_up_and_is_ended_with_what_it_started(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "with open(sys.argv[1], 'a') as file: file.write(f'{os.getpid()} {child.pid} ')\n"
        "print('A title', flush=True); time.sleep(1000)\n"
    )
    titles = Titles(code, str(pids))
    async with entitled(journal, titles) as house:
        client, session = await house.opened()
        await said(house, client, session)
        await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        await said(house, client, session, "and on")  # meanwhile
        monkeypatch.setattr(bounds, "TITLE_SECONDS", 0.2)
        client, other = await house.opened()
        await said(house, client, other)
        await until(lambda: len(pids.read_text().split()) == 4)
        await until(lambda: len(titles._entitling) == 1)
        assert "did not end within 0.2 s" in caplog.text
        assert await title_of(house, other) == "Mend it"
    await gone({*map(int, pids.read_text().split())})


def waiting(tmp_path: Path) -> Titles:
    """A command that prints a title once a file is there."""
    code = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    return Titles(f"{code}print('The command')", str(tmp_path / "go"))


async def test_a_title_of_a_person_or_of_the_agent_wins(journal: Path, tmp_path: Path) -> None:
    titles = waiting(tmp_path)
    async with entitled(journal, titles) as house:
        client, persons = await house.opened()
        await said(house, client, persons)
        await house.journal.change(persons, RowChange(given="Mine"))
        client, agents = await house.opened()
        await said(house, client, agents)
        update = {"sessionUpdate": "session_info_update", "title": "The agent's"}
        await house.agent.listener.hear(Updates(agents, "update", [json.dumps(update).encode()]))
        (tmp_path / "go").touch()
        await titles.over()
        assert await title_of(house, persons) == "Mine"
        assert await title_of(house, agents) == "The agent's"


async def test_a_session_that_is_gone_by_then_stays_gone(journal: Path, tmp_path: Path) -> None:
    titles = waiting(tmp_path)
    async with entitled(journal, titles) as house:
        client, session = await house.opened()
        await said(house, client, session)
        await house.journal.delete(session)
        (tmp_path / "go").touch()
        await titles.over()


@pytest.mark.parametrize("env", [{}, {"ACPHOLD_EVENT": "title"}], ids=["tenant", "its own"])
async def test_it_is_not_run_for_other_tenants_nor_for_what_it_has_started_itself(
    env: dict[str, str], journal: Path
) -> None:
    titles = Titles(PRINTS, "Not this", **env)
    async with entitled(journal, titles) as house:
        client = house.stranger(Principal(name="bert", tenant="" if env else "bert"))
        await client.introduce(None, {})
        session = await client.new()
        await said(house, client, session)
        await titles.over()
        assert await title_of(house, session) == "Mend it"
