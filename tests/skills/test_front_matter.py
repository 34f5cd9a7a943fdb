"""The block at the beginning of Markdown files: what is read as what, and what no file can do with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import EVERYTHING

from lemming.libraries.front_matter import (
    LIMIT_CHARS,
    InvalidFrontMatter,
    parse_front_matter,
    parse_yaml,
    split_front_matter,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("true", True), ("False", False), ("null", None),
        ("", None), ("5", 5), ("-5", -5), ("1.0", 1.0), ("012", "012"), ("0x1f", "0x1f"), ("1e3", "1e3"),
        ("1_000", "1_000"), ("12:30", "12:30"), ("2026-01-01", "2026-01-01"), (".inf", ".inf"),
        (".nan", ".nan"), ("9" * 400, "9" * 400), ('"5"', "5"), ("'true'", "true"), ("[a, 5]", ["a", 5]),
        ("{a: [x]}", {"a": ["x"]}), ("|\n  a\n  b", "a\nb"), ("Use when: needed", "Use when: needed"),
        ("it's here: now", "it's here: now"), ("a\n  b", "a b"),
    ],
)  # fmt: skip
def test_a_value_is_what_a_reader_takes_it_for(text: str, value: Any) -> None:
    assert parse_front_matter(f"before: 1\nkey: {text}") == {"before": 1, "key": value}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("key: value\n\tother: x: y", "line 3"),
        ("- a\n- b", "key: value"),
        ("just words", "key: value"),
        ("a: 1\na: 2", '"a" appears twice'),
        ("a: &x [1]\nb: *x", "aliases"),
        ("a: &x [1, *x]", "aliases"),
        ("a: !!python/object/apply:os.system ['true']", "tags"),
        ("a: !!binary aaaa", "tags"),
        ("? [1]\n: 2", "a key must be a text"),
        ("a: " + "[" * 30, "levels deep"),
        ("a: [", "line 2"),
        ("a: 1\n---\nb: 2", "expected one YAML document, got more"),
        ("a: \0", "not allowed"),
        ("a: \ud800", "not allowed"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidFrontMatter) as raised:
        parse_front_matter(text)
    assert why in f"line {raised.value.line}: {raised.value}"


LAUGHS = "a: &a [lol]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "text",
    [LAUGHS, "a: " + "[" * 60_000, "a: " + "{" * 60_000, "- " * 30_000, "? " * 30_000, "a: " + "!" * 60_000,
     "a: [" + "x," * 25_000 + "]", "a: '" + "''" * 30_000, "a: " + "x: " * 20_000],
    ids=["laughs", "lists", "objects", "items", "keys", "tags", "long", "quotes", "colons"],
)  # fmt: skip
def test_a_small_file_costs_little(text: str) -> None:
    try:
        found = len(str(parse_front_matter(text)))
    except InvalidFrontMatter:
        found = 0
    assert found < 4 * LIMIT_CHARS


def test_a_block_beyond_the_limit_is_not_read() -> None:
    with pytest.raises(InvalidFrontMatter, match="at most"):
        split_front_matter(f"---\n{'a' * LIMIT_CHARS}\n---\n")
    with pytest.raises(InvalidFrontMatter, match="at most"):
        parse_yaml("a" * (LIMIT_CHARS + 1))


@pytest.mark.parametrize("text", ["", "no block", "\n---\na: 1\n---\n", "----\na: 1\n----\n", "# ---\n"])
def test_a_text_may_have_no_block(text: str) -> None:
    assert split_front_matter(text) == (None, text)


@pytest.mark.parametrize("text", ["---\na: 1\n---\nbody", "\ufeff---\r\na: 1\r\n---\r\nbody", "---\na: 1\n...\nbody"])
def test_a_block_ends_at_the_second_line_of_dashes(text: str) -> None:
    assert split_front_matter(text) == ("a: 1\n", "body")


def test_a_block_without_an_end_is_refused() -> None:
    with pytest.raises(InvalidFrontMatter, match="must end with a second line ---"):
        split_front_matter("---\na: 1\n")


@settings(max_examples=300 if EVERYTHING else 20, deadline=None)
@given(st.text(max_size=200))
def test_no_text_is_more_than_refused(text: str) -> None:
    for read in (split_front_matter, parse_front_matter, parse_yaml):
        try:
            read(text)
        except InvalidFrontMatter:
            continue
