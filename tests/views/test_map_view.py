"""The map: arrows by who may read, ask and hand on, thick by what really went along them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.base.errors import UsageError
from lemming.libraries.outbox_files import write_person_entry
from lemming.queries.views.map_view import build_graph, layout_nodes
from lemming.queries.views.map_view import build_map_view as map_of
from lemming.queries.views.view_registry import build_view
from lemming.testing import FrozenClock, make_org, resume


def arrows_in(org: Path, **parameters: int) -> dict[tuple[str, str, str], int]:
    return {(it.source, it.target, it.kind): it.traffic for it in build_graph(org, **parameters)[1]}


def test_an_arrow_says_how_many_entries_were_shown_and_how_often_somebody_was_asked(desk: Path) -> None:
    arrows = arrows_in(desk)
    assert arrows["checker", "editor", "reads"] == 4
    assert arrows["editor", "checker", "reads"] == 4
    assert arrows["editor", "checker", "asks"] == 1
    assert arrows["human", "editor", "asks"] == arrows["human", "editor", "reads"] == 1
    assert arrows["poet", "human", "reads"] == 0, "it may be read, and has written nothing"
    assert ("human", "poet", "reads") not in arrows


def test_traffic_is_that_of_the_ticks_asked_for(desk: Path) -> None:
    arrows = arrows_in(desk, ticks=1)
    assert arrows["checker", "editor", "reads"] == 1
    assert arrows["editor", "checker", "asks"] == 0


def test_a_request_that_is_handed_on_is_an_arrow_of_its_own(base: Path) -> None:
    make_org(
        base,
        resume("ada", team={"hand_to": ["bob"]}, turn={"take": "one"}),
        resume("bob", permissions={"read_outboxes": ["ada"], "tools": []}),
        resume("human", model={"key": "human"}),
        models={"human": {"provider": "human"}},
        script=[{"agent": "ada", "reply": {"outbox_entries": [], "memory_updates": [], "notes": "",
                 "tool_calls": [{"tool": "hand_to_bob", "args": {"message": "yours"}}]}}],
    )  # fmt: skip
    assert arrows_in(base)["ada", "bob", "hands"] == 0
    write_person_entry(
        base, "human", tick=1, kind="request", payload={"text": "x", "target": "ada"}, tags=[], created_at=""
    )
    run_once(base, clock=FrozenClock())
    arrows = arrows_in(base)
    assert arrows["ada", "bob", "hands"] == 1
    assert arrows["human", "ada", "asks"] == 1


def test_the_map_of_one_agent_has_its_neighbours_only(desk: Path) -> None:
    shown = build_view(desk, "map", {"agent": "poet"})
    assert {node["name"] for node in shown["nodes"]} == {"poet", "human"}
    assert shown["left_out"] == 2
    assert shown["names"] == ["checker", "editor", "human", "poet"]
    with pytest.raises(UsageError, match='agent "pot" does not exist') as raised:
        map_of(desk, agent="pot")
    assert "poet" in raised.value.hint


def test_of_many_agents_those_with_the_most_traffic_are_drawn(desk: Path) -> None:
    shown = map_of(desk, most=2)
    assert len(shown["nodes"]) == 2
    assert shown["left_out"] == 2
    assert {"editor"} < {node["name"] for node in shown["nodes"]}


def test_who_reads_everybody_has_no_thousand_arrows(base: Path) -> None:
    names = [f"a{number}" for number in range(60)]
    make_org(base, *(resume(name, permissions={"read_outboxes": [], "tools": []}) for name in names),
             resume("boss", schedule={"run_every_n_ticks": 50, "phase_offset": 0}))  # fmt: skip
    assert arrows_in(base) == {}
    assert len(map_of(base)["nodes"]) == 24


def test_a_broken_resume_is_a_box_without_arrows(desk: Path, base: Path) -> None:
    shutil.copytree(desk, base)
    (base / "agents/poet/resume.json").write_text("{")
    node = next(node for node in map_of(base)["nodes"] if node["name"] == "poet")
    assert node["speaks"] == "broken"
    assert not [arrow for arrow in map_of(base)["arrows"] if "poet" in (arrow["from"], arrow["to"])]


def test_boxes_stand_left_of_those_who_read_them() -> None:
    spots, form = layout_nodes("abcd", {("a", "b"): 1, ("b", "c"): 1, ("a", "c"): 1, ("c", "a"): 0.5, ("b", "d"): 1})
    assert form == "columns"
    assert [spots[name][0] for name in "abcd"] == [0, 1, 2, 2]
    assert spots["c"][1] != spots["d"][1]


def test_where_all_read_all_the_boxes_stand_on_a_circle() -> None:
    names = [f"a{number}" for number in range(8)]
    spots, form = layout_nodes(names, {(one, other): 1.0 for one in names for other in names})
    assert form == "circle"
    assert len({*spots.values()}) == 8
    assert layout_nodes(names[::-1], {(one, other): 1.0 for one in names for other in names})[0] == spots


def test_no_two_boxes_stand_in_one_spot() -> None:
    names = [f"a{number}" for number in range(40)]
    arrows = {(names[at], names[(at * 7 + 3) % 40]): float(at % 5) for at in range(40)}
    spots, _ = layout_nodes(names, arrows)
    assert len({*spots.values()}) == 40
    assert layout_nodes([], {})[0] == {}
