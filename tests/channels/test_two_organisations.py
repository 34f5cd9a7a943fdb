"""The guide to several organisations: its two documents make organisations that are each other's channels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lemming.cli import run
from lemming.kernel.agents import load_agent
from lemming.kernel.org.config import load_config

PAGE = (Path(__file__).parents[2] / "docs/performance.md").read_text()
NORTH, EAST = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("document", "other"), [(NORTH, "east"), (EAST, "north")])
def test_a_document_of_the_guide_makes_an_organisation_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: str, other: str
) -> None:
    monkeypatch.setenv("DOOR", "whsec_c2VjcmV0")
    (tmp_path / "it.yaml").write_text(document)
    base = tmp_path / "org"
    assert run(["apply", str(tmp_path / "it.yaml"), str(base), "--yes"]) == 0
    assert run(["-C", str(base), "validate"]) == 0
    assert load_agent(base, "desk").permissions.read_outboxes == ["human", other]
    assert (
        load_config(base)
        .models[other]
        .options["deliver_to"]
        .endswith(f"/hooks/{'north' if other == 'east' else 'east'}")
    )
