from __future__ import annotations

import math
import pydoc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import acphold
from acphold.errors import UnknownSessionError
from acphold.library.agent import definition_of
from acphold.testing import connect
from acphold.types import CustomCategory
from tests.conftest import TypeChecker


@pytest.fixture
def agent() -> acphold.Agent:
    return acphold.Agent("test", version="1")


async def nothing(*_: Any) -> None:
    """Does nothing."""


Declare = Callable[[acphold.Agent], object]


def twice(declare: Declare) -> Declare:
    def both(agent: acphold.Agent) -> None:
        declare(agent)
        declare(agent)

    return both


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (twice(lambda agent: agent.prompt(nothing)), "already has a prompt handler"),
        (twice(lambda agent: agent.mode("ask")), "already has a mode 'ask'"),
        (twice(lambda agent: agent.option("x", default=True)), "already has an option 'x'"),
        (twice(lambda agent: agent.command("x", "y")), "already has a command 'x'"),
        (twice(lambda agent: agent.auth("x", "y")(nothing)), "already has a sign-in method 'x'"),
        (lambda agent: agent.command("/plan", "y"), "without the slash"),
        (lambda agent: agent.command("two words", "y"), "a single word"),
        (lambda agent: agent.option("x", default="c", values=["a", "b"]), "not one of its values"),
        (lambda agent: agent.option("x", default="a"), "not one of its values"),
        (lambda agent: agent.method("x"), "begin with '_'"),
        (lambda agent: agent.notification("x/y"), "begin with '_'"),
        (lambda agent: agent.prompt(lambda turn: nothing()), "must be a coroutine function"),
        (lambda agent: agent.run(), "answers no prompts"),
    ],
)
def test_what_cannot_be_declared_is_refused_at_its_line(
    agent: acphold.Agent, declare: Declare, why: str
) -> None:
    with pytest.raises(acphold.DeclarationError, match=why):
        declare(agent)


def test_names_for_people_are_made_from_ids(agent: acphold.Agent) -> None:
    agent.prompt(nothing)
    agent.mode("deep-think")
    agent.option("line_width", default="80", values=["80", ("100", "Wide", "Wider than before")])
    assert definition_of(agent).modes[0].name == "Deep Think"
    assert [option.name for option in definition_of(agent).options] == ["Mode", "Line Width"]
    values = definition_of(agent).options[1].values or ()
    assert [(v.value, v.name, v.description) for v in values] == [
        ("80", "80", None),
        ("100", "Wide", "Wider than before"),
    ]


def test_an_option_of_the_authors_may_stand_for_the_modes(agent: acphold.Agent) -> None:
    agent.prompt(nothing)
    agent.mode("ask")
    agent.option("style", default="ask", values=["ask"], category="mode")
    assert [option.id for option in definition_of(agent).options] == ["style"]


def test_a_session_that_is_not_open_is_not_found(agent: acphold.Agent) -> None:
    with pytest.raises(UnknownSessionError):
        agent.session("nobody")


def test_a_decorated_function_stays_what_it_was(agent: acphold.Agent) -> None:
    assert agent.prompt(nothing) is nothing
    assert agent.on_new(nothing) is nothing
    assert agent.method("_x")(nothing) is nothing


TYPED = """
import acphold

agent = acphold.Agent("typed", version="1")

@agent.prompt
async def answer(turn: acphold.Turn) -> {returned}:
    raise NotImplementedError

@agent.command("do", "Do it")
async def do(turn: acphold.Turn, words: str) -> {returned}:
    reveal_type(turn.session)
    raise NotImplementedError

@agent.on_new
async def begin(session: acphold.Session) -> None:
    reveal_type(session)
"""


RETURNED = ["int", "None", "acphold.StopReason", "acphold.StopReason | None"]


@pytest.fixture(scope="module")
def typed(
    tmp_path_factory: pytest.TempPathFactory, type_checker: TypeChecker
) -> list[tuple[str, str]]:
    """Errors of mypy on agents whose coroutines return one of RETURNED: the type and the error."""
    folder = tmp_path_factory.mktemp("typed")
    for index, returned in enumerate(RETURNED):
        (folder / f"agent_{index}.py").write_text(TYPED.format(returned=returned))
    said, _ = type_checker(folder)
    found = [line for line in said.splitlines() if line.startswith("agent_")]
    return [(RETURNED[int(line[len("agent_")])], line.partition(": ")[2]) for line in found]


