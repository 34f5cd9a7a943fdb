"""Of nested grants the most specific that covers a path decides, in whatever order a resume has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tool_desk import Desk

from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.settings_blocks import Quota


@pytest.fixture(params=["wide one first", "narrow one first"])
def nested(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    """An agent that may use a folder outside the organisation, and by name two folders in it."""
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / ".git/hooks").mkdir(parents=True)
    grants = [str(outside), f"{outside}/inner", f"{outside}/.git/hooks"]
    if request.param == "narrow one first":
        grants.reverse()
    return Desk(tmp_path / "org", allow_read=grants, allow_write=grants)


def test_a_file_is_walked_to_from_the_nearest_granted_folder(nested: Desk, tmp_path: Path) -> None:
    path = f"{tmp_path}/outside/inner/deep/a.txt"
    (effect,) = nested.call("file_write", path=path, content="x").effects
    assert (effect.root, effect.path) == (f"{tmp_path}/outside/inner", "deep/a.txt")
    (effect,) = nested.call("file_write", path=f"{tmp_path}/outside/a.txt", content="x").effects
    assert (effect.root, effect.path) == (f"{tmp_path}/outside", "a.txt")


def test_a_folder_granted_by_name_may_be_a_link_as_the_person_meant_it(nested: Desk, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.txt").write_text("there")
    (tmp_path / "outside/inner").rmdir()
    (tmp_path / "outside/inner").symlink_to(elsewhere)
    assert nested.do("file_read", path=f"{tmp_path}/outside/inner/a.txt") == "there"


def test_a_granted_folder_within_another_is_never_replaced_by_a_file(nested: Desk, tmp_path: Path) -> None:
    (tmp_path / "outside/inner").rmdir()
    assert "is a folder" in nested.refusal("file_write", path=f"{tmp_path}/outside/inner", content="x")


def test_a_granted_folder_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    desk = Desk(tmp_path, allow_read=["./shared", "./shared/mine"])
    desk.write("shared/a.txt", "x")
    assert desk.do("file_list", path="shared/mine") == "(empty)"
    assert "does not exist" in desk.refusal("file_list", path="shared/other")


def test_a_name_that_is_never_written_is_when_a_person_grants_it(nested: Desk, tmp_path: Path) -> None:
    nested.do("file_write", path=f"{tmp_path}/outside/.git/hooks/pre-commit", content="x")
    assert (tmp_path / "outside/.git/hooks/pre-commit").read_text() == "x"
    assert "is never written" in nested.refusal("file_write", path=f"{tmp_path}/outside/.git/config", content="x")


def test_a_folder_granted_by_name_is_not_full_of_what_lies_beside_it(tmp_path: Path) -> None:
    few = OrgSettings(quota=Quota(max_files=100))
    desk = Desk(tmp_path, allow_write=["./shared", "./shared/mine"], org=few)
    for number in range(100):
        desk.write(f"shared/others/{number}", "x")
    assert "at most 100" in desk.refusal("file_write", path="shared/a.txt", content="x")
    assert desk.call("file_write", path="shared/mine/a.txt", content="x").success


def test_no_grant_shows_an_agent_what_it_is_tried_with(tmp_path: Path) -> None:
    wide = [str(tmp_path)]
    desk = Desk(tmp_path / "org", allow_read=wide, allow_write=[*wide, f"{tmp_path}/org/evals"])
    desk.write("evals/first/case.json", "{}")
    desk.write("notes.txt", "plain")
    file = f"{tmp_path}/org/evals/first/case.json"
    assert desk.do("file_read", path=f"{tmp_path}/org/notes.txt") == "plain"
    assert "is closed to agents" in desk.refusal("file_read", path=file)
    assert "by people only" in desk.refusal("file_write", path=file, content="x")
    assert Desk(tmp_path / "org", allow_read=[f"{tmp_path}/org/evals"]).do("file_read", path=file) == "{}"
