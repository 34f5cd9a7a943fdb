"""The origin of a line: the turn that wrote it, also behind a squash, and nobody's turn for a line of a person."""

from __future__ import annotations

import pytest
from user_repositories import AT, Bench, commit, git

from lemming.capabilities.workers.recorded_merges import RecordedPatch, find_line_origin
from lemming.capabilities.workers.repositories.git_command import RepositoryError
from lemming.capabilities.workers.repositories.merging import merge_tree


def merge_line(bench: Bench, agent: str, number: int) -> RecordedPatch:
    """Let an agent change a line of `shared.txt` on `lemming/team`, and return its patch."""
    base = bench.repository.read_head("lemming/team") or bench.head
    clone = bench.clone(agent, base, agent=agent)
    lines = (clone / "shared.txt").read_text().splitlines()
    lines[number] = f"edit of {agent}"
    (clone / "shared.txt").write_text("\n".join(lines) + "\n")
    (clone / f"{agent}.bin").write_bytes(b"\0" + agent.encode())
    taken = bench.take(clone, base)
    order = bench.order(taken, base, agent=agent, tick=number + 1)
    assert merge_tree(bench.engine_repository, bench.repository, order)["merged"]
    return RecordedPatch(agent=agent, tick=order.tick, turn=order.turn, patch=order.patch, content=taken.patch)


def squash(bench: Bench) -> str:
    """Squash `lemming/team` into main as a person does."""
    git(bench.folder, "checkout", "-q", "--", ".")
    git(bench.folder, "-c", "core.hooksPath=/dev/null", "merge", "-q", "--squash", "lemming/team")
    return commit(bench.folder, "a pull request")


def test_a_line_leads_to_its_turn(bench: Bench) -> None:
    patches = [merge_line(bench, agent, number) for number, agent in enumerate(("one", "two"))]
    line, turn = find_line_origin(bench.repository, "lemming/team", "shared.txt", 2)
    assert (line.path, line.line, line.content) == ("shared.txt", 2, "edit of two")
    assert (line.commit, line.author, line.at) == (git(bench.folder, "rev-parse", "lemming/team"), "two", AT)
    assert (line.agent, line.tick, line.patch, turn) == ("two", 2, patches[1].patch, "2-two")


def test_a_line_of_a_person_has_no_turn(bench: Bench) -> None:
    line, turn = find_line_origin(bench.repository, "main", "shared.txt", 2, patches=list)
    assert (line.commit, line.author, line.at) == (bench.head, "Ada", "2026-05-28T20:26:40.000Z")
    assert (line.agent, line.tick, line.patch, turn) == ("", 0, "", "")


def test_the_squash_of_one_turn_is_found_by_its_patch(bench: Bench) -> None:
    patches = [merge_line(bench, "one", 0)]
    squashed = squash(bench)
    line, turn = find_line_origin(bench.repository, "main", "shared.txt", 1, patches=lambda: patches)
    assert (line.commit, line.author) == (squashed, "Ada")
    assert (line.agent, line.tick, line.patch, turn) == ("one", 1, patches[0].patch, "1-one")


def test_the_squash_of_several_turns_is_found_by_the_line(bench: Bench) -> None:
    patches = [merge_line(bench, agent, number) for number, agent in enumerate(("one", "two"))]
    squash(bench)
    agents = [
        find_line_origin(bench.repository, "main", "shared.txt", line, patches=lambda: patches[::-1])[0].agent
        for line in (1, 2, 3)
    ]
    assert agents == ["one", "two", ""]


def test_a_squash_whose_message_holds_several_turns_is_not_laid_to_the_last(bench: Bench) -> None:
    patches = [merge_line(bench, agent, number) for number, agent in enumerate(("one", "two"))]
    message = git(bench.folder, "log", "--reverse", "--format=%B", "main..lemming/team")
    git(bench.folder, "checkout", "-q", "--", ".")
    git(bench.folder, "-c", "core.hooksPath=/dev/null", "merge", "-q", "--squash", "lemming/team")
    commit(bench.folder, message)
    line, _ = find_line_origin(bench.repository, "main", "shared.txt", 1, patches=lambda: patches)
    assert line.agent == "one"


@pytest.mark.parametrize(
    ("revision", "path", "line"),
    [
        ("main", "missing", 1),
        ("main", "shared.txt", 99),
        ("nowhere", "shared.txt", 1),
        ("--contents=x", "shared.txt", 1),
    ],
)
def test_a_line_that_is_not_there_is_refused(bench: Bench, revision: str, path: str, line: int) -> None:
    with pytest.raises(RepositoryError):
        find_line_origin(bench.repository, revision, path, line)
