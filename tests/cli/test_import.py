"""`lemming import`: what other programs say of their agents is in the resumes, and none of it is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sources import CLAUDE, made
from terminal import Lemming, Ran

from lemming.libraries.front_matter import parse_front_matter, split_front_matter
from lemming.testing import Crash, crash_at, make_org, resume, tree


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return where a source is made."""
    return tmp_path / "source"


def said(files: dict[str, str], file: str) -> tuple[dict[str, Any], str]:
    """Return what the first block of a file says, and its text."""
    header, body = split_front_matter(files[file])
    return parse_front_matter(header or ""), body.strip()


def resume_in(base: Path, name: str) -> dict[str, Any]:
    """Return a resume as it was written."""
    plain: dict[str, Any] = json.loads((base / f"agents/{name}/resume.json").read_text())
    return plain


def taken(bare: Lemming, source: Path, base: Path) -> Ran:
    """Import a project into a new organisation."""
    ran = bare("import", "claude", str(made(source, CLAUDE)), "--into", str(base))
    assert ran.status == 0, ran.err
    return ran


def test_what_was_written_is_listed_and_valid(bare: Lemming, source: Path, base: Path) -> None:
    ran = taken(bare, source, base)
    assert sorted(ran.out.splitlines()) == sorted(str(path) for path in base.rglob("*") if path.is_file())
    assert bare("-C", str(base), "validate").status == 0
    assert bare("-C", str(base), "plan").status == 0


def test_a_dry_run_tells_the_same_and_writes_nothing(bare: Lemming, source: Path, base: Path) -> None:
    dry = bare("import", "claude", str(made(source, CLAUDE)), "--into", str(base), "--dry-run")
    assert not base.exists()
    assert dry.out == taken(bare, source, base).out


def test_no_secret_of_the_source_is_kept(bare: Lemming, source: Path, base: Path) -> None:
    taken(bare, source, base)
    assert not any(b"not-to-be-kept" in raw for raw in tree(base).values())


def test_nothing_is_written_over(bare: Lemming, source: Path, base: Path) -> None:
    taken(bare, source, base)
    before = tree(base)
    ran = bare("import", "claude", str(source), "--into", str(base))
    assert ran.status == 2
    assert "already present; nothing was written" in ran.err
    assert tree(base) == before


@pytest.mark.parametrize("number", [1, 2, 4, 6])
def test_an_import_that_was_cut_off_is_finished_by_the_same_again(
    bare: Lemming, source: Path, base: Path, tmp_path: Path, number: int
) -> None:
    made(source, CLAUDE)
    for place in (base, tmp_path / "whole"):
        make_org(place, resume("human", model={"key": "human"}), models={"human": {"provider": "human"}})
    into = ("import", "claude", str(source), "--into")
    assert bare(*into, str(tmp_path / "whole")).status == 0
    with pytest.raises(Crash), crash_at(number):
        bare(*into, str(base))
    assert bare(*into, str(base)).status == 0
    whole = {path: raw for path, raw in tree(base).items() if not path.endswith(".tmp")}
    assert whole == tree(tmp_path / "whole")


# --- Claude Code --------------------------------------------------------------------------------


def test_all_that_a_subagent_says_is_in_its_resume(bare: Lemming, source: Path, base: Path) -> None:
    taken(bare, source, base)
    keys, body = said(CLAUDE, ".claude/agents/weather-agent.md")
    found = resume_in(base, "weather-agent")
    mapped = {"name": found["name"], "model": found["model"]["key"], "maxTurns": found["turn"]["max_steps"],
              "skills": found["skills"]}  # fmt: skip
    keys["mcpServers"][1]["jira"]["env"]["JIRA_TOKEN"] = "(left out)"
    assert {**mapped, **found["x-claude"]} == keys
    assert found["instructions"] == body


def test_tools_teams_and_guides_are_ours(bare: Lemming, source: Path, base: Path) -> None:
    ran = taken(bare, source, base)
    found = resume_in(base, "weather-agent")
    assert {"file_read", "file_edit", "shell"} <= {*found["permissions"]["tools"]}
    assert "file_write" not in found["permissions"]["tools"]
    assert found["team"] == {"ask": ["code-reviewer"]}
    assert found["permissions"]["read_outboxes"] == ["human", "code-reviewer"]
    assert resume_in(base, "code-reviewer")["permissions"]["read_outboxes"] == ["human", "weather-agent"]
    assert found["guides"] is True
    assert (base / "AGENTS.md").read_text() == CLAUDE["CLAUDE.md"]
    for told in (
        "not imported: settings.json",
        "Frobnicate",
        "ghost",
        "mcp.chrome.navigate",
        "hooks",
        "broken.md: line 3",
        "README.md",
    ):
        assert told in ran.err
    assert ran.err.count("broken.md") == 1


def test_models_become_keys_beside_those_that_are_there(bare: Lemming, source: Path, base: Path) -> None:
    taken(bare, source, base)
    models = json.loads((base / "config/models.json").read_text())
    assert models["sonnet"]["provider"] == models["claude-opus-4-6"]["provider"] == "anthropic"
    assert models["claude-opus-4-6"]["model"] == "claude-opus-4-6"
    assert models["llama"]["provider"] == "ollama"
    lines = (base / "config/models.json").read_text().splitlines()
    assert '  "human": {"provider": "human"},' in lines  # as a person has laid it out


