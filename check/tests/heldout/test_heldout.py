"""The held-out corpus: the check fails no correct client, however odd.

Odd agents are in `tests.oddities`, odd servers in `test_http_rules` and `test_servers`, and what
agents of others fail in acphold's interop tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples import sample

CLIENT = Path(__file__).with_name("client.py")
CHECK = [sys.executable, "-m", "acp_check", "--json", "--client"]
ODDITIES = ["text-ids", "bare", "rejects", "metas", "short", "nulls"]
OFFERED = [
    (oddity, offers)
    for oddity in ("", *ODDITIES)
    for offers in ("some", "others", "none", "version")
]


def test_each_oddity_changes_something() -> None:
    source = CLIENT.read_text()
    assert [it for it in ODDITIES if f'is_("{it}")' not in source] == []


@pytest.mark.slow
@pytest.mark.parametrize(("oddity", "offers"), sample(OFFERED))
def test_a_correct_client_fails_no_rule_whatever_it_is_offered(
    oddity: str, offers: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    words = ["--offers", offers, "--report", str(report)]
    argv = [sys.executable, str(CLIENT), *([oddity] if oddity else []), "--", *CHECK, *words]
    subprocess.run(argv, timeout=140, capture_output=True)
    found = {it["id"]: it for it in json.loads(report.read_text())["checks"]}
    assert any(it["verdict"] == "pass" for it in found.values()), "nothing was checked"
    assert {id: it["why"] for id, it in found.items() if it["verdict"] == "fail"} == {}
