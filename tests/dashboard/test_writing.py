"""What the page writes beside entries: resumes as typed, and forks."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from looked_at import newsdesk, ran

from lemming.dashboard.page_actions import run_action
from lemming.engine import run_once
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import Organisation
from lemming.testing import FrozenClock, tree


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(newsdesk(tmp_path_factory.mktemp("desk") / "org"), 2)


@pytest.fixture
def org(original: Path, base: Path) -> Organisation:
    return Organisation(shutil.copytree(original, base))


def save(org: Organisation, text: str, was: str = "", name: str = "poet") -> dict[str, Any]:
    was = was or sha256((org / f"agents/{name}/resume.json").read_bytes()).hexdigest()
    return run_action(org, "save", {"file": f"agents/{name}/resume.json", "text": text, "was": was}, None)


def test_a_resume_is_written_byte_for_byte_as_it_was_typed(org: Organisation) -> None:
    file = org / "agents/poet/resume.json"
    text = file.read_text().replace("You are poet.", "Rhyme, and\\u0020mind the metre: größer.") + "\n\n"
    saved = save(org, text)
    assert saved["is_saved"]
    assert file.read_bytes() == text.encode()
    assert saved["sha256"] == sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("old", "new", "said", "line"),
    [
        ('"name"', '"name', "", 2),
        ('"poet"', '"potter"', "the folder's name", 0),
        ('"scripted"', '"nobody"', "nobody", 5),
        ('"read_outboxes": []', '"read_outboxes": "all"', "", 0),
    ],
)
def test_what_validate_refuses_is_not_written_and_its_place_is_named(
    org: Organisation, old: str, new: str, said: str, line: int
) -> None:
    before = tree(org.base, without=())
    text = (org / "agents/poet/resume.json").read_text().replace(old, new, 1)
    answer = save(org, text)
    assert not answer["is_saved"]
    errors = [it for it in answer["problems"] if it["severity"] == "error"]
    assert said in errors[0]["message"]
    assert line in (0, errors[0]["line"])
    assert tree(org.base, without=()) == before


def test_what_somebody_else_has_changed_meanwhile_is_not_overwritten(org: Organisation) -> None:
    file = org / "agents/poet/resume.json"
    was = sha256(file.read_bytes()).hexdigest()
    text = file.read_text().replace("You are poet.", "Mine.")
    file.write_text(file.read_text().replace("You are poet.", "Theirs."))
    answer = save(org, text, was)
    assert (answer["is_saved"], answer["is_stale"]) == (False, True)
    assert "Theirs." in file.read_text()
    assert save(org, text, answer["sha256"])["is_saved"]


def test_a_warning_does_not_stop_a_resume_from_being_saved(org: Organisation) -> None:
    answer = save(org, (org / "agents/poet/resume.json").read_text().replace('"title"', '"motto"'))
    assert answer["is_saved"]
    assert [it["severity"] for it in answer["problems"]] == ["warning"]


@pytest.mark.parametrize("name", ["..", "../../config", "nobody", "poet/../editor", ""])
def test_only_an_agents_own_resume_can_be_written(org: Organisation, name: str) -> None:
    with pytest.raises(UsageError):
        run_action(org, "resume", {"name": name, "text": "{}", "was": ""}, None)


def test_a_fork_stands_beside_the_organisation_and_goes_on_from_its_tick(org: Organisation) -> None:
    before = tree(org.base, without=())
    made = run_action(org, "fork", {"at": "1", "folder": "what-if"}, None)
    place = Path(made["folder"])
    assert place == org.base.parent / "what-if"
    assert run_once(place, clock=FrozenClock()).tick == made["next_tick"] == 2
    assert tree(org.base, without=()) == before


@pytest.mark.parametrize("folder", ["../out", "/tmp/out", ".", "..", "a/b", "", "org", ".hidden"])
def test_a_fork_is_made_nowhere_else_and_over_nothing(org: Organisation, folder: str) -> None:
    before = sorted(org.base.parent.iterdir())
    with pytest.raises(UsageError):
        run_action(org, "fork", {"at": "1", "folder": folder}, None)
    assert sorted(org.base.parent.iterdir()) == before
