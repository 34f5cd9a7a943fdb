"""`lemming agents graph`: the map for other programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from looked_at import newsdesk
from terminal import Lemming

from lemming.testing import make_org, resume


@pytest.fixture
def desk(base: Path) -> Path:
    return newsdesk(base)


def test_mermaid_has_a_box_for_each_agent_and_an_arrow_for_each_way(desk: Path, lemming: Lemming) -> None:
    lines = lemming("graph").out.splitlines()
    assert lines[0] == "flowchart LR"
    assert lines[1:5] == ['  a0["checker"]', '  a1["editor"]', '  a2(["human"])', '  a3["poet"]']
    assert "  a1 -.-> |asks| a0" in lines
    assert "  a0 --> a1" in lines


def test_dot_is_what_graphviz_reads(desk: Path, lemming: Lemming) -> None:
    text = lemming("graph", "--format", "dot").out
    assert '  "editor" -> "checker" [style=dashed, label="asks", penwidth=1.0];' in text
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text.encode(), check=True, capture_output=True)


def test_json_has_an_object_a_line(desk: Path, lemming: Lemming) -> None:
    found = lemming("graph", "--json").objects
    assert lemming("graph", "--format", "json").objects == found
    assert {it["name"] for it in found if it["type"] == "node"} == {"checker", "editor", "human", "poet"}
    assert {"from": "editor", "to": "checker", "kind": "asks"}.items() <= next(
        it for it in found if it["type"] == "arrow" and it["kind"] == "asks"
    ).items()


def test_one_agent_is_drawn_with_its_neighbours(desk: Path, lemming: Lemming) -> None:
    nodes = [it["name"] for it in lemming("graph", "--agent", "poet", "--json").objects if it["type"] == "node"]
    assert nodes == ["human", "poet"]


def test_names_that_mean_something_in_the_drawing_stay_names(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("end"), resume("graph"))
    (base / 'agents/x"];b[<img>').mkdir()
    (base / 'agents/x"];b[<img>/resume.json').write_text("{}")
    text = lemming("graph").out
    assert "end --" not in text
    assert '"];b[<' not in text
    assert "&lt;img>" in text


def test_a_form_that_is_none_is_refused_with_the_nearest(desk: Path, lemming: Lemming) -> None:
    ran = lemming("graph", "--format", "mermaidd")
    assert ran.status == 2
    assert '"mermaid"' in ran.err
