"""`lemming import`: agents that people have in other programs, as agents of an organisation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.agents import survey_agents
from lemming.base.clock import SystemClock, timestamp
from lemming.base.errors import Problem, UsageError
from lemming.commands.failures import tell_problem
from lemming.commands.options import AsJson, argument, noun, option
from lemming.commands.org import find_org, is_org
from lemming.commands.screen import counted, show, show_json, tell
from lemming.commands.trust import load_settings
from lemming.exchange.claude import take_claude
from lemming.exchange.company import take_company
from lemming.exchange.openclaw import take_openclaw
from lemming.exchange.putting import Put, put_together, write
from lemming.exchange.source import Destination, Source, Taken, open_source
from lemming.exchange.template import template_files
from lemming.facts.checks import problems_of_agents, problems_of_config
from lemming.files import fs
from lemming.org.config import MODELS_FILE
from lemming.org.format import require_known_format
from lemming.org.organisation import Organisation
from lemming.tick.plan import is_for_a_person
from lemming.tools import SHIPPED

app = noun("Take over agents of other programs: docs/AGENT_GUIDE.md.")

Take = Callable[[Source, Destination, Taken], None]
Folder = Annotated[Path, argument("DIR", "The folder to import from.", show_default=False)]
Into = Annotated[
    Path | None, option("--into ORG", "The organisation's folder; made if need be. Default: the nearest.")
]
DryRun = Annotated[bool, option("--dry-run", "Say what would be written, and write nothing.")]


@app.command("claude")
def import_claude(
    ctx: typer.Context, folder: Folder, into: Into = None, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Take over the subagents of a Claude Code project: .claude/agents/*.md, its skills, its CLAUDE.md.

    \b
    Examples:
      lemming import claude ~/project --dry-run
      lemming import claude ~/project --into team
    """
    _import(ctx, folder, into, take_claude, is_dry=dry_run, as_json=as_json)


@app.command("openclaw")
def import_openclaw(
    ctx: typer.Context, folder: Folder, into: Into = None, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Take over an OpenClaw workspace, or all those in a folder such as ~/.openclaw.

    \b
    Example:
      lemming import openclaw ~/.openclaw/workspace
    """
    now = timestamp(SystemClock().now())

    def take(source: Source, known: Destination, taken: Taken) -> None:
        take_openclaw(source, known, taken, now)

    _import(ctx, folder, into, take, is_dry=dry_run, as_json=as_json)


@app.command("company")
def import_company(
    ctx: typer.Context, folder: Folder, into: Into = None, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Take over an agent company: COMPANY.md, agents/*/AGENTS.md, teams, tasks, .paperclip.yaml.

    \b
    Example:
      lemming import company ~/lean-dev-shop --into shop
    """
    _import(ctx, folder, into, take_company, is_dry=dry_run, as_json=as_json)


def _import(
    ctx: typer.Context, folder: Path, into: Path | None, take: Take, *, is_dry: bool, as_json: bool
) -> None:
    taken = Taken()
    source = open_source(folder, taken.remarks)
    base, template = _into(ctx, into)
    take(source, _known(base, source, is_new=bool(template)), taken)
    put = put_together(base, taken, template)
    if not taken.resumes:
        why = "; ".join(f"{remark.file}: {remark.message}" for remark in taken.remarks[:3])
        raise UsageError("no agents found", where=str(source.folder), hint=why or "lemming import --help")
    if not is_dry:
        _write(base, template, put)
    problems = [] if is_dry else _problems(base, taken)
    written = [
        *template,
        *sorted(put.files),
        *([MODELS_FILE] if put.models and MODELS_FILE not in template else []),
    ]
    if as_json:
        show_json("import", _as_json(base, taken, written, problems, is_dry=is_dry))
        return
    for file in written:
        show(str(base / file))
    _tell(base, taken, problems, is_dry=is_dry)


def _into(ctx: typer.Context, into: Path | None) -> tuple[Path, dict[str, bytes]]:
    """Return the organisation's folder, and the files with which it is made if it is not there."""
    if into is None:
        return find_org(ctx).base, {}
    base = into.expanduser().absolute()
    if is_org(base):
        require_known_format(base)
        return base, {}
    files = template_files("empty")
    if there := [file for file in ("agents", *files) if (base / file).exists()]:
        hint = "name another folder, or move these away"
        raise UsageError(f"no organisation, and {there[0]} is there", where=str(base), hint=hint)
    return base, files


def _known(base: Path, source: Source, *, is_new: bool) -> Destination:
    people: tuple[str, ...] = ("human",)
    if not is_new:
        config = load_settings(org := Organisation(base))
        found = [name for name, each in survey_agents(org).agents.items() if is_for_a_person(each, config)]
        people = tuple(found) or people
    is_in_place = base.exists() and source.folder.exists() and base.samefile(source.folder)
    return Destination(frozenset(SHIPPED), people, is_in_place)


def _write(base: Path, template: dict[str, bytes], put: Put) -> None:
    if template:
        fs.make_root(base)
    for file, content in template.items():
        fs.publish(base, file, content)
    write(base, put)


def _problems(base: Path, taken: Taken) -> list[Problem]:
    org = Organisation(base)
    config = load_settings(org)
    found = list(problems_of_config(org, config))
    for name in taken.resumes:
        found += problems_of_agents(org, config, name)
    return found


def _as_json(
    base: Path, taken: Taken, written: list[str], problems: list[Problem], *, is_dry: bool
) -> dict[str, Any]:
    return {
        "org": str(base),
        "agents": list(taken.resumes),
        "files": written,
        "is_dry_run": is_dry,
        "remarks": [remark._asdict() for remark in taken.remarks],
        "problems": [problem.as_json() for problem in problems],
    }


def _tell(base: Path, taken: Taken, problems: list[Problem], *, is_dry: bool) -> None:
    for remark in taken.remarks:
        tell(f"{remark.file}: {remark.message}", style="yellow")
    for name, resume in taken.resumes.items():
        kept = [f"{key}: {', '.join(value)}" for key, value in resume.items() if key.startswith("x-")]
        if kept:
            tell(f"{name} keeps, and does nothing with, {'; '.join(kept)}", style="dim")
    for problem in problems:
        tell_problem(problem, Organisation(base))
    if is_dry:
        tell(f"{counted(len(taken.resumes), 'agent')}; nothing was written")
        return
    tell(f"{counted(len(taken.resumes), 'agent')}: {', '.join(taken.resumes)}")
    tell(f"next: lemming -C {base} validate; read the resumes before the first run-once")
