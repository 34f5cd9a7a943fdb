"""The files that the browser is given: no HTML is made of texts, nothing is asked of other machines."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.testing import make_org, resume

STATIC = Path(__file__).parents[2] / "lemming/dashboard/static"
OURS = sorted(path for path in STATIC.rglob("*.js") if path.parent.name != "vendor")
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\b|new Function"
    r"|https?://(?!www\.w3\.org/2000/svg)"
)


@pytest.mark.parametrize("file", [*OURS, STATIC / "style.css", STATIC / "index.html"], ids=lambda it: it.name)
def test_no_file_makes_markup_of_text_or_names_another_machine(file: Path) -> None:
    assert FORBIDDEN.findall(file.read_text()) == []


def test_every_file_of_ours_is_loaded_by_the_page() -> None:
    loaded = re.findall(r'src="static/([^"]+)"', (STATIC / "index.html").read_text())
    assert {STATIC / name for name in loaded} >= set(OURS)


def test_what_is_missing_is_named_with_the_command_that_installs_it(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ran = lemming("dash")
    assert ran.status == 2
    assert "pip install 'lemming-engine[dash]'" in ran.err


def test_who_is_no_person_cannot_be_the_one_who_looks(base: Path, lemming: Lemming) -> None:
    make_org(
        base, resume("ada"), resume("human", model={"key": "human"}), models={"human": {"provider": "human"}}
    )
    ran = lemming("dash", "--as", "ada", "--no-open")
    assert ran.status == 2
    assert "human" in ran.err
