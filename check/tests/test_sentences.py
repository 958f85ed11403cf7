"""Each sentence of the protocol with MUST or SHOULD has rules that can fail, or a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_check.rules import CHECKS
from acp_check.rules.clients import CHECKS as CLIENT_CHECKS
from docs import protocol_pages
from docs.sentences import DIGESTS, SENTENCES

KNOWN = {check.rule.id: check for check in (*CHECKS, *CLIENT_CHECKS)}

PAGE = """---
title: "Prompt Turn"
---

An opening that demands nothing.

## Stop reasons

The agent **MUST** answer. It may take its time.

- It **SHOULD NOT** wait: it MUST go on

```json
{"text": "it MUST not count"}
```
"""


def test_each_sentence_has_rules_that_can_fail_or_a_reason() -> None:
    for sentence in SENTENCES:
        assert bool(sentence.rules) != bool(sentence.why), sentence
        for id in sentence.rules:
            assert not KNOWN[id].unseen, f"{id} can never fail"


def test_the_table_has_the_facts_that_were_found_on_the_pages() -> None:
    facts = {(it.page, it.heading, it.number, it.words) for it in SENTENCES}
    assert protocol_pages.digests(facts) == DIGESTS


def test_the_demands_of_a_page_are_found_by_heading_and_words() -> None:
    place = ("Prompt Turn", "Stop reasons")
    assert [*protocol_pages.demands(PAGE)] == [(*place, "MUST"), (*place, "SHOULD NOT MUST")]


def test_pages_that_differ_from_the_table_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prompt-turn.mdx").write_text(PAGE)
    assert protocol_pages.main([str(tmp_path)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert "only on the pages: Prompt Turn, Stop reasons, 2: SHOULD NOT MUST" in told
    assert any(line.startswith("the digest of Prompt Turn is ") for line in told)
    assert any(line.startswith("only in the table: Initialization") for line in told)
