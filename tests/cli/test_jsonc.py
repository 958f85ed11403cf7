"""JSON with comments, edited in place: everything that people wrote stays."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from acphold.faces.cli.jsonc import JsoncError, put, remove, scan, value_at

# -- texts as people write them ---------------------------------------------------------------


BLANKS = ["", "", "", " ", "/* c# */", " /* c# */ "]
LINES = ["\n", "\r\n\t", "// c#\n", "/* c#\n , } */", "\n// c#\n  // c#\n", " // c#\r\n"]


class Writer:
    """Writes a value with blanks, comments and commas wherever they may stand."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self._gaps = st.sampled_from(BLANKS + LINES if draw(st.booleans()) else BLANKS)
        self._last = 0

    def gap(self) -> str:
        """Blanks and comments, of which each is known by its number."""
        self._last += 1
        found: str = self._draw(self._gaps)
        return found.replace("#", str(self._last))

    def write(self, value: object) -> str:
        gap = self.gap
        if not isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, dict):
            items = [
                f"{json.dumps(key)}{gap()}:{gap()}{self.write(item)}" for key, item in value.items()
            ]
        else:
            items = [self.write(item) for item in value]
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        last = "," if items and self._draw(st.booleans()) else ""
        joined = f"{gap()},{gap()}".join(items)
        return f"{opening}{gap()}{joined}{gap()}{last}{gap()}{closing}"


keys = st.sampled_from(["a", "b", 'quo"ted', "//", "{,}", "ü", "line\nbreak"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 99), st.sampled_from(["", "x//", "}"])
)
values = st.recursive(
    scalars,
    lambda inner: st.dictionaries(keys, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=4,
)


@st.composite
def texts(draw: Any) -> tuple[str, dict[str, Any]]:
    """A text of an object, and its value."""
    value = draw(st.dictionaries(keys, values, max_size=3))
    writer = Writer(draw)
    return f"{writer.gap()}{writer.write(value)}{writer.gap()}", value


paths = st.lists(keys, min_size=1, max_size=3)
new = st.sampled_from([1, "new", {"command": "/x", "args": ["a", "b"], "env": {}}])


def expected(value: Any, path: list[str], added: object) -> Any:
    """The value that `put` must produce; raises where an object is missing."""
    if not path:
        return added
    inner = {} if value is None else value
    if not isinstance(inner, dict):
        raise JsoncError("no object")
    return {**inner, path[0]: expected(inner.get(path[0]), path[1:], added)}


def told(text: str) -> list[str]:
    """The comments of a text, in order."""
    return re.findall(r"(?://|/\*) c\d+", text)


@given(texts())
def test_a_text_is_read_with_whatever_stands_between(sample: tuple[str, Any]) -> None:
    text, value = sample
    root = scan(text)
    assert root is not None
    assert root.value == value


@given(texts(), paths, new)
def test_a_value_that_is_put_is_there_and_all_else_is_as_it_was(
    sample: tuple[str, Any], path: list[str], added: object
) -> None:
    text, value = sample
    try:
        wanted = expected(value, path, added)
    except JsoncError:
        with pytest.raises(JsoncError):
            put(text, path, added)
        return
    changed = put(text, path, added)
    root = scan(changed)
    assert root is not None
    assert root.value == wanted
    assert put(changed, path, added) == changed
    if value_at(text, path) is None:
        assert told(changed) == told(text)
        left = iter("".join(changed.split()))
        kept = "".join(text.split()).replace("null", "")
        assert all(sign in left for sign in kept)  # each behind the one before


@given(texts(), paths)
def test_a_member_that_is_removed_is_gone_and_comments_outside_of_it_stay(
    sample: tuple[str, Any], path: list[str]
) -> None:
    text, value = sample
    changed = remove(text, path)
    parent, wanted = value, json.loads(json.dumps(value))
    inner = wanted
    for key in path[:-1]:
        inner = inner.get(key) if isinstance(inner, dict) else None
        parent = parent.get(key) if isinstance(parent, dict) else None
    if isinstance(inner, dict):
        inner.pop(path[-1], None)
    root = scan(changed)
    assert root is not None
    assert root.value == wanted
    if not isinstance(parent, dict) or path[-1] not in parent:
        assert changed == text
    elif not isinstance(parent[path[-1]], dict | list):
        assert set(told(changed)) <= set(told(text))


@given(texts(), paths, new)
def test_what_was_put_into_an_object_can_be_removed_again(
    sample: tuple[str, Any], path: list[str], added: object
) -> None:
    text, _ = sample
    parent = value_at(text, path[:-1])
    if not isinstance(parent, dict) or path[-1] in parent or (path[1:] and not parent):
        return
    changed = remove(put(text, path, added), path)
    assert re.sub(r"[\s,]", "", changed) == re.sub(r"[\s,]", "", text)


# -- how it looks -----------------------------------------------------------------------------

ENTRY = {"command": "/bin/acphold", "args": ["wrap", "claude"]}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", '{\n  "s": {\n    "n": 1\n  }\n}\n'),
        ("// mine", '// mine\n{\n  "s": {\n    "n": 1\n  }\n}\n'),
        ("\ufeff{}", '\ufeff{\n  "s": {\n    "n": 1\n  }\n}'),
        ("{}\n", '{\n  "s": {\n    "n": 1\n  }\n}\n'),
        ('{ "s": {} }', '{ "s": {\n  "n": 1\n} }'),
        ('{ "s": {"m": 0} }', '{ "s": {"m": 0, "n": 1} }'),
        ('{ "s": null }', '{ "s": {\n  "n": 1\n} }'),
        ('{\n\t"a": 1\n}', '{\n\t"a": 1,\n\t"s": {\n\t\t"n": 1\n\t}\n}'),
        (
            '{\n    "a": 1, // one\n}',
            '{\n    "a": 1, // one\n    "s": {\n        "n": 1\n    },\n}',
        ),
        ('{\n  "a": 1 // one\n}', '{\n  "a": 1, // one\n  "s": {\n    "n": 1\n  }\n}'),
        ('{\r\n  "a": 1\r\n}', '{\r\n  "a": 1,\r\n  "s": {\r\n    "n": 1\r\n  }\r\n}'),
        (
            '{\n  "s": {\n    // none yet\n  }\n}',
            '{\n  "s": {\n    // none yet\n    "n": 1\n  }\n}',
        ),
        ('{\n  "s": {\n    "m": 0 }}', '{\n  "s": {\n    "m": 0,\n    "n": 1\n  }}'),
        ('{\n  "s": { "n": 0 } // it\n}', '{\n  "s": { "n": 1 } // it\n}'),
        ('{ "s": { "n": 2 }, "s": { "n": 0 } }', '{ "s": { "n": 2 }, "s": { "n": 1 } }'),
    ],
)
def test_a_member_is_added_as_the_file_is_laid_out(text: str, changed: str) -> None:
    assert put(text, ["s", "n"], 1) == changed


