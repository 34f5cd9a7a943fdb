"""`lemming init --here`: an organisation of workers beside a git repository, made of what is there.

Nothing in the repository changes, and no program of it runs. The repository is untrusted: texts are taken for prompts of
agents, and nothing that would start a program is taken.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lemming.commands.terminal import one_line, print_columns, print_data, print_notice
from lemming.import_export.import_source import ImportSource
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty, parse, to_line
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.libraries.wording import format_count
from lemming.operations.model_prices import find_price

MAX_COST_USD, PRINTED_CHARS = 2, 220
FIRST_TASK = "Find one small bug or missing test in this repository, and mend it."


GUIDES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md")
AGENTS, SKILLS, SETTINGS = ".claude/agents", ".claude/skills", (".claude/settings.json", ".claude/settings.local.json")
OTHER_SETTINGS = (".codex", ".gemini", ".opencode", ".pi", "opencode.json")
_UNTRUSTED = "not enabled: a repository's own settings are untrusted"


class SurveyItem(NamedTuple):
    """Something that was found: its name, and what became of it."""

    name: str
    result: str


class RepositorySurvey(NamedTuple):
    """The texts that are taken, and a line about each thing that was found.

    `guide`: text for all prompts. `roles`: instructions by agent, "triager" or "reviewer". `skills`: description by path.
    """

    guide: str
    roles: Mapping[str, str]
    skills: Mapping[str, str]
    items: list[SurveyItem]


class FirstOrg(NamedTuple):
    """An organisation to be written: files by path, and what is printed about it."""

    base: Path
    files: dict[str, bytes]
    items: list[SurveyItem]
    agents: list[tuple[str, str, str]]
    steps: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return what is printed as JSON values."""
        items = [item._asdict() for item in self.items]
        agents = [{"agent": name, "model": model, "does": does} for name, model, does in self.agents]
        return {"org": str(self.base), "files": [*self.files], "found": items, "agents": agents, "next": self.steps}


def plan_first_org(folder: Path | None, user_folder: Path) -> FirstOrg:
    """Return the organisation for the repository around `user_folder`.

    `folder`: where to create it; None: beside the repository. Raises `UsageError` for a folder in the repository,
    `RepositoryError` and `ConfigError` for a repository that workers cannot use.
    """
    start = require_fact("workers.describe_start")(user_folder)
    # Installed and with a key if possible, else installed, else with a key.
    harness = max(start.harnesses, key=lambda harness: (bool(harness.version), harness.has_key))
    name = start.folder.name.removesuffix(".git") or "repository"
    base = Path(os.path.abspath((folder or start.folder.parent / f"{name}-agents").expanduser()))
    for top in {start.folder, start.work_tree}:
        if base.resolve().is_relative_to(top):
            hint = f"leave the folder out for {start.folder.parent / f'{name}-agents'}"
            raise UsageError("the organisation must be outside of the repository", where=str(base), hint=hint)
    survey, vendor = survey_repository(start.work_tree), harness.vendor
    coder: dict[str, Any] = {"provider": harness.provider, "model": vendor.model}
    if find_price(ModelEntry(provider=harness.provider, model=vendor.model)):  # a limit in dollars needs a price
        coder["options"] = {"max_cost_usd": MAX_COST_USD}
    cheap = vendor.hosted_model
    default = {"provider": vendor.hosted_provider, "model": cheap}
    models = {"default": default, "coder": coder, "human": {"provider": "human"}}
    files = _build_files(name, base, start, survey, models)
    problem = start.sandbox_problem
    sandbox = f"missing, and no worker starts without it: {problem}" if problem else "taken: each worker runs in it"
    items = [
        *_describe_repository(start),
        *survey.items,
        *_describe_machine(start.harnesses, harness),
        SurveyItem("sandbox", sandbox),
    ]
    limit = f", at most ${MAX_COST_USD} a run" if coder.get("options") else ""
    agents = [
        ("triager", cheap, "sorts what you send: answers it, or hands one clear task to coder"),
        ("coder", f"{harness.provider} {coder['model']}{limit}", "works in a private clone; its reply is a patch"),
        ("reviewer", cheap, "judges each patch before you see it"),
        ("human", "you", "approve or deny each merge into lemming/coder; nothing is merged without you"),
    ]
    return FirstOrg(base, files, items, agents, [*_list_steps(base, harness, has_sandbox=not problem)])


