"""Import of an agent company (`COMPANY.md`, `agents/*/AGENTS.md`).

Unmapped keys are stored under `x-company`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from lemming.import_export.import_source import ImportResult, ImportSource, ImportTarget
from lemming.import_export.importer_helpers import (
    build_resume,
    get_nested_object,
    import_skills,
    join_team,
    map_model,
    report_skipped,
    split_words,
    to_agent_name,
    to_cron,
    to_schedule,
)
from lemming.kernel.base.paths import GUIDE
from lemming.libraries.front_matter import InvalidFrontMatter, parse_yaml

SIDECAR = ".paperclip.yaml"
_SIDECAR_LIMIT_CHARS = 512 << 10
_AGENT_FILE = "AGENTS.md"
_KNOWN_FOLDERS = ("agents", "skills", "teams", "projects", "tasks")
_KNOWN_FILES = ("COMPANY.md", "README.md", "LICENSE")


def import_company(source: ImportSource, target: ImportTarget, result: ImportResult) -> None:
    """Import the agents of a company with skills, goals, recurring tasks and schedules."""
    company = source.read_markdown("COMPANY.md") or ({}, "")
    sidecar = _load_sidecar(source, result)
    skills = import_skills(source, "skills", target, result)
    _import_guide(company, result)
    for folder in source.list_folder("agents")[0]:
        _import_agent(source, folder, target, result, get_nested_object(sidecar, "agents", folder), skills)
    _link_managers(result)
    _import_teams(source, result)
    _import_tasks(source, result, sidecar)
    other_sections = {key: value for key, value in sidecar.items() if key not in ("agents", "routines")}
    for resume in result.resumes.values():
        if not _find_manager(resume):
            resume["permissions"]["read_outboxes"][:0] = target.people
            resume["x-company"] |= {
                "company": company[0],
                **({"company_sidecar": other_sections} if other_sections else {}),
            }
    folders, files = source.list_folder()
    skipped = [f"{name}/" for name in folders if name not in _KNOWN_FOLDERS and not name.startswith(".")]
    skipped += [name for name in files if name not in _KNOWN_FILES and not name.startswith(".")]
    report_skipped(result, "", skipped)
    for secret in split_words(get_nested_object(company[0], "requirements").get("secrets")):
        result.add_remark("COMPANY.md", f"set the environment variable {secret} where LeMMing runs")


def _load_sidecar(source: ImportSource, result: ImportResult) -> dict[str, Any]:
    text = source.read_text(SIDECAR)
    if text is None:
        return {}
    try:
        document = parse_yaml(text, _SIDECAR_LIMIT_CHARS)
    except InvalidFrontMatter as error:
        result.add_remark(SIDECAR, f"line {error.line}: {error}: left out")
        return {}
    return document if isinstance(document, dict) else {}


def _import_guide(company: tuple[dict[str, Any], str], result: ImportResult) -> None:
    header, body = company
    goals = "\n".join(
        f"- {goal}" for goal in split_words(header.get("goals")) if not isinstance(header.get("goals"), str)
    )
    parts = [str(header.get("description") or ""), body, f"Goals:\n{goals}" if goals else ""]
    if text := "\n\n".join(filter(None, parts)):
        result.optional[GUIDE] = f"# {header.get('name') or 'The company'}\n\n{text}\n".encode()


def _import_agent(
    source: ImportSource,
    folder: str,
    target: ImportTarget,
    result: ImportResult,
    sidecar: dict[str, Any],
    skills: dict[str, str],
) -> None:
    file = f"agents/{folder}/{_AGENT_FILE}"
    document = source.read_markdown(file)
    if document is None:
        return
    header, body = document
    name = to_agent_name(str(header.get("slug") or folder))
    if not name or name in result.resumes:
        result.add_remark(file, "has no valid name for an agent: left out")
        return
    config = get_nested_object(get_nested_object(sidecar, "adapter"), "config")
    requested = [
        PurePosixPath(entry).parent.name if entry.endswith(".md") else entry
        for entry in split_words(header.get("skills"))
    ]
    for missing in (entry for entry in requested if entry not in skills):
        result.add_remark(file, f'skill "{missing}" is not part of the company; put it into skills/')
    workspace_files = _import_workspace_files(source, folder, name, result)
    docs = [PurePosixPath(entry).name for entry in split_words(header.get("docs"))]
    sections = [
        f"# {doc}\n{result.files[f'agents/{name}/workspace/{doc}'].decode()}" for doc in docs if doc in workspace_files
    ]
    for secret in get_nested_object(sidecar, "inputs", "env"):
        result.add_remark(SIDECAR, f"set the environment variable {secret} of {name} where LeMMing runs")
    if workspace_files:
        result.add_remark(file, f"copied to the workspace, read with file_read: {', '.join(workspace_files)}")
    result.resumes[name] = build_resume(
        name,
        title=str(header.get("title") or header.get("name") or name),
        instructions="\n\n".join([body or f"You are {header.get('name') or name}.", *sections]),
        key=map_model(str(config.get("model") or ""), result, file),
        tools=[tool for tool in ("file_read", "file_list") if workspace_files and tool in target.tools],
        skills=[entry for entry in requested if entry in skills],
        guides=GUIDE in result.optional and not target.is_in_place,
        x_company={"agent": header, **({"sidecar": sidecar} if sidecar else {})},
    )
    _import_heartbeat(name, get_nested_object(sidecar, "runtime", "heartbeat"), result)


def _import_workspace_files(source: ImportSource, folder: str, name: str, result: ImportResult) -> list[str]:
    """Import the texts in an agent's folder besides the agent file, and return the file names."""
    imported = []
    folders, files = source.list_folder(f"agents/{folder}")
    skipped = [f"{entry}/" for entry in folders] + [entry for entry in files if not entry.endswith(".md")]
    report_skipped(result, f"agents/{folder}", skipped)
    for file in files:
        text = source.read_text(f"agents/{folder}/{file}") if file.endswith(".md") and file != _AGENT_FILE else None
        if text is not None:
            result.files[f"agents/{name}/workspace/{file}"] = text.encode()
            imported.append(file)
    return imported


