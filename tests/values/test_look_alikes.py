"""Characters that look like others are named where a person decides about a call."""

from __future__ import annotations

import pytest

from lemming.libraries.invisible_text import find_suspicious_text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("p\u0430ypal", "U+0430"),  # Cyrillic
        ("l\u0455", "U+0455"),
        ("\u03bfk", "U+03BF"),  # Greek
        ("\ua4eedmin", "U+A4EE"),  # Lisu
        ("r\u2c9fot", "U+2C9F"),  # Coptic
        ("\u2c80da", "U+2C80"),  # Coptic, like no single letter of the table
        ("d\u0436ango", "U+0436"),  # Cyrillic, likewise
        ("\u1d00dmin", "U+1D00"),  # a small capital
        ("\uff52oot", "U+FF52"),  # full width
        ("\U0001d41aroot", "U+1D41A"),  # mathematical
        ("\u13aadmin", "U+13AA"),  # Cherokee
        ("\u0585wner", "U+0585"),  # Armenian
        ("\u212aeep", "U+212A"),  # a sign for kelvin
    ],
)
def test_a_letter_of_another_alphabet_within_a_word_is_named(text: str, number: str) -> None:
    (note,) = find_suspicious_text({"command": text})
    assert "has letters of several alphabets" in note
    assert number in note


@pytest.mark.parametrize("text", ["\u0430\u0435\u043e", "\ua4ee\ua4f3", "\u2c9f\u2c9f", "\uff52\uff4d"])
def test_a_word_that_has_no_latin_letter_and_looks_as_if_is_named(text: str) -> None:
    (note,) = find_suspicious_text({"command": text})
    assert "looks like Latin letters, and has none" in note


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ls\u037e rm x", "U+037E for ;"),
        ("ls\uff1brm x", "U+FF1B for ;"),
        ("a\u2215etc", "U+2215 for /"),
        ("cat a\uff5csh", "U+FF5C for |"),
    ],
)
def test_a_sign_that_looks_like_another_is_named(text: str, told: str) -> None:
    (note,) = find_suspicious_text({"command": text})
    assert note == f"signs that look like others: {told}"


@pytest.mark.parametrize("text", ["pay \u05d0 100 \u05d1 200", "\u0627100"])
def test_letters_from_right_to_left_beside_numbers_are_named(text: str) -> None:
    assert "letters written from right to left beside numbers" in " ".join(find_suspicious_text({"text": text}))


@pytest.mark.parametrize(
    "text",
    [
        "Gr\u00f6\u00dfe und caf\u00e9",
        "5 k\u03a9, \u0394t",
        "\u043f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440",
        "\u4f60\u597d\uff0c\u4e16\u754c\uff1b\u518d\u89c1",
        "it\u2019s \u201cfine\u201d \u2013 really\u2026",
        "\u05e9\u05dc\u05d5\u05dd",
    ],
    ids=["German", "units", "Russian", "Chinese", "typographic", "Hebrew"],
)
def test_what_people_write_every_day_is_not(text: str) -> None:
    assert [*find_suspicious_text({"text": text})] == []
