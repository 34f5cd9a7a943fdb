"""Errors have one code each, all codes are explained, and messages keep one form."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from package import TREES, nodes

from lemming.kernel.base import errors
from lemming.kernel.base.errors import OUTCOME_CODES, LemmingError

TABLE = dict(
    re.findall(
        r"^\| (LMG-\d+) \| (.*)$", (Path(__file__).parents[1] / "docs/TROUBLESHOOTING.md").read_text(), re.MULTILINE
    )
)
PUBLIC = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, LemmingError) and value.__module__ == errors.__name__
]
INHERITED = {"RecoverableError": "a ToolError whose message the model reads verbatim"}
SHARED = {
    "LMG-301": "every warning that has no code of its own",
    "LMG-305": "a file in an outbox that is not the entry of its name",
    "LMG-307": "whatever keeps an MCP server or its tools from use",
    "LMG-308": "a part of the settings without effect: gates, grants and capability blocks",
    "LMG-601": "a missing permission: of a call, of a place, of a write that is repeated",
    "LMG-602": "a failed call: its error and its outcome",
    "LMG-603": "a missing tool: its error and its outcome",
    "LMG-604": "invalid arguments: the error and the outcome",
    "LMG-608": "a call without a result yet: pending or deferred",
}
"""Codes in several places of the source, each with the reason."""

TEXTS_FOR_MODELS = {
    "ContractError", "InvalidArguments", "JsonProblem", "NoSuchTool", "PermissionDenied", "RecoverableError",
    "ToolError",
}  # fmt: skip
"""Errors that models read as results or corrections: recorded prompts hold their texts byte for byte."""

FORMER_FORMS = re.compile(
    r"^(?:that|what|it|this|those) (?:is|are) no\b|\bthere (?:is|are|was|were) no\b|\bis no [a-z]"
    r"|\bnobody\b|\bsomebody\b|\bin vain\b|\bso many\b|\bstands\b|\bgoes on\b|\bis told\b|\bis gone\b"
    r"|\bmend\b|\btake (?:it|the \w+) (?:out|away)\b|\bexpected .*, found\b",
    re.IGNORECASE,
)
ROOMS = ("builder", "client", "evals", "git_history", "journal_tools", "kernel", "queries")


def codes_in_source() -> Iterator[tuple[str, str, int]]:
    for name in TREES:
        for node in nodes(name):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"LMG-\d+", node.value):
                yield node.value, name, node.lineno


def declared_codes() -> Iterator[tuple[str, str]]:
    """Yield the name and the code of each error class that declares a code."""
    for name in TREES:
        for node in nodes(name):
            if isinstance(node, ast.ClassDef) and node.name != "Problem":
                for statement in node.body:
                    text = ast.unparse(statement)
                    if match := re.fullmatch(r"code = '(LMG-\d+)'", text):
                        yield node.name, match[1]


def test_each_code_belongs_to_one_class() -> None:
    counts = Counter(code for _, code in declared_codes())
    assert [code for code, count in counts.items() if count > 1] == []


def test_each_public_error_class_declares_its_code_or_says_why_not() -> None:
    silent = {error.__name__ for error in PUBLIC if "code" not in vars(error)}
    assert silent == INHERITED.keys()


def test_a_code_in_several_places_has_a_reason() -> None:
    counts = Counter(code for code, _, _ in codes_in_source())
    classes = {code for _, code in declared_codes()}
    shared = {code for code, count in counts.items() if count > 1 and code != "LMG-302"}  # of every `Problem`
    assert shared == SHARED.keys(), sorted(shared ^ SHARED.keys())
    assert classes.isdisjoint({"LMG-301", "LMG-305", "LMG-307", "LMG-308"})


def test_the_table_of_codes_lists_each_code_of_the_source_and_no_other() -> None:
    assert TABLE.keys() == {code for code, _, _ in codes_in_source()}


def test_the_table_of_codes_has_each_code_once() -> None:
    text = (Path(__file__).parents[1] / "docs/TROUBLESHOOTING.md").read_text()
    counts = Counter(re.findall(r"^\| (LMG-\d+) \|", text, re.MULTILINE))
    assert [code for code, count in counts.items() if count > 1] == []


def test_the_row_of_a_code_names_its_class() -> None:
    assert [name for name, code in declared_codes() if f"`{name}`" not in TABLE[code]] == []


def test_the_code_of_an_outcome_is_explained() -> None:
    assert {code for code in OUTCOME_CODES.values() if code} <= TABLE.keys()


def texts_of(node: ast.expr) -> Iterator[tuple[int, str]]:
    """Yield the texts of an expression, with `{}` for each value in them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        yield node.lineno, "".join(parts)
    elif isinstance(node, ast.IfExp):
        yield from texts_of(node.body)
        yield from texts_of(node.orelse)


def error_texts(name: str) -> Iterator[tuple[int, str]]:
    """Yield the messages and hints of a file: of raised errors, of problems, and of variables so named."""
    for node in nodes(name):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            function = ast.unparse(node.exc.func)
            if function not in TEXTS_FOR_MODELS and "attempt." not in function and node.exc.args:
                yield from texts_of(node.exc.args[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("Problem", "make_warning"):
            for argument in node.args:
                yield from texts_of(argument)
        elif (isinstance(node, ast.keyword) and node.arg == "hint") or (
            isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("message", "hint")
        ):
            yield from texts_of(node.value)


@pytest.mark.parametrize("room", ROOMS)
def test_no_message_has_a_former_form(room: str) -> None:
    wrong = [
        f"{name}:{line}: {text}"
        for name in TREES
        if name.startswith(f"{room}/")
        for line, text in error_texts(name)
        if FORMER_FORMS.search(text)
    ]
    assert wrong == []
