"""A session as Markdown."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st
from markdown_it import MarkdownIt

from acphold.conversation.exports.markdown import index, without_tags
from tests.exports.sessions import HEAD, HOSTILE, author, exported
from tests.raw_entries import CONVERSATION, ended, prompt, said, update

OURS = {"<details>", "<summary>", "</details>", "<!-- -->", "<kbd>", "</kbd>"}


def tags(text: str) -> list[str]:
    """The HTML in a text, as a reader of Markdown finds it."""
    tokens = MarkdownIt("commonmark").parse(text)
    inside = [child for token in tokens for child in token.children or ()]
    return [t.content.strip() for t in (*tokens, *inside) if t.type.startswith("html_")]


def test_a_file_has_all_that_was_said_and_done() -> None:
    text = exported("markdown", *CONVERSATION)
    assert text.startswith("# Greeting\n\n- session: `s-1`\n- agent: `demo-agent`\n")
    assert "<kbd>You</kbd>\n\n> Make it friendlier\n" in text
    assert "<kbd>Agent</kbd>\n\nI will change **it**.\n" in text
    assert "- ✓ Change the greeting\n" in text
    assert "<summary>● Edit hello.py — edit, completed</summary>" in text
    assert "```diff\n@@ -1 +1 @@\n-hi\n+hello\n```" in text


def test_the_prompts_of_named_users_have_their_names() -> None:
    prompts = author("ada"), prompt("one"), ended(), author("bert"), prompt("two"), ended()
    text = exported("markdown", *prompts)
    assert "<kbd>ada</kbd>\n\n> one\n" in text
    assert "<kbd>bert</kbd>\n\n> two\n" in text
    assert "<kbd>a\\*b\\*</kbd>" in exported("markdown", author("a*b*"), prompt("one"))


def test_a_call_is_shown_with_its_input_and_with_its_output_if_it_says_nothing_else() -> None:
    given = {"title": "Run it", "rawInput": {"command": "ls -l"}, "rawOutput": {"code": 7}}
    text = exported("markdown", update("tool_call", toolCallId="t", **given))
    assert '```json\n{\n  "command": "ls -l"\n}\n```' in text
    assert '"code": 7' in text
    shown = [{"type": "content", "content": {"type": "text", "text": "what it said"}}]
    text = exported("markdown", update("tool_call", toolCallId="t", **given, content=shown))
    assert "ls -l" in text
    assert "what it said" in text
    assert "code" not in text
    assert "*no output*" in exported("markdown", update("tool_call", toolCallId="t", title="T"))


def test_what_an_agent_wrote_stays_markdown() -> None:
    words = "# Head\n\n- a `List<int>`\n\n```html\n<b>x</b>\n```\n<https://example.org>"
    assert f"\n{words}\n" in exported("markdown", said(words))


def test_tags_are_escaped_but_in_code() -> None:
    assert without_tags("a <b>c</b> `<i>` <") == "a &lt;b>c&lt;/b> `<i>` <"


def test_a_picture_of_an_agent_is_not_fetched_by_who_looks_at_an_export() -> None:
    for text in ("![p](https://x/p.png)", "\\\\![p](https://x/p.png)", "![p][r]\n\n[r]: https://x"):
        tokens = MarkdownIt("commonmark").parse(without_tags(text))
        inside = [child.type for token in tokens for child in token.children or ()]
        assert "image" not in inside, text
    assert without_tags("`![p](x)`") == "`![p](x)`"


@example("\\`")  # what follows only looks like code
@given(st.text("`!\\[]()x \n~"))
def test_no_text_makes_a_picture(text: str) -> None:
    shown = without_tags(f"{text}![p](https://x/p.png){text}")
    tokens = MarkdownIt("commonmark").parse(shown)
    assert "image" not in [child.type for token in tokens for child in token.children or ()]


def test_a_fence_that_was_left_open_is_closed() -> None:
    assert without_tags("~~~~ py\n<b>\n~~~") == "~~~~ py\n<b>\n~~~\n~~~~"


@pytest.mark.parametrize(
    "text",
    [
        "`a\n`<script>`",
        "\\`<script>`",
        "- x\n  ```\n<script>",
        "```\n```\n<script>",
        "``` `\n<script>\n```",
        "    ` a\n    `<script>`",
        "<!--",
        "<?php",
        "<script\n>",
    ],
)
def test_what_only_looks_like_code_is_no_way_out(text: str) -> None:
    assert tags(without_tags(text)) == []


@given(st.text(st.sampled_from("<b>/!-`~ \n\\[]()x>"), max_size=40))
def test_no_text_makes_a_tag(text: str) -> None:
    assert tags(without_tags(text)) == []


@given(st.lists(st.text(st.sampled_from("<b>/`~ \n-1.x>"), max_size=12), min_size=2, max_size=3))
def test_no_messages_in_a_row_make_a_tag(texts: list[str]) -> None:
    raws = [update("agent_message_chunk", messageId=str(n), content={"type": "text", "text": t})
            for n, t in enumerate(texts)]  # fmt: skip
    assert {tag.split("\n")[0] for tag in tags(exported("markdown", *raws))} <= OURS


def test_hostile_text_closes_no_fold_and_clears_no_screen() -> None:
    raws = [
        author(HOSTILE),
        prompt(HOSTILE),
        said(HOSTILE),
        said(HOSTILE, "agent_thought_chunk"),
        update("tool_call", toolCallId="t", title=HOSTILE, kind=HOSTILE, rawInput=HOSTILE),
        update("notice", severity="info", title=HOSTILE),
        update(
            "compaction_update",
            compactionId="c",
            status=HOSTILE,
            summary=[{"type": "text", "text": HOSTILE}],
        ),
        ended(error={"code": 1, "message": HOSTILE}),
    ]
    text = exported("markdown", *raws)
    assert "\x1b" not in text
    assert {tag.split("\n")[0] for tag in tags(text)} <= OURS
    assert text.count("\n</details>") == 3


def test_a_compaction_is_folded_with_its_summary() -> None:
    kept = [{"type": "text", "text": "All *of* it"}]
    text = exported(
        "markdown",
        update("compaction_update", compactionId="c", status="completed", summary=kept),
        update("compaction_update", compactionId="d", status="failed", error="no room"),
    )
    assert "<summary>context compacted</summary>\n\n> All *of* it" in text
    assert "*not compacted: no room*" in text


def test_output_with_fences_in_it_stays_in_its_own() -> None:
    content = [{"type": "content", "content": {"type": "text", "text": "a\n````\n<b>\n````"}}]
    text = exported("markdown", update("tool_call", toolCallId="t", title="T", content=content))
    assert "`````\na\n````\n<b>\n````\n`````" in text


def test_an_index_names_every_session() -> None:
    assert index([HEAD], ".md").startswith(
        f"# 1 session\n\n- [Greeting]({HEAD.file_name}.md) · 2026-01-0"
    )
