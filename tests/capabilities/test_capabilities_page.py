"""docs/capabilities.md is true: its code is that of the example, its hooks are all there are."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest
from quota_site import EXAMPLE, lemming, writers

from lemming.kernel.turn.turn_hooks import Capability

PAGE = (Path(__file__).parents[2] / "docs/capabilities.md").read_text()
BLOCKS = re.findall(r"^```(python|toml|json|sh)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
MODULE = (EXAMPLE / "src/lemming_quota/__init__.py").read_text()
PROJECT = (EXAMPLE / "pyproject.toml").read_text()


def of_kind(kind: str) -> list[str]:
    return [text for it, text in BLOCKS if it == kind]


@pytest.mark.parametrize("text", of_kind("python"), ids=lambda text: text.split("\n")[0])
def test_its_code_is_the_examples(text: str) -> None:
    assert text in MODULE


def test_its_metadata_are_the_examples() -> None:
    (text,) = of_kind("toml")
    assert text in PROJECT
    assert len(MODULE.splitlines()) == int(re.findall(r"(\d+) lines and its tests", PAGE)[0])


def test_what_it_has_typed_says_what_it_says(base: Path, site: Path) -> None:
    (block,) = of_kind("json")
    writers(base, "ada", settings=json.loads(f"{{{block}}}")["capabilities"])
    (typed,) = of_kind("sh")
    installs, *commands = typed.splitlines()
    assert installs == "pip install ./examples/entry-quota"
    found = [lemming(base, *line.split()[1:], sites=(site,)) for line in commands]
    assert [it.returncode for it in found] == [0, 0, 0]
    assert re.findall(r"`(quota: .*?)`", PAGE)[0] in found[-1].stdout


def test_its_tables_have_every_hook() -> None:
    hooks = {
        f"{kind.__name__}.{name}"
        for kind in (Capability,)
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    assert set(re.findall(r"`(Capability\.\w+)`", PAGE)) == hooks


def test_the_schema_of_a_settings_file_has_those_of_installed_capabilities(base: Path, site: Path) -> None:
    writers(base, "ada")
    for name in ("org", "resume"):
        schema = json.loads(lemming(base, "export", "schema", name, sites=(site,)).stdout)
        block = schema["properties"]["capabilities"]["properties"]["quota"]
        assert block["properties"]["per_day"]["description"] == "Number of entries per day, by UTC."
