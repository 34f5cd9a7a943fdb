"""From an agent company (`COMPANY.md`, `agents/*/AGENTS.md`) to agents; the rest is kept in `x-company`."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from lemming.capabilities.skills.front_matter import NotFrontMatter, load_yaml
from lemming.exchange.mapping import (
    agent_name,
    cron_of,
    join_team,
    model_key,
    part_of,
    resume_of,
    schedule_of,
    take_skills,
    tell_of_others,
    words_in,
)
from lemming.exchange.source import Destination, Source, Taken
from lemming.kernel.base.paths import GUIDE

SIDECAR = ".paperclip.yaml"
_SIDECAR_LIMIT_CHARS = 512 << 10
_OWN_FILE = "AGENTS.md"
_FOLDERS = ("agents", "skills", "teams", "projects", "tasks")
_FILES = ("COMPANY.md", "README.md", "LICENSE")


def take_company(source: Source, known: Destination, taken: Taken) -> None:
    """Take the agents of a company, its skills, its goals, its recurring tasks and their schedules."""
    company = source.document("COMPANY.md") or ({}, "")
    sidecar = _sidecar(source, taken)
    skills = take_skills(source, "skills", known, taken)
    _take_guide(company, taken)
    for folder in source.names("agents")[0]:
        _take_agent(source, folder, known, taken, part_of(sidecar, "agents", folder), skills)
    _report(taken)
    _take_teams(source, taken)
    _take_tasks(source, taken, sidecar)
    rest = {key: value for key, value in sidecar.items() if key not in ("agents", "routines")}
    for resume in taken.resumes.values():
        if not _manager(resume):
            resume["permissions"]["read_outboxes"][:0] = known.people
            resume["x-company"] |= {"company": company[0], **({"company_sidecar": rest} if rest else {})}
    folders, files = source.names()
    others = [f"{name}/" for name in folders if name not in _FOLDERS and not name.startswith(".")]
    others += [name for name in files if name not in _FILES and not name.startswith(".")]
    tell_of_others(taken, "", others)
    for secret in words_in(part_of(company[0], "requirements").get("secrets")):
        taken.remark("COMPANY.md", f"it needs the variable {secret}: set it where LeMMing runs")


def _sidecar(source: Source, taken: Taken) -> dict[str, Any]:
    text = source.text(SIDECAR)
    if text is None:
        return {}
    try:
        found = load_yaml(text, _SIDECAR_LIMIT_CHARS)
    except NotFrontMatter as error:
        taken.remark(SIDECAR, f"line {error.line}: {error}: left out")
        return {}
    return found if isinstance(found, dict) else {}


def _take_guide(company: tuple[dict[str, Any], str], taken: Taken) -> None:
    keys, body = company
    goals = "\n".join(
        f"- {goal}" for goal in words_in(keys.get("goals")) if not isinstance(keys.get("goals"), str)
    )
    parts = [str(keys.get("description") or ""), body, f"Goals:\n{goals}" if goals else ""]
    if text := "\n\n".join(filter(None, parts)):
        taken.optional[GUIDE] = f"# {keys.get('name') or 'The company'}\n\n{text}\n".encode()


def _take_agent(
    source: Source,
    folder: str,
    known: Destination,
    taken: Taken,
    beside: dict[str, Any],
    skills: dict[str, str],
) -> None:
    file = f"agents/{folder}/{_OWN_FILE}"
    document = source.document(file)
    if document is None:
        return
    keys, body = document
    name = agent_name(str(keys.get("slug") or folder))
    if not name or name in taken.resumes:
        taken.remark(file, "has no name of its own that an agent can have: left out")
        return
    config = part_of(part_of(beside, "adapter"), "config")
    listed = [
        PurePosixPath(each).parent.name if each.endswith(".md") else each
        for each in words_in(keys.get("skills"))
    ]
    for missing in (each for each in listed if each not in skills):
        taken.remark(file, f'skill "{missing}" does not come with the company; put it into skills/')
    others = _take_files(source, folder, name, taken)
    docs = [PurePosixPath(each).name for each in words_in(keys.get("docs"))]
    sections = [
        f"# {doc}\n{taken.files[f'agents/{name}/workspace/{doc}'].decode()}" for doc in docs if doc in others
    ]
    for secret in part_of(beside, "inputs", "env"):
        taken.remark(SIDECAR, f"{name} needs the variable {secret}: set it where LeMMing runs")
    if others:
        taken.remark(file, f"in its workspace, to be read with file_read: {', '.join(others)}")
    taken.resumes[name] = resume_of(
        name,
        title=str(keys.get("title") or keys.get("name") or name),
        instructions="\n\n".join([body or f"You are {keys.get('name') or name}.", *sections]),
        key=model_key(str(config.get("model") or ""), taken, file),
        tools=[tool for tool in ("file_read", "file_list") if others and tool in known.tools],
        skills=[each for each in listed if each in skills],
        guides=GUIDE in taken.optional and not known.is_in_place,
        x_company={"agent": keys, **({"sidecar": beside} if beside else {})},
    )
    _take_heartbeat(name, part_of(beside, "runtime", "heartbeat"), taken)


def _take_files(source: Source, folder: str, name: str, taken: Taken) -> list[str]:
    """Take the texts that stand beside an agent's own file, and return their names."""
    found = []
    folders, files = source.names(f"agents/{folder}")
    others = [f"{each}/" for each in folders] + [each for each in files if not each.endswith(".md")]
    tell_of_others(taken, f"agents/{folder}", others)
    for other in files:
        text = (
            source.text(f"agents/{folder}/{other}") if other.endswith(".md") and other != _OWN_FILE else None
        )
        if text is not None:
            taken.files[f"agents/{name}/workspace/{other}"] = text.encode()
            found.append(other)
    return found


