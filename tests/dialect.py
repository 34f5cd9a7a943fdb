"""Measure how far the names and docstrings of a package are from common technical English.

    python tests/dialect.py [PACKAGE_FOLDER]

prints seven figures beside their ceilings, and every offender with its place. The exit status is 1 above a ceiling.
The ceilings lie close to the present figures, inside the range of well-known Python packages.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from package import nodes_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TRAILING = _words(
    "of in by at with for from on to as after before outside over under below beside since until here there now "
    "again away up out off ahead through"
)
WHOLE_NAMES = _words(
    "read_from write_to load_from convert_to set_up look_up clean_up shut_down not_before wait_for write_off"
)
"""Names of the field that end in a preposition or an adverb."""
PARTICIPLES = _words(
    "said told given shown tried opened found asked held kept taken made named known written left passed seen put "
    "offered wanted brought heard called used done gone lost bound rewritten having looked fitted marked formed "
    "labelled begun broken"
)
VAGUE = _words(
    "it found said told kept each here known asked word words thing things given held taken made wanted lost gone "
    "seen others rest own all_ further aside"
)
"""Words that say nothing as a name of their own: pronouns, participles and adverbs."""
WH_OPENING = re.compile(
    r"((returns?|yields?|says?|tells?)\s+)?(what|who|whom|whose|how|why|where|whether|which|when)\b", re.IGNORECASE
)
ELLIPSIS = re.compile(
    r"(;|,)\s*(None|empty|nothing|\"[^\"]*\"|`[^`]*`|else|else nothing)\s*:|; (None|empty|nothing) (where|when|if)"
)
WH_WORDS = _words("what who whom whose whoever whatever whether how why")
PRONOUNS = _words("it its that those these them they one others")
MAX_FIRST_WORDS = 20

CEILINGS = {
    "names that end in a preposition or adverb, %": 1.0,
    "names that begin with a participle, %": 0.5,
    "docstrings that open with a wh-clause, %": 0.2,
    "docstrings with an elliptic clause, %": 0.5,
    "wh-words per 1,000 words of docstrings": 3.0,
    "pronouns per 1,000 words of docstrings": 25.0,
    "vague variables, %": 0.3,
}
TRAILING_NAMES, PARTICIPLE_NAMES, WH_OPENINGS, ELLIPSES, WH_DENSITY, PRONOUN_DENSITY, VAGUE_NAMES = CEILINGS


@dataclass
class Dialect:
    """Figures of a package, and the offenders behind them, by figure."""

    figures: dict[str, float] = field(default_factory=dict)
    offenders: dict[str, list[str]] = field(default_factory=dict)

    @property
    def exceeded(self) -> list[str]:
        """A line for each figure above its ceiling, with its offenders."""
        return [
            "\n  ".join((f"{name}: {self.figures[name]} is above {ceiling}", *self.offenders.get(name, ())))
            for name, ceiling in CEILINGS.items()
            if self.figures[name] > ceiling
        ]


@dataclass
class _Counts:
    counter: Counter[str] = field(default_factory=Counter)
    offenders: dict[str, list[str]] = field(default_factory=dict)

    def add(self, figure: str, place: str, text: str) -> None:
        self.counter[figure] += 1
        self.offenders.setdefault(figure, []).append(f"{place}: {text}")

    def share(self, figure: str, total: str, per: int = 100) -> float:
        return round(per * self.counter[figure] / max(self.counter[total], 1), 1)


def measure(package: Path) -> Dialect:
    """Return the figures of all modules below a folder."""
    counts = _Counts()
    for path in sorted(package.rglob("*.py")):
        for node in nodes_of(path):
            _count_node(node, str(path), counts)
    return Dialect(
        {
            TRAILING_NAMES: counts.share(TRAILING_NAMES, "functions"),
            PARTICIPLE_NAMES: counts.share(PARTICIPLE_NAMES, "functions"),
            WH_OPENINGS: counts.share(WH_OPENINGS, "docstrings"),
            ELLIPSES: counts.share(ELLIPSES, "docstrings"),
            WH_DENSITY: counts.share(WH_DENSITY, "words", 1000),
            PRONOUN_DENSITY: counts.share(PRONOUN_DENSITY, "words", 1000),
            VAGUE_NAMES: counts.share(VAGUE_NAMES, "variables"),
        },
        counts.offenders,
    )


def _count_node(node: ast.AST, path: str, counts: _Counts) -> None:
    place = f"{path}:{getattr(node, 'lineno', 1)}"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
        counts.counter["functions"] += 1
        name = node.name.strip("_")
        words = name.split("_")
        if len(words) > 1 and words[-1] in TRAILING and name not in WHOLE_NAMES:
            counts.add(TRAILING_NAMES, place, f"{node.name} ends in '{words[-1]}'")
        if words[0] in PARTICIPLES:
            counts.add(PARTICIPLE_NAMES, place, f"{node.name} begins with '{words[0]}'")
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        counts.counter["variables"] += 1
        if node.id.strip("_") in VAGUE:
            counts.add(VAGUE_NAMES, place, node.id)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
        _count_docstring(ast.get_docstring(node) or "", place, counts)


def _count_docstring(text: str, place: str, counts: _Counts) -> None:
    if not text:
        return
    counts.counter["docstrings"] += 1
    first = " ".join(text.split())
    if WH_OPENING.match(first):
        counts.add(WH_OPENINGS, place, first[:90])
    if ELLIPSIS.search(first):
        counts.add(ELLIPSES, place, first[:90])
    words = re.findall(r"[a-z']+", text.lower())
    counts.counter["words"] += len(words)
    counts.counter[WH_DENSITY] += sum(word in WH_WORDS for word in words)
    counts.counter[PRONOUN_DENSITY] += sum(word in PRONOUNS for word in words)


def attribute_docstrings(nodes: Iterable[ast.AST]) -> Iterator[ast.Constant]:
    """Yield the strings below assignments, which describe constants and fields."""
    for node in nodes:
        body = getattr(node, "body", None) if isinstance(node, ast.Module | ast.ClassDef) else None
        for before, after in zip(body or (), (body or ())[1:], strict=False):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(before, ast.Assign | ast.AnnAssign) and is_text and isinstance(after.value.value, str):
                yield after.value


def main(arguments: list[str]) -> int:
    """Print the figures of a package and the offenders; return 1 if a figure is above its ceiling."""
    dialect = measure(Path(arguments[0] if arguments else "lemming"))
    for offender in (line for lines in dialect.offenders.values() for line in lines):
        print(offender)
    for name, value in dialect.figures.items():
        print(f"{value:6.1f}  (ceiling {CEILINGS[name]:4.1f})  {name}")
    return 1 if dialect.exceeded else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
