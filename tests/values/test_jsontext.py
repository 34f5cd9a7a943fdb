"""The strict JSON loader and the one writer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemming.kernel.base.jsontext import JsonProblem, dump_compact, dump_pretty, dump_pretty_flat, locate, parse

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
INTEGERS = st.integers(-(2**53), 2**53)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_read_back(value: object) -> None:
    assert parse(dump_pretty(value)) == value
    assert parse(dump_compact(value)) == value


@given(st.dictionaries(TEXTS, INTEGERS | TEXTS))
def test_a_small_file_has_the_bytes_of_every_other(words: dict[str, str | int]) -> None:
    assert dump_pretty_flat(words) == dump_pretty(words)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        (b"", "unexpected end of JSON", 1),
        (b'{"name": "be', "unterminated string", 1),
        (b'{\n"a": 1,\n"a": 2}', 'duplicate key "a"', 3),
        (b'{"a": NaN}', "NaN is not JSON", 1),
        (b'{"a": -Infinity}', "-Infinity is not JSON", 1),
        (b'{"a": 1e999}', "number out of range", 1),
        (b"9" * 5000, "number out of range", 1),
        (b"[" * 200_000, "nesting deeper than 64", 0),
        (b"[" * 65 + b"]" * 65, "nesting deeper than 64", 0),
        (b'"\\ud800"', "surrogate", 0),
        (b'{"a": 1,\n}', "a comma before } or ] is not JSON", 2),
        (b"[1,\n]", "a comma before } or ] is not JSON", 2),
        (b'{"a":\n}', "expecting value", 2),
        (b"{'a': 1}", "expected a key in double quotes", 1),
        (b'{"x":\n "a\xffb"}', "byte 0xff at offset 9 is not UTF-8", 2),
        (b"\xef\xbb\xbf{}", "byte order mark", 1),
        (b"{} {}", "extra data", 1),
        (b"\n{}\n\n]", "extra data", 4),
        (b'{"a": 1}\xc2\xa0{', "extra data", 1),
        (b" \n\t ", "unexpected end of JSON", 2),
        (b"\xff\xfe{\x00}\x00", "not UTF-8", 1),
    ],
)
def test_what_is_not_strict_json_is_refused_with_its_place(text: bytes, message: str, line: int) -> None:
    with pytest.raises(JsonProblem) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.line == line


def test_a_byte_order_mark_is_accepted_where_people_write() -> None:
    assert parse(b"\xef\xbb\xbf{}", allow_bom=True) == {}


def test_white_space_may_stand_around_a_value() -> None:
    assert parse(' \t\r\n{"a": 1} \t\r\n') == {"a": 1}


def test_64_levels_are_deep_enough_and_allowed() -> None:
    assert parse("[" * 64 + "]" * 64)


def test_a_text_larger_than_the_limit_is_refused() -> None:
    with pytest.raises(JsonProblem, match="larger than 10 bytes"):
        parse(b'"0123456789"', limit_bytes=10)


def test_a_pointer_leads_to_its_line_and_column() -> None:
    text = '{\n  "a": [1, {"b/c": 2}],\n  "d": null\n}'
    assert locate(text, "/a/1/b~1c") == (2, 13)
    assert locate(text, "/d") == (3, 3)
    assert locate(text, "/nowhere") == (0, 0)


@pytest.mark.parametrize("text", ['{"a": 1, // one\n"b": 2}', "{/* none */}", "[1, 2] // end", '{"a": # x\n1}'])
def test_a_comment_is_called_a_comment(text: str) -> None:
    with pytest.raises(JsonProblem, match="JSON has no comments"):
        parse(text)
