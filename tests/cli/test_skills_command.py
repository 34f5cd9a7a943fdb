"""`lemming skills`: which there are, who has them, and how one looks."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Lemming

from lemming.testing import make_org, resume

PDF = "---\nname: pdf-forms\ndescription: Fill in forms.\nlicense: MIT\n---\n# How\nWith care.\n"


@pytest.fixture
def org(base: Path) -> Path:
    """Return an organisation with a skill that ada has, one that nobody has, and one that is none."""
    make_org(base, resume("ada", skills=["pdf-*"]), resume("bob"))
    for folder, text in (
        ("skills/pdf-forms", PDF),
        (".claude/skills/weather", "---\nname: wether\ndescription: Tell it.\n---\n"),
        ("skills/broken", "no block"),
    ):
        (base / folder).mkdir(parents=True)
        (base / folder / "SKILL.md").write_text(text)
    (base / "skills/pdf-forms/fields.md").write_text("fields")
    return base


def test_the_list_says_where_each_lies_and_who_has_it(org: Path, lemming: Lemming) -> None:
    ran = lemming("skills", "list")
    assert [line.split()[:3] for line in ran.out.splitlines()[1:]] == [
        ["weather", ".claude/skills/weather", "nobody"],
        ["pdf-forms", "skills/pdf-forms", "ada"],
    ]
    assert "skills/broken/SKILL.md" in ran.err
    assert '"wether" and its folder "weather"' in ran.err


def test_the_list_as_json_has_all_of_it(org: Path, lemming: Lemming) -> None:
    found = lemming("skills", "list", "--json").objects
    assert [each["type"] for each in found] == ["problem", "problem", "skill", "skill"]
    pdf = found[3]
    assert (pdf["name"], pdf["agents"], pdf["files"]) == ("pdf-forms", ["ada"], ["fields.md"])
    assert pdf["keys"]["license"] == "MIT"


@pytest.mark.parametrize("name", ["pdf-forms", "skills/pdf-forms", "skills/pdf-forms/"])
def test_one_is_shown_as_agents_read_it(org: Path, lemming: Lemming, name: str) -> None:
    ran = lemming("skills", "show", name)
    assert ran.out == "Fill in forms.\n\n# How\nWith care.\n"
    assert "for ada" in ran.err
    assert "fields.md" in ran.err


@pytest.mark.parametrize(
    ("name", "told"), [("pdf-form", 'did you mean "pdf-forms"?'), ("broken", "must start with a YAML block")]
)
def test_what_is_no_skill_is_told_so(org: Path, lemming: Lemming, name: str, told: str) -> None:
    ran = lemming("skills", "show", name)
    assert ran.status == 2
    assert told in ran.err


def test_two_of_a_name_are_told_apart_by_their_folders(org: Path, lemming: Lemming) -> None:
    (org / "agents/ada/skills/pdf-forms").mkdir(parents=True)
    (org / "agents/ada/skills/pdf-forms/SKILL.md").write_text(PDF)
    assert "agents/ada/skills/pdf-forms, skills/pdf-forms" in lemming("skills", "show", "pdf-forms").err
    assert lemming("skills", "show", "agents/ada/skills/pdf-forms").status == 0


def test_no_skills_are_told_with_what_to_write(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    assert "write skills/NAME/SKILL.md" in lemming("skills", "list").err


def test_keys_of_other_programs_are_no_mistake_in_a_resume(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", **{"x-claude": {"color": "red"}, "x-any": 1}))
    assert lemming("validate").err.startswith("no problems")
