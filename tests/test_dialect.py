"""The package speaks common technical English: its names, its docstrings and the strings below its constants."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from dialect import CEILINGS, MAX_FIRST_WORDS, VAGUE, WH_OPENING, attribute_docstrings, measure
from package import FILES, PACKAGE, TREES, nodes
from test_house import DOORS

# Names that stay, each with the reason. What is on disk or in programs of users keeps its name there.
FORMAT = "a key of a file format since 0.1.0 or 0.2.0"
PRINTED = "a key of what `--json` prints since 0.2.0"
PUBLIC = "a parameter or a field that programs and plugins name since 0.2.0"
STAYS = {
    ("capabilities/plans/plan_builder.py", "each"): FORMAT,
    ("capabilities/plans/plan_format.py", "each"): FORMAT,
    ("kernel/obligations/current_request.py", "asked"): FORMAT,
    ("kernel/journal/journal_records.py", "found"): FORMAT,
    ("kernel/journal/journal_records.py", "given"): FORMAT,
    ("kernel/journal/journal_records.py", "kept"): FORMAT,
    ("kernel/journal/journal_records.py", "lost"): FORMAT,
    ("kernel/journal/ledger.py", "aside"): FORMAT,
    ("kernel/journal/ledger.py", "kept"): FORMAT,
    ("kernel/journal/ledger.py", "lost"): FORMAT,
    ("kernel/journal/open_requests.py", "asked"): FORMAT,
    ("kernel/journal/open_requests.py", "held"): FORMAT,
    ("kernel/journal/record_parts.py", "aside"): FORMAT,
    ("kernel/journal/record_parts.py", "asked"): FORMAT,
    ("kernel/journal/record_parts.py", "held"): FORMAT,
    ("kernel/journal/record_parts.py", "kept"): FORMAT,
    ("kernel/journal/record_parts.py", "lost"): FORMAT,
    ("kernel/journal/turn_report.py", "lost"): FORMAT,
    ("kernel/turn/forms/reply_form.py", "own"): FORMAT,
    ("commands/chaos.py", "lost"): PRINTED,
    ("evals/suite.py", "asked"): PRINTED,
    ("evals/suite.py", "said"): PRINTED,
    ("journal_tools/recorded_tick.py", "kept"): PRINTED,
    ("journal_tools/repair/damage_repair.py", "found"): PRINTED,
    ("operations/model_trial.py", "own"): PRINTED,
    ("libraries/strategy_registry.py", "given"): PUBLIC,
    ("client/ask_client.py", "asked"): PUBLIC,
    ("kernel/base/errors.py", "lost"): PUBLIC,
    ("kernel/providers.py", "kept"): PUBLIC,
    ("kernel/turn/turn_values.py", "given"): PUBLIC,
    ("kernel/turn/turn_values.py", "kept"): PUBLIC,
    ("kernel/turn/turn_values.py", "lost"): PUBLIC,
}


def test_names_and_docstrings_are_near_those_of_other_packages() -> None:
    exceeded = measure(PACKAGE).exceeded
    assert not exceeded, "\n".join(exceeded)


@pytest.mark.parametrize(
    ("code", "figure"),
    [
        ("def said_of(): ...", "names that end in a preposition or adverb, %"),
        ("def told_reason(): ...", "names that begin with a participle, %"),
        ('def f():\n    "Return whether an entry is old."', "docstrings that open with a wh-clause, %"),
        ('def f():\n    "Return the entry; None: nobody wrote one."', "docstrings with an elliptic clause, %"),
        ('def f():\n    "Say what the file is, and how."', "wh-words per 1,000 words of docstrings"),
        ('def f():\n    "Return those of one."', "pronouns per 1,000 words of docstrings"),
        ("def f():\n    it = 1", "vague variables, %"),
    ],
)
def test_each_figure_exceeds_its_ceiling_for_what_it_measures(code: str, figure: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(code)
    assert measure(tmp_path).figures[figure] > CEILINGS[figure]


def named(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement or an expression defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name.lower()
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
        yield node.attr
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name


def is_own(node: ast.Attribute) -> bool:
    """Return True for an attribute of `self`; other attributes are named where their class is."""
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def test_no_pronoun_participle_or_adverb_is_a_name() -> None:
    vague = {
        (name, word): node.lineno  # type: ignore[attr-defined]
        for name in TREES
        for node in nodes(name)
        for word in named(node)
        if word.strip("_") in VAGUE
    }
    assert [f"{name}:{line}: {word}" for (name, word), line in vague.items() if (name, word) not in STAYS] == []
    assert STAYS.keys() - vague.keys() == set(), "these exceptions are not needed any more"


def test_a_docstring_of_a_constant_opens_with_no_wh_clause() -> None:
    strings = [(name, text) for name in TREES for text in attribute_docstrings(nodes(name))]
    assert len(strings) > 100
    assert [f"{name}:{it.lineno}: {it.value}" for name, it in strings if WH_OPENING.match(str(it.value))] == []


def test_the_first_sentence_of_a_docstring_has_at_most_twenty_words() -> None:
    sentences = [
        (f"{name}:{getattr(node, 'lineno', 1)}", first_sentence(text))
        for name in TREES
        for node in nodes(name)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node))
    ]
    long = [f"{place}: {text}" for place, text in sentences if len(text.split()) > MAX_FIRST_WORDS]
    assert not long, "\n".join(long)


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[.])\s", " ".join(text.partition("\n\n")[0].split()))[0]


def test_no_two_modules_have_one_name() -> None:
    """A door has the name of the module it opens, and a command's module that of the command."""
    doors = {f"{name}.py" for name in DOORS}
    own = Counter(path.stem for name, path in FILES.items() if name not in doors and "commands/" not in name)
    commands = Counter(path.stem for name, path in FILES.items() if name.startswith("commands/"))
    assert [
        stem for names in (own, commands) for stem, count in names.items() if count > 1 and stem != "__init__"
    ] == []
