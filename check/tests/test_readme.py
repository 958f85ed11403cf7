"""The front page shows what the checker says of the agent on acp-wire's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from acp_check.rules import CHECKS, clients

README = Path(__file__).parents[1] / "README.md"
WIRE = Path(__file__).parents[2] / "wire" / "README.md"


def test_the_report_of_the_front_page_is_made_so(tmp_path: Path) -> None:
    page, wire = README.read_text("utf-8"), WIRE.read_text("utf-8")
    shown = page.partition("$ acp-check -- python agent.py\n")[2].partition("```")[0].splitlines()
    [agent] = re.findall(r"`agent\.py`:\n\n```python\n([^`]+)```", wire)
    (tmp_path / "agent.py").write_text(agent)
    only = ("--only", "new.unique-ids", "--", sys.executable, "agent.py")
    done = subprocess.run(
        [sys.executable, "-m", "acp_check", *only],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = done.stdout.replace(sys.executable, "python").splitlines()
    assert done.returncode == 1, done.stderr
    assert [line for line in shown if line not in told] == []
    assert f" {len({it.rule.id for it in (*CHECKS, *clients.CHECKS)})} rules" in page
