"""A session as a page of HTML: whole by itself, and whatever is in it does nothing."""

from __future__ import annotations

import base64
import json
import re
from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from acphold.conversation.exports.page import index
from acphold.conversation.history.decisions import AskedQuestion, answer_entry, question_entry
from tests.exports.sessions import HEAD, HOSTILE, Parsed, author, exported
from tests.raw_entries import CONVERSATION, DIFF, ended, plan, prompt, said, update

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
)


def page(*raws: tuple[str, bytes]) -> Parsed:
    return Parsed(exported("html", *raws))


def call(**fields: object) -> tuple[str, bytes]:
    return update("tool_call", toolCallId="t1", **{"title": "T", "status": "completed"} | fields)


def shown(text: str) -> list[object]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


def test_a_page_has_all_that_was_said_and_done() -> None:
    text = page(*CONVERSATION).text
    for words in ("Make it friendlier", "A thought.", "Change the greeting", "change it", "Done."):
        assert words in text
    assert "Edit hello.py" in text
    assert "demo-agent" in text


def test_thoughts_and_tool_calls_are_folded() -> None:
    folds = page(*CONVERSATION).all("details")
    kinds = [(fold["class"] or "").split()[1] for fold in folds]
    assert kinds == ["thought", "tool"]
    assert "open" not in folds[0]


def test_a_diff_has_its_lines_marked() -> None:
    text = exported("html", *CONVERSATION)
    assert "<del>-hi</del>" in text
    assert "<ins>+hello</ins>" in text
    assert '<ins class="sum">+1</ins>' in text


def test_long_output_is_folded_and_short_output_is_not() -> None:
    short, long = page(call(content=shown("one\ntwo"))), page(call(content=shown("x\n" * 50)))
    assert ["open" in parsed.all("details")[0] for parsed in (short, long)] == [True, False]


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("```\nout\n```", "out"),
        ("```sh\nout\n\n```\n", "out\n"),
        ("```\none\n```\ntwo\n```\nthree\n```", "```\none\n```\ntwo\n```\nthree\n```"),
        ("````\n```\nx\n```\n````", "```\nx\n```"),
        ("out", "out"),
    ],
)
def test_what_a_tool_printed_has_no_fence_around_it(told: str, text: str) -> None:
    assert f'<pre tabindex="0">\n{text}</pre>' in exported("html", call(content=shown(told)))


def test_a_page_loads_nothing_and_runs_only_its_own_script() -> None:
    text = exported("html", *CONVERSATION)
    parsed = Parsed(text)
    policy = next(m for m in parsed.all("meta") if m.get("http-equiv"))["content"] or ""
    assert policy.startswith("default-src 'none';")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert not parsed.all("link")
    assert all("src" not in attributes for _, attributes in parsed.tags)
    assert all("style" not in attributes for _, attributes in parsed.tags)


@pytest.mark.parametrize(
    "raws",
    [
        [prompt(HOSTILE)],
        [update("compaction_update", compactionId="c", status=HOSTILE, error=HOSTILE)],
        [
            update(
                "compaction_update", compactionId="c", summary=[{"type": "text", "text": HOSTILE}]
            )
        ],
        [said(HOSTILE)],
        [said(f"```html {HOSTILE}\n{HOSTILE}\n```\n`{HOSTILE}`\n# {HOSTILE}\n|{HOSTILE}|\n|-|")],
        [said(HOSTILE, "agent_thought_chunk")],
        [call(title=HOSTILE, kind=HOSTILE, rawInput={HOSTILE: HOSTILE}, rawOutput=HOSTILE)],
        [call(content=shown(HOSTILE))],
        [call(content=[DIFF | {"path": HOSTILE, "newText": HOSTILE, "oldText": HOSTILE}])],
        [update("notice", severity="info", title=HOSTILE, description=HOSTILE)],
        [update("current_mode_update", currentModeId=HOSTILE)],
        [update("plan", entries=[{"content": HOSTILE, "priority": "low", "status": "pending"}])],
        [prompt("x"), ended(error={"code": 1, "message": HOSTILE})],
        [prompt("x"), ended(stopReason=HOSTILE)],
        [update("agent_message_chunk", content={"type": HOSTILE})],
        [
            update(
                "agent_message_chunk",
                content={"type": "image", "mimeType": f"image/png{HOSTILE}", "data": HOSTILE},
            )
        ],
        [
            update(
                "agent_message_chunk",
                content={"type": "image", "mimeType": "image/png", "data": f'" {HOSTILE}'},
            )
        ],
        [author(HOSTILE), prompt("hello")],
        [
            update(
                "agent_message_chunk",
                content={"type": "resource", "resource": {"uri": HOSTILE, "text": HOSTILE}},
            )
        ],
    ],
)
def test_whatever_somebody_wrote_stays_text(raws: list[tuple[str, bytes]]) -> None:
    head = HEAD.__class__(HOSTILE, HOSTILE, HOSTILE, 0, 0, HOSTILE, (HOSTILE,))
    text = exported("html", *raws, head=head)
    parsed = Parsed(text)
    assert len(parsed.all("script")) == 1
    assert not parsed.all("img")
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert parsed.open == []
    assert "\x1b" not in text