def _build_files(
    name: str, base: Path, repository: Any, survey: RepositorySurvey, models: dict[str, Any]
) -> dict[str, bytes]:
    """Return the settings and the resumes of the four agents, from `first_org.json`."""
    text = Path(__file__).with_name("first_org.json").read_text("utf-8")
    document = parse(text.replace("{name}", to_line(name)[1:-1]))
    files, workspace = {}, {"repository": os.path.relpath(repository.folder, base.resolve())}
    if repository.branch:
        workspace["base"] = repository.branch
    skills = "".join(f"\n- {file}: {description}" for file, description in survey.skills.items())
    skill_list = f"\n\nThe repository has these guides. Read one when your task needs it:{skills}" if skills else ""
    for resume in document["agents"]:
        agent, instructions = resume["name"], resume.pop("instructions")
        if agent == "coder":
            resume["workspace"], instructions = workspace, instructions + skill_list
        if survey.guide and agent in ("coder", "reviewer"):
            resume["guides"] = True
        own_text = f"\n\n{survey.roles[agent]}" if agent in survey.roles else ""
        files[f"agents/{agent}/resume.json"] = dump_pretty({**resume, "instructions": instructions + own_text})
    files |= {"config/models.json": dump_pretty(models), "config/org.json": dump_pretty(document["settings"])}
    return files | ({"AGENTS.md": survey.guide.encode()} if survey.guide else {})


def _describe_repository(repository: Any) -> Iterator[SurveyItem]:
    branch = f"branch {repository.branch}" if repository.branch else "no branch (detached HEAD)"
    state = f"taken: {branch}, commit {repository.commit[:12]}; nothing in it was changed"
    yield SurveyItem(str(repository.work_tree), state)
    if repository.folder != repository.work_tree:
        yield SurveyItem(str(repository.folder), "taken: the main work tree, since this is a linked one")
    if repository.changes:
        yield SurveyItem(format_count(repository.changes, "changed file"), "not taken: workers see what is committed")
    if repository.has_stash:
        text = 'a worker could read it; "copy": "full" in the workspace of coder keeps it away'
        yield SurveyItem("the stash", text)


def _describe_machine(harnesses: list[Any], chosen: Any) -> Iterator[SurveyItem]:
    for harness in harnesses:
        if harness.version:
            is_chosen = harness.provider == chosen.provider
            result = "taken: the harness of coder" if is_chosen else "not taken: one is enough"
            yield SurveyItem(f"{harness.program} {harness.version}", result)
    if not chosen.version:
        yield SurveyItem(chosen.program, f"missing: no harness is installed. {chosen.install}")
    for variable in dict.fromkeys(harness.vendor.key_variable for harness in harnesses):
        is_chosen = variable == chosen.vendor.key_variable
        if any(harness.has_key for harness in harnesses if harness.vendor.key_variable == variable):
            result = "set: models are called with it; the sandbox never sees it" if is_chosen else "set, not needed"
            yield SurveyItem(variable, result)
        elif is_chosen:
            yield SurveyItem(variable, "not set: no model can be called")


def _list_steps(base: Path, harness: Any, *, has_sandbox: bool) -> Iterator[str]:
    """Yield the next commands: what is missing first."""
    yield f"cd {shlex.quote(os.path.relpath(base))}"
    if not harness.version:
        yield str(harness.install)
    if not has_sandbox and sys.platform == "linux":
        yield "sudo apt install bubblewrap"
    if not harness.has_key:
        yield f"export {harness.vendor.key_variable}=..."
    yield f'lemming ask triager "{FIRST_TASK}"'
    yield "lemming waiting"
    yield "lemming approve ID"