@pytest.mark.slow
def test_a_wrong_return_type_is_explained_by_the_type_checker_as_a_stop_reason(
    typed: list[tuple[str, str]],
) -> None:
    errors = [(returned, said) for returned, said in typed if said.startswith("error")]
    assert [returned for returned, _ in errors] == ["int", "int"]
    assert all('"StopReasonOrNone"' in said and '"int"' in said for _, said in errors)


@pytest.mark.slow
def test_hovering_shows_the_name_that_authors_import(typed: list[tuple[str, str]]) -> None:
    revealed = [said for _, said in typed if said.startswith("note")]
    assert len(revealed) == 2 * len(RETURNED)
    assert all('.Session"' in said for said in revealed)


@pytest.mark.parametrize("name", ["run", "serve", "server"])
def test_help_tells_of_each_option_on_lines_of_its_own(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(getattr(acphold.Agent, name)))
    assert max(map(len, text.splitlines())) <= 100
    assert re.search(
        r"^    \*,\n    journal: str \| os\.PathLike\[str\] \| None = None,$", text, re.M
    )
    assert re.search(r"^    journal: where conversations are kept", text, re.M)
    assert "Annotated" not in text


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"jornal": "x.db"}, "no option 'jornal'; there are: journal, cancel_grace, "),
        ({"journal": 5}, "journal=5: Expected `str | null`, got `int`"),
        ({"cancel_grace": "ten"}, "cancel_grace='ten': Expected `float`, got `str`"),
        ({"cancel_grace": math.nan}, "cancel_grace=nan: Expected `float` >= 0.0"),
        ({"answer_timeout": math.nan}, "answer_timeout=nan: Expected `float` >= 0.0"),
        ({"answer_timeout": math.inf}, "answer_timeout=inf: Expected `float` <= 1000000000.0"),
        ({"answer_timeout": -1}, "answer_timeout=-1: Expected `float` >= 0.0"),
        ({"mcp_timeout": -1}, "mcp_timeout=-1: Expected `float` >= 0.0"),
        ({"when_detached": "wiat"}, "when_detached='wiat': Invalid enum value 'wiat'; see help("),
    ],
)
def test_an_option_that_is_unknown_or_of_another_type_is_refused_where_it_is_given(
    agent: acphold.Agent, given: dict[str, Any], why: str
) -> None:
    agent.prompt(nothing)
    for method in (agent.run, agent.server):
        with pytest.raises(acphold.DeclarationError, match=re.escape(why)):
            method(**given)
    with pytest.raises(acphold.DeclarationError, match="share='no': Expected `bool`, got `str`"):
        agent.server(share="no")  # type: ignore[arg-type]
    agent.server(journal=Path("x.db"), cancel_grace=5, snapshots="all")


@pytest.mark.parametrize("name", ["", "bad name/../x", "two words", "../x", "a\n", "-x"])
def test_a_name_that_is_not_one_word_is_refused(name: str) -> None:
    with pytest.raises(acphold.DeclarationError, match="cannot be the name of an agent"):
        acphold.Agent(name, version="1")


def test_a_category_that_no_client_knows_is_refused() -> None:
    agent = acphold.Agent("test", version="1")
    with pytest.raises(acphold.DeclarationError, match="the category is one of mode, model"):
        agent.option("a", default=True, category="modle")  # type: ignore[arg-type]
    agent.option("a", default=True, category=CustomCategory("_mine"))


async def test_what_is_declared_once_the_agent_is_served_is_refused() -> None:
    agent = acphold.Agent("test", version="1")

    @agent.prompt
    async def answer(turn: acphold.Turn) -> None: ...

    async def hook(session: acphold.Session) -> None: ...

    agent.on_new(hook)
    async with connect(agent):
        pass
    with pytest.raises(acphold.DeclarationError, match="'test' is in use already"):
        agent.on_close(hook)
    with pytest.raises(acphold.DeclarationError, match="'test' is in use already"):
        agent.option("a", default=True)


def test_without_an_event_loop_of_asyncio_it_is_said_what_is_needed() -> None:
    agent = acphold.Agent("test", version="1")

    @agent.prompt
    async def answer(turn: acphold.Turn) -> None: ...

    for opening in (acphold.connect("sh"), connect(agent), agent.server()):
        with pytest.raises(RuntimeError, match="acphold needs the event loop of asyncio; under"):
            opening.__aenter__().send(None)  # as another loop does it