def test_lists_and_quotes_stand_at_the_side_that_their_words_begin_on() -> None:
    shown = page(said("- \u05d0\n\n1. \u05d1\n\n> \u05d2"))
    for name in ("ul", "ol", "blockquote"):
        assert shown.all(name) == [{"dir": "auto"}], name


def test_tags_in_markdown_stay_to_be_read() -> None:
    assert "<b>bold</b>" in page(said("plain <b>bold</b>")).text


@pytest.mark.parametrize(
    "link",
    [
        "[x](javascript:alert(1))",
        "[x](JavaScript&colon;alert(1))",
        "[x](java\tscript:alert(1))",
        "[x](data:text/html,<script>1</script>)",
        "[x](file:///etc/passwd)",
        "[x](vbscript:1)",
        "[x](//evil.example)",
        "[x](relative)",
        "<javascript:alert(1)>",
        "[x]\n\n[x]: javascript:alert(1)",
    ],
)
def test_links_lead_to_the_web_only(link: str) -> None:
    anchors = page(said(link)).all("a")
    assert all((a["href"] or "").startswith(("#", "http://", "https://")) for a in anchors)
    assert len(anchors) == 3  # those of the page itself


def test_a_link_to_the_web_tells_nobody_where_it_stood() -> None:
    (link,) = [a for a in page(said("[x](https://example.org)")).all("a") if "rel" in a]
    assert link == {"href": "https://example.org", "rel": "noopener noreferrer nofollow"}


def test_a_picture_from_elsewhere_is_not_fetched() -> None:
    parsed = page(said("![seen](https://evil.example/x.png)"))
    assert not parsed.all("img")
    assert "[picture: seen, https://evil.example/x.png]" in parsed.text


def test_a_picture_that_was_sent_is_in_the_page() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": PIXEL}
    (found,) = page(update("agent_message_chunk", content=image)).all("img")
    assert found["src"] == f"data:image/png;base64,{PIXEL}"


def test_a_drawing_that_could_run_something_is_named_only() -> None:
    image = {"type": "image", "mimeType": "image/svg+xml", "data": PIXEL}
    parsed = page(update("agent_message_chunk", content=image))
    assert not parsed.all("img")
    assert "image/svg+xml" in parsed.text


def test_a_very_long_answer_is_not_laid_out() -> None:
    text = exported("html", said("# " + "x" * 300_000))
    assert '<div class="text"># xxx' in text