def _import_heartbeat(name: str, heartbeat: dict[str, Any], result: ImportResult) -> None:
    seconds = heartbeat.get("intervalSec")
    if heartbeat.get("enabled") and isinstance(seconds, int) and seconds > 0:
        cron = to_cron(seconds)
        result.resumes[name]["schedule"], _ = to_schedule(cron, "UTC")
        result.add_remark(
            SIDECAR, f'{name}: heartbeat every {seconds} s becomes "{cron}"; it answers only at these times'
        )


def _link_managers(result: ImportResult) -> None:
    """Let managers ask their reports, and let both read each other."""
    for name, resume in result.resumes.items():
        manager_text = _find_manager(resume)
        manager = to_agent_name(manager_text)
        if manager in result.resumes and manager != name:
            join_team(result, manager, [name])
        elif manager_text:
            result.add_remark(f"agents/{name}/{_AGENT_FILE}", f"reports to {manager_text}, which was not imported")


def _import_teams(source: ImportSource, result: ImportResult) -> None:
    for folder in source.list_folder("teams")[0]:
        file = f"teams/{folder}/TEAM.md"
        header, body = source.read_markdown(file) or ({}, "")
        manager = _agent_from_path(header.get("manager"))
        if manager not in result.resumes:
            result.add_remark(file, "its manager was not imported: left out")
            continue
        members = [
            _agent_from_path(member)
            for member in split_words(header.get("includes"))
            if member.endswith(f"/{_AGENT_FILE}")
        ]
        unassigned = [
            member
            for member in members
            if member in result.resumes and not _find_manager(result.resumes[member]) and member != manager
        ]
        join_team(result, manager, unassigned)
        teams = result.resumes[manager]["x-company"].setdefault("teams", {})
        teams[folder] = {**header, **({"text": body} if body else {})}


def _find_manager(resume: dict[str, Any]) -> str:
    """Return the manager named in an agent's file."""
    return str(resume["x-company"]["agent"].get("reportsTo") or "")


def _agent_from_path(path: Any) -> str:
    """Return the agent of an `AGENTS.md` path."""
    return to_agent_name(PurePosixPath(path).parent.name) if isinstance(path, str) else ""


def _import_tasks(source: ImportSource, result: ImportResult, sidecar: dict[str, Any]) -> None:
    for path in source.walk_files(""):
        *_, folder, file = ("", *path.split("/"))
        document = source.read_markdown(path) if file in ("TASK.md", "PROJECT.md") else None
        if document:
            _import_task(path, folder, *document, result, get_nested_object(sidecar, "routines", folder))


def _import_task(
    path: str, slug: str, header: dict[str, Any], body: str, result: ImportResult, routine: dict[str, Any]
) -> None:
    """Store a task or project with the responsible agent. A recurring task becomes a schedule."""
    is_task = path.endswith("TASK.md")
    name = to_agent_name(str(header.get("assignee" if is_task else "owner") or ""))
    if name not in result.resumes:
        result.add_remark(path, "its agent was not imported: left out")
        return
    resume = result.resumes[name]
    record = {**header, **({"text": body} if body else {}), **({"routine": routine} if routine else {})}
    resume["x-company"].setdefault("tasks" if is_task else "projects", {})[slug] = record
    trigger: dict[str, Any] = next(
        (
            candidate
            for candidate in routine.get("triggers") or []
            if get_nested_object(candidate).get("kind") == "schedule"
        ),
        {},
    )
    cron, problem = str(trigger.get("cronExpression") or ""), ""
    if is_task and cron and "cron" not in resume["schedule"]:
        schedule, problem = to_schedule(cron, str(trigger.get("timezone") or ""))
        if schedule:
            resume["schedule"] = schedule
            result.add_remark(path, f'{name} runs only at "{cron}"; for a separate job use lemming send --every')
            resume["instructions"] += f"\n\n# When your schedule comes up: {header.get('name') or slug}\n{body}"
            return
    if is_task:
        message = f"the schedule was not imported: {problem}" if problem else "send the task with lemming send --to"
        result.add_remark(
            path,
            f"{message if not cron or problem else 'add the second schedule with lemming send --every --to'} {name}",
        )
