"""`lemming export a2a`: cards that hold what the protocol requires, and nothing that is not for strangers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.testing import make_org, resume, tree

REQUIRED = {
    "name", "description", "supportedInterfaces", "version", "capabilities", "defaultInputModes",
    "defaultOutputModes", "skills",
}  # fmt: skip


@pytest.fixture
def org(base: Path) -> Path:
    """Return an organisation with two agents and a person."""
    make_org(
        base,
        resume(
            "ada",
            title="Forms",
            skills=["*"],
            instructions="SECRET",
            **{"x-claude": {"description": "Fills in\nforms."}},
        ),
        resume("bob"),
        resume("human", model={"key": "human"}),
        models={"human": {"provider": "human"}},
    )
    (base / "skills/pdf").mkdir(parents=True)
    (base / "skills/pdf/SKILL.md").write_text("---\nname: pdf\ndescription: Read PDF\nmetadata: {tags: [a, b]}\n---\n")
    return base


def test_a_card_has_all_that_is_required(org: Path, lemming: Lemming) -> None:
    card = json.loads(lemming("export", "a2a", "ada", "--url", "https://example.org/ada").out)
    assert card.keys() == REQUIRED
    assert (card["name"], card["description"]) == ("Forms", "Fills in forms.")
    interface = {"url": "https://example.org/ada", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    assert card["supportedInterfaces"] == [interface]
    assert card["skills"] == [{"id": "pdf", "name": "Pdf", "description": "Read PDF", "tags": ["a", "b"]}]
    assert "SECRET" not in json.dumps(card)


def test_all_agents_that_are_no_people_have_one_and_it_is_always_the_same(org: Path, lemming: Lemming) -> None:
    ran = lemming("export", "a2a", "--url", "https://example.org")
    cards = json.loads(ran.out)
    assert [card["supportedInterfaces"][0]["url"] for card in cards] == [
        f"https://example.org/{n}" for n in ("ada", "bob")
    ]
    assert cards[1]["skills"][0]["id"] == "answer"
    assert lemming("export", "a2a", "--url", "https://example.org").out == ran.out
    before = cards[1]["version"]
    (org / "agents/bob/resume.json").write_text(json.dumps(resume("bob", title="Other")))
    assert json.loads(lemming("export", "a2a", "bob").out)["version"] != before


def test_cards_are_written_into_a_folder_and_nothing_into_the_organisation(
    org: Path, lemming: Lemming, tmp_path: Path
) -> None:
    before = tree(org)
    ran = lemming("export", "a2a", "--output", str(tmp_path / "out"))
    assert ran.out.splitlines() == [str(tmp_path / f"out/{name}/agent-card.json") for name in ("ada", "bob")]
    assert json.loads((tmp_path / "out/bob/agent-card.json").read_text()).keys() == REQUIRED
    assert "the address https://localhost/agents is a placeholder" in ran.err
    assert tree(org) == before


def test_a_name_that_is_none_is_told_with_the_nearest(org: Path, lemming: Lemming) -> None:
    ran = lemming("export", "a2a", "adda")
    assert ran.status == 2
    assert 'did you mean "ada"?' in ran.err


KEY = 'sk-"quoted"-0123456789'


@pytest.fixture
def leaky(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an organisation in whose files a known secret stands."""
    monkeypatch.setenv("SHOP_SECRET", KEY)
    make_org(base, resume("ada", instructions=f"Log in with {KEY}", title=f"Of {KEY}"))
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/notes.txt").write_text(f"the key\nis {KEY}\n")
    return base


@pytest.mark.parametrize("as_json", [False, True], ids=["yaml", "json"])
def test_an_exported_organisation_holds_no_known_secret_whichever_way_it_goes(
    leaky: Path, lemming: Lemming, tmp_path: Path, as_json: bool
) -> None:
    more = ["--json"] if as_json else []
    printed = lemming("export", "org", *more).out
    file = tmp_path / "out.yaml"
    assert lemming("export", "org", "--output", str(file), *more).status == 0
    assert file.read_text() == printed
    assert "0123456789" not in printed
    assert "[redacted SHOP_SECRET]" in printed


def test_a_card_in_a_file_holds_no_known_secret(leaky: Path, lemming: Lemming, tmp_path: Path) -> None:
    lemming("export", "a2a", "--output", str(tmp_path / "cards"))
    card = (tmp_path / "cards/ada/agent-card.json").read_text()
    assert "[redacted SHOP_SECRET]" in card
    assert "0123456789" not in card


def test_a_report_is_for_nobody_but_its_owner_and_holds_no_known_secret(
    leaky: Path, lemming: Lemming, tmp_path: Path
) -> None:
    assert lemming("report", "--html", str(tmp_path / "report")).status == 0
    files = [file for file in (tmp_path / "report").rglob("*") if file.is_file()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    data = b"".join(file.read_bytes() for file in (tmp_path / "report/data").iterdir())
    assert b"0123456789" not in data