@pytest.mark.parametrize("marks", ["[", "![", "*a ", "_a", "- a\n", "# a\n", "|a", "```\n"])
def test_an_answer_of_nothing_but_marks_is_not_laid_out(marks: str) -> None:
    text = exported("html", said(marks * (180_000 // len(marks))))
    assert '<div class="text">' in text


def test_a_long_answer_as_agents_write_them_is_laid_out() -> None:
    text = exported(
        "html", said("Some *words* of a paragraph, and `code` on its line.\n\n" * 3_500)
    )
    assert text.count("<em>words</em>") == 3_500


def test_a_long_run_of_hidden_characters_is_shown_in_full_and_not_laid_out() -> None:
    text = exported("html", said("# a" + "\u200b" * 150_000))
    assert '<div class="text"># a\\u200b' in text
    assert text.count("\\u200b") == 150_000


def test_a_turn_that_did_not_end_well_says_so() -> None:
    assert "turn failed: overloaded" in page(ended(error={"code": 1, "message": "overloaded"})).text
    assert "turn incomplete" in page(prompt("x")).text
    assert "This session has no messages" in page().text


def test_each_turn_can_be_linked_to() -> None:
    turns = page(prompt("one"), ended(), plan("pending"), prompt("two"), ended()).all("section")
    assert [turn["id"] for turn in turns] == ["e1", "e3"]


def test_each_entry_can_be_linked_to_by_its_place() -> None:
    parsed = page(*CONVERSATION)
    places = [a["href"] for a in parsed.all("a") if a.get("class") == "place"]
    ids = [tag["id"] for kind in ("section", "div") for tag in parsed.all(kind) if tag.get("id")]
    assert places == ["#e1", "#e2", "#e4", "#e6", "#e8", "#e9"]
    assert {f"#{name}" for name in ids} == {*places}


@pytest.mark.parametrize("language", ["python", "Python", "py3"])
def test_code_in_a_fence_has_colours(language: str) -> None:
    text = exported("html", said(f"```{language}\ndef f(): pass  # <b>\n```"))
    assert '<span class="k">def</span>' in text
    assert '<span class="c1"># &lt;b&gt;</span>' in text


@pytest.mark.parametrize("language", ["", "nosuchlanguage", '"onclick=x', "python" * 20])
def test_code_in_a_language_that_nobody_knows_stays_as_it_is(language: str) -> None:
    text = exported("html", said(f"```{language}\n<i>x</i> = 1\n```"))
    assert "&lt;i&gt;x&lt;/i&gt; = 1\n</code></pre>" in text


def test_very_long_code_has_no_colours() -> None:
    text = exported("html", said("```python\n" + "x = 1\n" * 20_000 + "```"))
    assert 'class="mi"' not in text


@pytest.mark.parametrize("language", ["diff", "patch"])
def test_a_diff_in_a_fence_has_its_lines_marked(language: str) -> None:
    text = exported("html", said(f"```{language}\n--- a\n@@ -1 +1 @@\n-<old>\n+new\n```"))
    assert "<span>--- a</span>\n<span>@@ -1 +1 @@</span>\n<del>-&lt;old&gt;</del>\n<ins>" in text


def test_tasks_in_a_list_have_boxes() -> None:
    parsed = page(said("- [x] done\n- [ ] open\n- plain\n- [x]not one\n\n1. [X] too\n\n   [x] no"))
    assert [item.get("class") for item in parsed.all("li")] == ["done", "open", None, None, "done"]
    assert "[x]not one" in parsed.text
    assert "[x] no" in parsed.text
    assert "[x] done" not in parsed.text


def test_what_was_put_into_a_form_stands_under_the_titles_of_its_fields() -> None:
    days = {"title": "Day", "oneOf": [{"const": "mo", "title": "Monday"}]}
    form = {"type": "object", "properties": {"d": days, "n": {"type": "string"}}}
    asked = AskedQuestion(
        *("q", "elicitation/create"),
        json.dumps({"message": "When?", "requestedSchema": form}).encode(),
    )
    given = b'{"action":"accept","content":{"d":"mo","n":"<b>"}}'
    answered = answer_entry("q", "answered", result=given)
    text = page(prompt("x"), ("question", question_entry(asked)), ("answer", answered)).text
    assert "accepted: When? → Day: Monday; n: <b>" in text


def test_an_index_leads_to_every_page() -> None:
    head = HEAD.__class__("a b", "agent", "/", 0, 0, HOSTILE)
    parsed = Parsed(index([HEAD, head], ".html"))
    links = [a["href"] for a in parsed.all("a") if a.get("class") != "skip"]
    assert links == [f"{HEAD.file_name}.html", f"{head.file_name}.html"]
    assert [a["placeholder"] for a in parsed.all("input")] == ["Search this list of sessions"]
    assert len(parsed.all("script")) == 1


@given(st.text(st.sampled_from("<>&\"'`*_[]()!|\\\n #~-/scriptSCRIPT:=x"), max_size=60))
def test_no_text_makes_an_element_that_the_page_has_not(text: str) -> None:
    parsed = page(prompt(text), said(text), call(title=text, content=shown(text)))
    assert len(parsed.all("script")) == 1
    assert {tag for tag, _ in parsed.tags} & {"img", "iframe", "object", "form", "svg"} == set()
    assert parsed.open == []