def test_the_arguments_of_a_command_stay_on_one_line() -> None:
    text = put('{\n    "a": 1\n}\n', ["s", "ü"], ENTRY)
    assert text == (
        '{\n    "a": 1,\n    "s": {\n        "ü": {\n            "command": "/bin/acphold",\n'
        '            "args": ["wrap", "claude"]\n        }\n    }\n}\n'
    )


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ('{\n  "a": 1,\n  "n": 2,\n  "b": 3\n}', '{\n  "a": 1,\n  "b": 3\n}'),
        ('{\n  "a": 1,\n  "n": 2\n}', '{\n  "a": 1\n}'),
        ('{\n  "a": 1,\n  "n": 2,\n}', '{\n  "a": 1,\n}'),
        ('{\n  "n": 2 // two\n}', "{\n  // two\n}"),
        ('{ "a": 1, "n": 2 }', '{ "a": 1 }'),
        ('{ "n": 2, "a": 1, "n": 3 }', '{ "a": 1 }'),
        ('{ "a": 1 }', '{ "a": 1 }'),
    ],
)
def test_a_member_is_removed_with_its_comma_and_its_line(text: str, changed: str) -> None:
    assert remove(text, ["n"]) == changed


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ('{ "a": 1, "s": { "t": { "n": 2 } } }', '{ "a": 1 }'),
        ('{ "s": { "n": 2, "t": {} } }', '{ "s": { "t": {} } }'),
        ('{ "s": { /* mine */ "n": 2 } }', '{ "s": { /* mine */ } }'),
        ('{ "s": {} }', '{ "s": {} }'),
    ],
)
def test_an_object_that_is_empty_then_is_removed_but_for_a_comment(text: str, changed: str) -> None:
    path = ["s", "t", "n"] if '"t": { "n"' in text else ["s", "n"]
    assert remove(text, path) == changed


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{\n  'a': 1\n}", "line 2: a string in double quotes is missing, or not closed"),
        ("{\n  a: 1\n}", "line 2: a string in double quotes"),
        ('{\n  "a"\n}', "line 3: a colon is missing"),
        ('{\n  "a":\n}', "line 3: a value is missing"),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3: a comma or } is missing"),
        ('{ "a": [1 2] }', "line 1: a comma or ] is missing"),
        ('{ "a": 01 }', "line 1: a comma or } is missing"),
        (f'{{ "a": {"9" * 5000} }}', "line 1: a comma or } is missing"),
        ('{ "a": "\\q" }', "line 1: invalid escape sequence in this string"),
        ("{} {}", "line 1: unexpected text after the end"),
        ("{ /* no end", "line 1: a string in double quotes"),
        ("[" * 999, "nested too deep"),
        ("[]", "the whole file is not a JSON object"),
        ('{"s": []}', "s is not a JSON object"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(JsoncError) as caught:
        put(text, ["s", "n"], 1)
    assert sentence in str(caught.value)
