"""Regular expressions of somebody else's: they find what Python's do, and none takes for ever."""

# ruff: noqa: E501
from __future__ import annotations

import random
import re
import time

import pytest

from lemming.kernel.base.name_patterns import InvalidPattern, is_match
from lemming.libraries.conditions.predicates import validate_condition
from lemming.libraries.conditions.regex_search import SearchTooCostly, compile_redaction, compile_regex

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
    for search in (compile_regex(pattern).search, lambda it: compile_redaction(pattern).sub(it, "?")):
        began = time.thread_time()
        search(text)
        assert time.thread_time() - began < 1.5


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\w{0,180}" + "!", LONG),
        pytest.param(r".*b|a", "a" * 60_000, marks=pytest.mark.long),  # as the next, with a longer text
        ("[a-z]{0,900}[a-z]{0,90}!|a", "a" * 9000),
    ],
)
def test_what_would_take_long_on_a_text_is_refused_for_that_text(pattern: str, text: str) -> None:
    """The first has too many states for the length, the others look at all that follows from each letter on."""
    began = time.thread_time()
    with pytest.raises(SearchTooCostly, match="too long on a text of"):
        compile_redaction(pattern).sub(text, "?")
    assert time.thread_time() - began < 5
    assert compile_redaction(pattern).sub("a!", "?") != "a!"


PARTS = ["a", "b", "é", ".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\s", r"\b", r"\B", "^", "$", r"\A", r"\Z", "(a|b)",
         "(?:ab|a)", "(?i:A)", "[^\\W\\d_]", "\n", "(?m:^)", "(?s:.)", "1", "{", r"\<", "<", "[&[]", "[]a]", "[^]a]"]  # fmt: skip
TIMES = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{,2}", "*?", "+?", "??"]
LETTERS = "aabbéA1 _\n-{<[&]"


@pytest.mark.long
def test_it_finds_what_python_finds() -> None:
    """6,000 expressions of random parts on random texts: found alike, and the same is replaced in ASCII texts."""
    by = random.Random(7)
    for _ in range(6000):
        count = by.randint(1, 4)
        parts = [by.choice(PARTS) + (by.choice(TIMES)) for _ in range(count)]
        pattern = by.choice(["", "", "(?i)"]) + by.choice(["", "|"]).join(parts) + by.choice(["", "", "$"])
        try:
            own = re.compile(pattern)
        except re.error:
            continue
        text = "".join(by.choices(LETTERS, k=by.randint(1, 9)))
        assert compile_regex(pattern).search(text) == (own.search(text) is not None), (pattern, text)
        text = text.replace("é", "e").rstrip("\n")
        if own.search("") is None and "\n" not in pattern and "[^\\W" not in pattern and all(own.findall(text)):
            assert compile_redaction(pattern).sub(text, "#") == own.sub("#", text), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text", "kept"),
    [
        (r"Herr \w+", "Herr Müller geht", "# geht"), (r"\d+\s\W", "\u0661\u0662\u2003\u2026!", "#!"), ("pin.*$", "my pin\n", "my #\n"),
        (r"[\s\S]+?;", "a\nü; b", "# b"), (r"[\w.]+@x", "jörg.o@x y", "# y"), (r"\u00fc\x41", "üA", "#"), (r"a\Z", "aa", "a#"),
        (r"(?i)ÜBER", "über uns", "# uns"), ("é", "\ud800é", "?#"), ("x*", "axxa", "a#a"), ("#", "a#b", "a#b"), (r"\\<{", "\\<{", "#"),
    ],
)  # fmt: skip
def test_a_redaction_knows_all_alphabets(pattern: str, text: str, kept: str) -> None:
    assert compile_redaction(pattern).sub(text, "#") == kept


def test_a_match_whose_place_is_not_found_stops_the_redaction() -> None:
    """RE2's word boundaries know ASCII letters only: nothing goes on that the pattern is to take out."""
    assert compile_regex(r"\bпин\b").search("мой пин тут")
    with pytest.raises(InvalidPattern, match="next to"):
        compile_redaction(r"\bпин\b").sub("мой пин тут", "#")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [(r"[^\W\d_]", r"write \pL"), ("(?x) a # b", "(?x"), ("a{1001}", "repetition size")],
)
def test_a_redaction_that_finds_no_places_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(InvalidPattern, match=re.escape(why)):
        compile_redaction(pattern)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)b", "look-ahead"), ("(?<!a)b", "look-behind"), (r"(a)\1", "backreferences"), ("a*+", "possessive"),
        ("a{2}{3}", "doubled"), ("(?>a)b", "unrecognized flag"), ("(", "unclosed group"), ("(" * 1000 + ")" * 1000, "nested"),
        ("a" * 5000, "longer than"), ("(?:a{900}){90}", "multiply"), (r"\w{1,250}", "multiply"), ("a{99999999999}", "multiply"),
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
