"""What the documents show is true: examples parse, links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from lemming.inspect.schemas import FORMATS, schema_of

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = re.compile(r"^```json (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(name, text, id=f"{page.stem}-{name}-{number}")
    for page in PAGES
    for number, (name, text) in enumerate(EXAMPLE.findall(page.read_text()))
]


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_an_example_satisfies_the_schema_of_its_format(name: str, text: str) -> None:
    Draft202012Validator(schema_of(name)).validate(json.loads(text))


def test_every_format_has_an_example() -> None:
    assert {parameters.values[0] for parameters in EXAMPLES} == set(FORMATS)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_schema_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(schema_of(name))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_error_code_is_explained() -> None:
    from lemming import errors

    text = (ROOT / "docs/errors.md").read_text()
    codes = set(re.findall(r"LMG-\d+", (ROOT / "lemming/errors.py").read_text()))
    codes |= {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    assert {code for code in codes if code not in text} == set()