def _take_heartbeat(name: str, heartbeat: dict[str, Any], taken: Taken) -> None:
    seconds = heartbeat.get("intervalSec")
    if heartbeat.get("enabled") and isinstance(seconds, int) and seconds > 0:
        cron = cron_of(seconds)
        taken.resumes[name]["schedule"], _ = schedule_of(cron, "UTC")
        taken.remark(
            SIDECAR, f'{name}: heartbeat every {seconds} s: "{cron}"; it answers then, not in between'
        )


def _report(taken: Taken) -> None:
    """Let managers ask those who report to them, and each read the other."""
    for name, resume in taken.resumes.items():
        said = _manager(resume)
        manager = agent_name(said)
        if manager in taken.resumes and manager != name:
            join_team(taken, manager, [name])
        elif said:
            taken.remark(f"agents/{name}/{_OWN_FILE}", f"reports to {said}, who is not here")


def _take_teams(source: Source, taken: Taken) -> None:
    for folder in source.names("teams")[0]:
        file = f"teams/{folder}/TEAM.md"
        keys, body = source.document(file) or ({}, "")
        manager = _agent_at(keys.get("manager"))
        if manager not in taken.resumes:
            taken.remark(file, "its manager is not here: left out")
            continue
        members = [
            _agent_at(each) for each in words_in(keys.get("includes")) if each.endswith(f"/{_OWN_FILE}")
        ]
        free = [
            each
            for each in members
            if each in taken.resumes and not _manager(taken.resumes[each]) and each != manager
        ]
        join_team(taken, manager, free)
        kept = taken.resumes[manager]["x-company"].setdefault("teams", {})
        kept[folder] = {**keys, **({"text": body} if body else {})}


def _manager(resume: dict[str, Any]) -> str:
    """Return whom an agent reports to, as its file says."""
    return str(resume["x-company"]["agent"].get("reportsTo") or "")


def _agent_at(path: Any) -> str:
    """Return the agent that a path to its `AGENTS.md` names."""
    return agent_name(PurePosixPath(path).parent.name) if isinstance(path, str) else ""


def _take_tasks(source: Source, taken: Taken, sidecar: dict[str, Any]) -> None:
    for path in source.below(""):
        *_, folder, file = ("", *path.split("/"))
        document = source.document(path) if file in ("TASK.md", "PROJECT.md") else None
        if document:
            _take_task(path, folder, *document, taken, part_of(sidecar, "routines", folder))


def _take_task(
    path: str, slug: str, keys: dict[str, Any], body: str, taken: Taken, routine: dict[str, Any]
) -> None:
    """Keep a task or a project with whom it belongs to; a recurring one becomes a schedule."""
    is_task = path.endswith("TASK.md")
    name = agent_name(str(keys.get("assignee" if is_task else "owner") or ""))
    if name not in taken.resumes:
        taken.remark(path, "belongs to nobody who is here: left out")
        return
    resume = taken.resumes[name]
    kept = {**keys, **({"text": body} if body else {}), **({"routine": routine} if routine else {})}
    resume["x-company"].setdefault("tasks" if is_task else "projects", {})[slug] = kept
    trigger: dict[str, Any] = next(
        (each for each in routine.get("triggers") or [] if part_of(each).get("kind") == "schedule"), {}
    )
    cron, why = str(trigger.get("cronExpression") or ""), ""
    if is_task and cron and "cron" not in resume["schedule"]:
        schedule, why = schedule_of(cron, str(trigger.get("timezone") or ""))
        if schedule:
            resume["schedule"] = schedule
            taken.remark(path, f'{name} is due by "{cron}" and not in between; a job: lemming send --every')
            resume["instructions"] += f"\n\n# When your schedule comes up: {keys.get('name') or slug}\n{body}"
            return
    if is_task:
        what = f"its schedule is not taken: {why}" if why else "a task to be given: lemming send --to"
        taken.remark(
            path, f"{what if not cron or why else 'a second schedule: lemming send --every, to'} {name}"
        )
