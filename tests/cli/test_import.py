"""`lemming import`: what other programs say of their agents is in the resumes, and none of it is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sources import CLAUDE, COMPANY, OPENCLAW, made
from terminal import Lemming, Ran

from lemming.import_export.openclaw_importer import load_json5
from lemming.libraries.front_matter import parse_front_matter, parse_yaml, split_front_matter
from lemming.testing import Crash, crash_at, make_org, resume, tree

SOURCES = {"claude": CLAUDE, "company": COMPANY, "openclaw": OPENCLAW}


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


def taken(bare: Lemming, kind: str, source: Path, base: Path) -> Ran:
    """Import a source of a kind into a new organisation."""
    ran = bare("import", kind, str(made(source, SOURCES[kind])), "--into", str(base))
    assert ran.status == 0, ran.err
    return ran


@pytest.mark.parametrize("kind", SOURCES)
def test_what_was_written_is_listed_and_valid(bare: Lemming, source: Path, base: Path, kind: str) -> None:
    ran = taken(bare, kind, source, base)
    assert sorted(ran.out.splitlines()) == sorted(str(path) for path in base.rglob("*") if path.is_file())
    assert bare("-C", str(base), "validate").status == 0
    assert bare("-C", str(base), "plan").status == 0


@pytest.mark.parametrize("kind", SOURCES)
def test_a_dry_run_tells_the_same_and_writes_nothing(bare: Lemming, source: Path, base: Path, kind: str) -> None:
    dry = bare("import", kind, str(made(source, SOURCES[kind])), "--into", str(base), "--dry-run")
    assert not base.exists()
    assert dry.out == taken(bare, kind, source, base).out


@pytest.mark.parametrize("kind", SOURCES)
def test_no_secret_of_the_source_is_kept(bare: Lemming, source: Path, base: Path, kind: str) -> None:
    taken(bare, kind, source, base)
    assert not any(b"not-to-be-kept" in raw for raw in tree(base).values())


@pytest.mark.parametrize("kind", SOURCES)
def test_nothing_is_written_over(bare: Lemming, source: Path, base: Path, kind: str) -> None:
    taken(bare, kind, source, base)
    before = tree(base)
    ran = bare("import", kind, str(source), "--into", str(base))
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
    taken(bare, "claude", source, base)
    keys, body = said(CLAUDE, ".claude/agents/weather-agent.md")
    found = resume_in(base, "weather-agent")
    mapped = {"name": found["name"], "model": found["model"]["key"], "maxTurns": found["turn"]["max_steps"],
              "skills": found["skills"]}  # fmt: skip
    keys["mcpServers"][1]["jira"]["env"]["JIRA_TOKEN"] = "(left out)"
    assert {**mapped, **found["x-claude"]} == keys
    assert found["instructions"] == body


def test_tools_teams_and_guides_are_ours(bare: Lemming, source: Path, base: Path) -> None:
    ran = taken(bare, "claude", source, base)
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
    taken(bare, "claude", source, base)
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


# --- a company -----------------------------------------------------------------------------------


def test_all_that_a_company_says_is_in_its_resumes(bare: Lemming, source: Path, base: Path) -> None:
    taken(bare, "company", source, base)
    sidecar = parse_yaml(COMPANY[".paperclip.yaml"])
    ceo, cto, staff = (resume_in(base, name) for name in ("ceo", "cto", "staff-engineer"))
    for name, found in (("ceo", ceo), ("cto", cto), ("staff-engineer", staff)):
        keys, body = said(COMPANY, f"agents/{name}/AGENTS.md")
        assert found["x-company"]["agent"] == keys
        assert found["x-company"].get("sidecar") == sidecar["agents"].get(name)
        assert found["instructions"].startswith(body)
    assert ceo["x-company"]["company"] == said(COMPANY, "COMPANY.md")[0]
    assert ceo["x-company"]["company_sidecar"] == {key: sidecar[key] for key in ("schema", "sidebar")}
    keys, body = said(COMPANY, "teams/engineering/TEAM.md")
    assert cto["x-company"]["teams"] == {"engineering": {**keys, "text": body}}
    task = ceo["x-company"]["tasks"]["monday-review"]
    assert task["routine"] == sidecar["routines"]["monday-review"]
    assert cto["x-company"]["tasks"]["onboard"]["text"] == "Map the code."
    assert cto["x-company"]["projects"]["q2"]["owner"] == "cto"
    for file in ("HANDOFFS.md", "WAKE-CHECKLIST.md"):
        assert (base / "agents/cto/workspace" / file).read_text() == COMPANY[f"agents/cto/{file}"]


def test_who_reports_to_whom_is_who_may_ask_whom(bare: Lemming, source: Path, base: Path) -> None:
    taken(bare, "company", source, base)
    ceo, cto, staff = (resume_in(base, name) for name in ("ceo", "cto", "staff-engineer"))
    assert (ceo["team"], cto["team"]) == ({"ask": ["cto"]}, {"ask": ["staff-engineer"]})
    assert ceo["permissions"]["read_outboxes"] == ["human", "cto"]
    assert cto["permissions"]["read_outboxes"] == ["ceo", "staff-engineer"]
    assert "cto" in staff["permissions"]["read_outboxes"]


def test_routines_and_heartbeats_are_schedules(bare: Lemming, source: Path, base: Path) -> None:
    taken(bare, "company", source, base)
    ceo, staff = resume_in(base, "ceo"), resume_in(base, "staff-engineer")
    assert (ceo["schedule"]["cron"], ceo["schedule"]["timezone"]) == ("0 9 * * 1", "America/Chicago")
    assert "Monday Review\nReview the week." in ceo["instructions"]
    assert staff["schedule"]["cron"] == "0 */12 * * *"


def test_what_a_person_must_fill_in_is_told(bare: Lemming, source: Path, base: Path) -> None:
    ran = taken(bare, "company", source, base)
    for told in ("OPENAI_API_KEY", "GH_TOKEN", '"paperclip" is not part', "example-provider/example-model"):
        assert told in ran.err
    assert "Build and ship software products" in (base / "AGENTS.md").read_text()


# --- OpenClaw ------------------------------------------------------------------------------------


def test_all_that_a_workspace_says_is_taken(bare: Lemming, source: Path, base: Path) -> None:
    taken(bare, "openclaw", source, base)
    found, config = resume_in(base, "clawd"), load_json5(OPENCLAW["openclaw.json"])
    texts = [OPENCLAW[f"workspace/{name}"].strip() for name in ("SOUL.md", "AGENTS.md", "USER.md")]
    places = [found["instructions"].index(text) for text in texts]
    assert places == sorted(places)
    assert found["x-openclaw"]["entry"] == {**config["agents"]["list"][0], "apiKey": "(left out)"}
    assert found["x-openclaw"]["defaults"] == {"model": config["agents"]["defaults"]["model"]}
    identity = {"name": "Clawd", "creature": "lobster", "vibe": "calm: kind", "emoji": "\U0001f99e"}
    assert found["x-openclaw"]["identity"] == identity
    assert json.loads((base / "agents/clawd/memory/memory.json").read_text())["value"] == "Peter likes tea.\n"
    assert (base / "agents/clawd/workspace/memory/2026-01-01.md").read_text() == "Met Peter.\n"
    assert "poll: Poll a feed" in bare("-C", str(base), "prompt", "clawd").out


def test_a_heartbeat_is_a_schedule_within_its_hours(bare: Lemming, source: Path, base: Path) -> None:
    taken(bare, "openclaw", source, base)
    schedule = resume_in(base, "clawd")["schedule"]
    assert (schedule["cron"], schedule["timezone"]) == ("*/30 8-21 * * *", "America/New_York")
    assert resume_in(base, "work")["schedule"] == {"run_every_n_ticks": 1, "wake": "changed"}


def test_models_tools_and_context_are_ours(bare: Lemming, source: Path, base: Path) -> None:
    ran = taken(bare, "openclaw", source, base)
    found = resume_in(base, "clawd")
    assert found["model"] == {"key": "claude-opus-4-6", "fallback": ["deepseek-deepseek-v3.2"]}
    assert {"file_read", "shell"} <= {*found["permissions"]["tools"]}
    assert [each["file"] for each in found["context"]] == ["./workspace/TOOLS.md", "./workspace/HEARTBEAT.md"]
    assert "canvas/" in ran.err
    assert (resume_in(base, "work")["title"], resume_in(base, "work")["model"]["key"]) == ("Worker", "gpt-5-mini")


def test_one_workspace_alone_is_taken_with_the_settings_above_it(bare: Lemming, source: Path, base: Path) -> None:
    made(source, OPENCLAW)
    ran = bare("import", "openclaw", str(source / "workspace"), "--into", str(base), "--json")
    assert ran.objects[0]["agents"] == ["clawd"]
    assert resume_in(base, "clawd")["x-openclaw"]["entry"]["id"] == "main"


# --- what people do, and what strangers do ----------------------------------------------------------


@pytest.mark.parametrize("kind", SOURCES)
def test_a_folder_with_nothing_in_it_is_told_so(bare: Lemming, source: Path, base: Path, kind: str) -> None:
    source.mkdir()
    ran = bare("import", kind, str(source), "--into", str(base))
    assert ran.status == 2
    assert "no agents found" in ran.err
    assert not base.exists()
    assert "the folder does not exist" in bare("import", kind, str(source / "gone"), "--into", str(base)).err


HOSTILE = {
    ".claude/agents/../x.md": "",
    ".claude/agents/a.md": "---\nname: ../../evil\ndescription: x\n---\n" + "x" * 300_000,
    ".claude/agents/b.md": "---\nname: b\ndescription: x\ntools: &a [x]\nskills: *a\n---\n",
    ".claude/agents/c.md": "---\nname: ../../evil\ntools: {a: 1}\nmaxTurns: -3\nmodel: [x]\n---\nbody",
    ".claude/agents/d.md": "---\nname: \u0417\u043e\u044f\ndescription: d\n---\nbody",
    ".claude/agents/e.md": "---\nname: human\ndescription: d\n---\nbody",
    "COMPANY.md": "---\ngoals: 5\nrequirements: [x]\n---\n",
    "agents/..../AGENTS.md": "---\nname: x\n---\n",
    "agents/loop/AGENTS.md": "---\nreportsTo: loop\nskills: {a: b}\n---\nround",
    "agents/lost/AGENTS.md": "---\nreportsTo: [nobody]\nslug: ../lost\n---\nlost",
    "teams/t/TEAM.md": "---\nmanager: 5\nincludes: 7\n---\n",
    ".paperclip.yaml": "agents: [1]\nroutines: {a: {triggers: [5, {kind: schedule, cronExpression: x}]}}",
    "tasks/a/TASK.md": "---\nassignee: loop\n---\ntask",
    "openclaw.json": "{agents: {list: [5, {id: {}, heartbeat: 7, tools: [x], model: {primary: 5}}]}}",
    "workspace/SOUL.md": "soul",
    "workspace/IDENTITY.md": "- **Name:** ../../etc\n",
    "workspace/MEMORY.md": "m" * 256_000,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_no_source_reaches_further_than_its_agents(bare: Lemming, source: Path, base: Path, kind: str) -> None:
    made(source, HOSTILE)
    (source / ".claude/agents/link.md").symlink_to("/etc/passwd")
    (source / "agents/loop/HANDOFFS.md").symlink_to("/etc/passwd")
    (source / "workspace/USER.md").symlink_to("/etc/passwd")
    (source / "workspace/skills").symlink_to("/etc")
    before = {path for path in source.parent.rglob("*") if base not in path.parents}
    ran = bare("import", kind, str(source), "--into", str(base))
    assert ran.status in (0, 2), ran.err
    assert "Traceback" not in ran.err
    assert {path for path in source.parent.rglob("*") if base not in (path, *path.parents)} == before
    assert not any(b"root:" in raw for raw in tree(base).values())
    if ran.status == 0:
        assert bare("-C", str(base), "validate").status == 0
