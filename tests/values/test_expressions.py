"""Regular expressions of somebody else's: they find what Python's do, and none takes for ever."""

# ruff: noqa: E501
from __future__ import annotations

import random
import re
import time

import pytest

from lemming.kernel.base.name_patterns import InvalidPattern, is_match
from lemming.libraries.conditions.predicates import validate_condition
from lemming.libraries.conditions.regex_search import compile_regex

LONG = "a" * 50_000
HOSTILE = [
    ("^(a+)+$", LONG + "b"), ("(a|a)*b", LONG), ("(a|aa)+$", LONG + "b"), ("(.*)*x", LONG), ("(x+x+)+y", "x" * 50_000),
    (r"\s+$", " " * 50_000 + "x"), ("(.*a){12}$", "ab" * 20_000), (r"(\w+\s?)*!", "word " * 10_000),
    ("([a-z]+)*[0-9]", LONG), (r"(?:[^x]{0,50}y){5}", LONG), (r"^(([a-z])+.)+[A-Z]([a-z])+$", LONG),
    (r"\b(a?){30}a{30}\b", "a" * 5000), ("(a*)*(a*)*(a*)*b", LONG), ("a.*a.*a.*a.*b", LONG), ("(?i)(A+)+$", LONG + "b"),
]  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize(("pattern", "text"), HOSTILE)
def test_no_expression_takes_a_second(pattern: str, text: str) -> None:
    for search in (compile_regex(pattern).search, lambda it: compile_regex(pattern).sub(it, "?")):
        began = time.thread_time()
        try:
            search(text)
        except InvalidPattern as error:
            assert "too long" in str(error)  # noqa: PT017
        assert time.thread_time() - began < 1.5


PARTS = ["a", "b", "é", ".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\s", r"\b", r"\B", "^", "$", r"\A", r"\Z", "(a|b)",
         "(?:ab|a)", "(?i:A)", "[^\\W\\d_]", "\n", "(?m:^)", "(?m:$)", "(?s:.)", "(?a:\\w)", "(?a:\\b)", "(?a:\\B)", "1"]  # fmt: skip
TIMES = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "*?", "+?", "??"]
LETTERS = "aabbéA1 _\n-"


@pytest.mark.long
def test_it_finds_what_python_finds() -> None:
    """6,000 expressions of random parts on random texts: found alike, and the same is replaced."""
    by = random.Random(7)
    for _ in range(6000):
        count = by.randint(1, 4)
        parts = [by.choice(PARTS) + (by.choice(TIMES)) for _ in range(count)]
        pattern = by.choice(["", "", "(?i)"]) + by.choice(["", "|"]).join(parts)
        try:
            own = re.compile(pattern)
        except re.error:
            continue
        text = "".join(by.choices(LETTERS, k=by.randint(1, 9)))
        assert compile_regex(pattern).search(text) == (own.search(text) is not None), (pattern, text)
        if own.search("") is None and not any(not it[0] for it in own.finditer(text)):
            assert compile_regex(pattern).sub(text, "#") == own.sub("#", text), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)b", "look-ahead"), ("(?<!a)b", "look-behind"), (r"(a)\1", "back references"), ("a*+", "possessive"),
        ("(?>a)b", "atomic"), ("(", "missing )"), ("(" * 2000 + ")" * 2000, "too deep"), ("a" * 5000, "at most"),
        ("(?:a{90}){90}", "multiply"), ("a{99999999999}", "too large"),
    ],
)  # fmt: skip
def test_what_is_not_searched_for_is_refused_in_words(pattern: str, why: str) -> None:
    with pytest.raises(InvalidPattern, match=re.escape(why)):
        compile_regex(pattern)
    if len(pattern) <= 500:
        found = [*validate_condition({"field": "a", "op": "matches", "value": pattern})]
        assert why in found[0].message


def test_names_with_many_stars_take_no_time() -> None:
    began = time.thread_time()
    assert not is_match("a" * 5000, "*a" * 500 + "*b")
    assert is_match("a" * 500 + "b", "*a" * 500 + "*b")
    assert (is_match("ab", "a*b"), is_match("a", "a*a"), is_match("abcabc", "*bc"), is_match("x", "*")) == (True, False, True, True)  # fmt: skip
    assert time.thread_time() - began < 1
