"""Modules that were moved: whoever imports one from its old place is told the new one."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest

import lemming


@pytest.mark.parametrize("name", lemming._MOVED)
def test_a_module_that_was_moved_is_at_the_place_that_is_told(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"lemming.{name} is (.*) now") as refused:
        import_module(f"lemming.{name}")
    place = str(refused.value).split()[2]
    assert find_spec(place)


def test_any_other_name_is_not_found_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        import_module("lemming.nothing")


def test_a_name_of_a_moved_module_is_told_too() -> None:
    with pytest.raises(ImportError, match=r"lemming\.schedule is lemming\.kernel\.org\.schedule now"):
        from lemming.schedule import is_due  # type: ignore[import-not-found]  # noqa: F401
