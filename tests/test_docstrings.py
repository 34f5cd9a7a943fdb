"""Every example in a docstring gives what it says."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import lemming

EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)
HERE = Path(lemming.__file__).parent
SHOWN = [path for path in sorted(HERE.rglob("*.py")) if EXAMPLE.search(path.read_text("utf-8"))]


def test_there_are_examples() -> None:
    assert len(SHOWN) > 100


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.relative_to(HERE).with_suffix("").as_posix())
def test_examples_give_what_they_say(path: Path) -> None:
    name = ".".join(("lemming", *path.relative_to(HERE).with_suffix("").parts)).removesuffix(".__init__")
    failed, tried = doctest.testmod(importlib.import_module(name), report=True)
    assert tried, "its examples are in no docstring that is read"
    assert not failed