def print_first_org(org: FirstOrg) -> None:
    """Print what was found, the agents, and the next three commands."""
    print_data("found")
    print_columns([[f"  {item.name}", one_line(item.result, PRINTED_CHARS)] for item in org.items])
    print_data(f"\nagents, in {org.base}")
    print_columns([[f"  {name}", model, does] for name, model, does in org.agents])
    print_notice("next:")
    for step in org.steps[:3]:
        print_notice(f"  {step}")
    print_notice("then: `lemming validate` names what is missing, `lemming doctor` shows this machine")


def survey_repository(folder: Path) -> RepositorySurvey:
    """Read the files for coding agents in a work tree. Links, too large files and broken files are only named."""
    source, items = ImportSource(folder), list[SurveyItem]()
    guide, roles = _read_guide(source, items), _read_roles(source, items)
    skills = _read_skills(source, items)
    if (document := _read_json(source, ".mcp.json", items)) is not None:
        servers = document.get("mcpServers")
        names = ", ".join(servers) if isinstance(servers, dict) else "none"
        items.append(SurveyItem(".mcp.json", f"{_UNTRUSTED}. Servers: {names}"))
    _list_settings(source, items)
    items += (SurveyItem(remark.file, f"not taken: {remark.message}") for remark in source.remarks)
    return RepositorySurvey(guide, roles, skills, items)


def _read_guide(source: ImportSource, items: list[SurveyItem]) -> str:
    guide, guide_file = "", ""
    for file in GUIDES:
        if not (text := source.read_text(file)):
            continue
        if guide:
            items.append(SurveyItem(file, f"not taken: {guide_file} is"))
        else:
            guide, guide_file = text, file
            items.append(SurveyItem(file, "taken: a copy is in the prompts of coder and reviewer; read it"))
    return guide


def _read_roles(source: ImportSource, items: list[SurveyItem]) -> dict[str, str]:
    roles: dict[str, str] = {}
    for path in source.walk_files(AGENTS):
        file, document = f"{AGENTS}/{path}", source.read_markdown(f"{AGENTS}/{path}") if path.endswith(".md") else None
        if document is None:
            continue
        name = path.rpartition("/")[2].lower()
        role = "reviewer" if "review" in name else "triager" if "triag" in name else ""
        if role and document[1] and role not in roles:
            roles[role] = document[1]
            items.append(SurveyItem(file, f"taken: its text is in the instructions of {role}; read it"))
        else:
            items.append(SurveyItem(file, f"not taken: `lemming import claude {source.folder}` makes it an agent"))
    return roles


def _read_skills(source: ImportSource, items: list[SurveyItem]) -> dict[str, str]:
    skills: dict[str, str] = {}
    for name in source.list_folder(SKILLS)[0]:
        file = f"{SKILLS}/{name}/SKILL.md"
        if (document := source.read_markdown(file)) is not None:
            skills[file] = " ".join(str(document[0].get("description") or name).split())[:200]
            items.append(SurveyItem(file, "taken: coder is told of it, and reads it in its clone"))
    return skills


def _list_settings(source: ImportSource, items: list[SurveyItem]) -> None:
    for file in SETTINGS:
        if (document := _read_json(source, file, items)) is None:
            continue
        hooks = document.get("hooks")
        events = f". Hooks: {', '.join(hooks)}" if isinstance(hooks, dict) and hooks else ""
        other_keys = [key for key in document if key != "hooks"]
        keys = f". {format_count(len(other_keys), 'other key')}: {', '.join(other_keys)}" if other_keys else ""
        items.append(SurveyItem(file, f"{_UNTRUSTED}{events}{keys}"))
    folders, files = source.list_folder()
    items += (SurveyItem(name, _UNTRUSTED) for name in OTHER_SETTINGS if name in (*folders, *files))


def _read_json(source: ImportSource, file: str, items: list[SurveyItem]) -> dict[str, Any] | None:
    if (raw := source.read_bytes(file)) is None:
        return None
    try:
        document = parse(raw)
    except JsonProblem as problem:
        items.append(SurveyItem(file, f"{_UNTRUSTED}; it is no JSON: {problem.message}"))
        return None
    return document if isinstance(document, dict) else {}
