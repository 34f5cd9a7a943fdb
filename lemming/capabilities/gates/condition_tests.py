"""The tests that the condition of a gate makes, one for each field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]


_EQUALITY_OPS = {"is", "is_not"}


_MEMBERSHIP_OPS = {"in", "not_in"}


_ORDER_OPS = {"lt", "le", "gt", "ge"}


class ConditionTest(NamedTuple):
    """One test of a condition, with its location."""

    pointer: str
    field: str
    op: str
    value: Any

    @property
    def expected_values(self) -> Sequence[Any]:
        """Values for equality or membership with the field."""
        return (self.value,) if self.op in _EQUALITY_OPS else self.value if self.op in _MEMBERSHIP_OPS else ()

    @property
    def compared_values(self) -> Sequence[Any]:
        """All values compared with the field, including bounds of numbers."""
        return (self.value,) if self.op in _ORDER_OPS else self.expected_values


def iter_tests(condition: Json, pointer: str) -> Iterator[ConditionTest]:
    """Yield the tests of a valid condition."""
    for operator in ("all", "any"):
        for index, part in enumerate(condition.get(operator, ())):
            yield from iter_tests(part, f"{pointer}/{operator}/{index}")
    if "not" in condition:
        yield from iter_tests(condition["not"], f"{pointer}/not")
    if "field" in condition:
        yield ConditionTest(pointer, condition["field"], condition["op"], condition.get("value"))


LITERAL = re.compile(r"\^((?:[A-Za-z0-9_ -]|/|\\?\.)+/)(?![*+?{])")


TOP_FOLDERS = ("shared", "agents")


PATH_OPS = {*_EQUALITY_OPS, *_MEMBERSHIP_OPS, "starts_with"}


ROOT_FAULT = (
    "no place begins so: those in the organisation are relative to it",
    "name its folders, such as shared/ and agents/",
)
