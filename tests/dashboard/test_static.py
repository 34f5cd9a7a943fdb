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
    assert "pip install 'lemming-engine[serve]'" in ran.err


def test_who_is_no_person_cannot_be_the_one_who_looks(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("human", model={"key": "human"}), models={"human": {"provider": "human"}})
    ran = lemming("dash", "--as", "ada", "--no-open")
    assert ran.status == 2
    assert "human" in ran.err


def test_every_text_can_be_told_from_what_it_stands_on_in_both_schemes() -> None:
    """WCAG 2.2, 1.4.3: a contrast of at least 4.5 to 1."""
    light, dark = re.findall(r":root \{(.*?)\}", (STATIC / "style.css").read_text(), re.DOTALL)[:2]
    for scheme in (light, dark):
        colour = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", scheme))
        texts = [(text, on) for text in ("ink", "soft", "faint") for on in ("paper", "card", "sunk")]
        texts += [(name, f"{name}-soft") for name in ("good", "warn", "bad", "calm")]
        low = {each: _contrast(*(colour[name] for name in each)) for each in [*texts, ("accent-ink", "accent")]}
        assert {each: ratio for each, ratio in low.items() if ratio < 4.5} == {}


def _contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2.2, "contrast ratio" and "relative luminance")."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [it / 12.92 if it <= 0.03928 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