def test_in_its_own_folder_skills_stay_where_they_lie(bare: Lemming, base: Path) -> None:
    make_org(base, resume("human", model={"key": "human"}), models={"human": {"provider": "human"}})
    made(base, CLAUDE)
    assert bare("-C", str(base), "import", "claude", str(base)).status == 0
    found = resume_in(base, "weather-agent")
    assert found["skills"] == [".claude/skills/weather-fetcher"]
    assert not (base / "skills").exists()
    assert "weather-fetcher: Fetch it" in bare("-C", str(base), "prompt", "weather-agent").out


def test_another_guide_and_another_model_are_left_as_they_are(bare: Lemming, source: Path, base: Path) -> None:
    make_org(base, resume("human", model={"key": "human"}), models={"sonnet": {"provider": "ollama", "model": "x"}})
    (base / "AGENTS.md").write_text("Ours.\n")
    ran = bare("-C", str(base), "import", "claude", str(made(source, CLAUDE)))
    assert ran.status == 0
    assert (base / "AGENTS.md").read_text() == "Ours.\n"
    assert json.loads((base / "config/models.json").read_text())["sonnet"] == {"provider": "ollama", "model": "x"}
    assert "AGENTS.md: already exists with other content" in ran.err
    assert '"sonnet" already exists for another model' in ran.err


# --- AGENTS.md -----------------------------------------------------------------------------------


def test_a_project_with_agents_md_alone_is_a_guide_that_agents_can_read(
    bare: Lemming, source: Path, base: Path
) -> None:
    made(source, {"AGENTS.md": "# Rules\nUse tabs.\n", "CLAUDE.md": "See AGENTS.md.\n"})
    ran = bare("import", "claude", str(source), "--into", str(base))
    assert ran.status == 0, ran.err
    assert (base / "AGENTS.md").read_text() == "# Rules\nUse tabs.\n"
    assert 'with `"guides": true` in its resume' in ran.err
    make_org(base, resume("ada", guides=True))
    assert "Use tabs." in bare("-C", str(base), "prompt", "ada").out


def test_agents_md_comes_before_claude_md_and_every_agent_reads_it(bare: Lemming, source: Path, base: Path) -> None:
    made(source, {**CLAUDE, "AGENTS.md": "Use spaces.\n"})
    assert bare("import", "claude", str(source), "--into", str(base)).status == 0
    assert (base / "AGENTS.md").read_text() == "Use spaces.\n"
    assert "Use spaces." in bare("-C", str(base), "prompt", "plain").out


@pytest.mark.parametrize("kind", ["openclaw", "company"])
def test_an_importer_that_left_says_what_to_do_instead(bare: Lemming, source: Path, kind: str) -> None:
    ran = bare("import", kind, str(source))
    assert ran.status == 2
    assert "lemming agents new NAME --instructions" in ran.err


# --- what people do, and what strangers do ----------------------------------------------------------


def test_a_folder_with_nothing_in_it_is_told_so(bare: Lemming, source: Path, base: Path) -> None:
    source.mkdir()
    ran = bare("import", "claude", str(source), "--into", str(base))
    assert ran.status == 2
    assert "no agents and no AGENTS.md found" in ran.err
    assert not base.exists()
    assert "the folder does not exist" in bare("import", "claude", str(source / "gone"), "--into", str(base)).err


HOSTILE = {
    ".claude/agents/../x.md": "",
    ".claude/agents/a.md": "---\nname: ../../evil\ndescription: x\n---\n" + "x" * 300_000,
    ".claude/agents/b.md": "---\nname: b\ndescription: x\ntools: &a [x]\nskills: *a\n---\n",
    ".claude/agents/c.md": "---\nname: ../../evil\ntools: {a: 1}\nmaxTurns: -3\nmodel: [x]\n---\nbody",
    ".claude/agents/d.md": "---\nname: \u0417\u043e\u044f\ndescription: d\n---\nbody",
    ".claude/agents/e.md": "---\nname: human\ndescription: d\n---\nbody",
}


def test_no_source_reaches_further_than_its_agents(bare: Lemming, source: Path, base: Path) -> None:
    made(source, HOSTILE)
    (source / ".claude/agents/link.md").symlink_to("/etc/passwd")
    (source / ".claude/skills").symlink_to("/etc")
    (source / "AGENTS.md").symlink_to("/etc/passwd")
    before = {path for path in source.parent.rglob("*") if base not in path.parents}
    ran = bare("import", "claude", str(source), "--into", str(base))
    assert ran.status in (0, 2), ran.err
    assert "Traceback" not in ran.err
    assert {path for path in source.parent.rglob("*") if base not in (path, *path.parents)} == before
    assert not any(b"root:" in raw for raw in tree(base).values())
    if ran.status == 0:
        assert bare("-C", str(base), "validate").status == 0
