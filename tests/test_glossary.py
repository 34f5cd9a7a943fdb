"""docs/glossary.md: one meaning each, here and in the code."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from lemming.reference import PublicType, iter_public_types

REPOSITORY = Path(__file__).parents[1]
GLOSSARY = (REPOSITORY / "docs/glossary.md").read_text("utf-8")
WORDS, TYPES = GLOSSARY.split("## Types")


def words() -> list[str]:
    """Return the words that the glossary explains."""
    return [word for line in WORDS.splitlines() for word in re.findall(r"\*\*([^*]+)\*\*", line)]


@cache
def everything_else() -> str:
    """Return the text of all code and all other pages, in lower case."""
    code, pages = (REPOSITORY / "lemming").rglob("*.py"), (REPOSITORY / "docs").glob("*.md")
    files = [*code, *pages, REPOSITORY / "README.md"]
    return "\n".join(file.read_text("utf-8").lower() for file in files if file.name != "glossary.md")


@cache
def types() -> tuple[PublicType, ...]:
    """Return the types that modules share, as the code has them."""
    return tuple(iter_public_types())


def test_every_type_that_modules_share_is_in_the_glossary_or_in_a_family_that_it_names() -> None:
    missing = [
        f"{found.module}.{found.name}"
        for found in types()
        if found.family is None and f"| `{found.name}` | `{found.module}` | " not in TYPES
    ]
    assert missing == [], "make docs"


def test_every_type_says_what_it_is() -> None:
    assert [f"{found.module}.{found.name}" for found in types() if not found.about] == []


def test_no_two_types_have_one_name() -> None:
    of_their_own = ("commands", "capabilities.hosted")
    names = Counter(found.name for found in types() if found.family not in of_their_own)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_type_of_the_glossary_exists() -> None:
    known = {(found.name, found.module) for found in types()}
    assert set(re.findall(r"^\| `(\w+)` +\| `([\w.]+)` ", TYPES, re.MULTILINE)) <= known


@pytest.mark.parametrize("word", words())
def test_every_word_of_the_glossary_is_used(word: str) -> None:
    assert re.search(rf"\b{word.lower().replace(' ', '[ _]?')}", everything_else()), (
        "it is explained and used nowhere"
    )


def test_the_glossary_explains_a_word_once_and_in_order() -> None:
    first = [match[1].lower() for match in re.finditer(r"^\| \*\*([^*]+)\*\*", WORDS, re.MULTILINE)]
    assert first == sorted(set(first), key=lambda word: word.replace("_", " "))
