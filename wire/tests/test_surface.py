"""The public names of acp-wire, and the programs of its front page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import acp_wire

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def public() -> list[str]:
    """`__all__`, which a type checker does not see."""
    names: list[str] = vars(acp_wire)["__all__"]
    return names


def test_at_most_forty_names_are_public_and_each_is_there_and_has_a_docstring() -> None:
    names = public()
    assert len(names) == len({*names}) <= 40
    made = {name: getattr(acp_wire, name) for name in names}
    kinds = {name: it for name, it in made.items() if isinstance(it, type) or callable(it)}
    assert len(kinds) > 30
    assert [name for name, it in kinds.items() if not it.__doc__] == []
    assert dir(acp_wire) == sorted(names)


def test_a_name_is_imported_at_its_first_use_only() -> None:
    code = "import sys, acp_wire; print(*[it for it in sys.modules if it.startswith('acp_wire.')])"
    assert subprocess.check_output([sys.executable, "-c", code], timeout=30).split() == []


def test_a_client_talks_through_a_proxy_to_an_agent_of_the_front_page(tmp_path: Path) -> None:
    programs = re.findall(r"`(\w+\.py)`.*\n\n```python\n([^`]+)```", README)
    assert [name for name, _ in programs] == ["agent.py", "client.py", "proxy.py"]
    for name, text in programs:
        (tmp_path / name).write_text(text)
        assert len([line for line in text.splitlines() if line]) <= 25
        assert {*re.findall(r"\bacp\.(\w+)", text)} <= {*public()}
    words = re.findall(r"^\$ python (.+)\n(.+)", README, re.M)
    (line, told) = words[0]
    command = [sys.executable if word == "python" else word for word in line.split()]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, told + "\n"), done.stderr
