"""`lemming apply` and `lemming import`: an organisation out of one file, agents of other programs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.commands.failures import tell_problem
from lemming.commands.foreseen import Foreseen, foresee
from lemming.commands.new_agent import forget_former
from lemming.commands.options import Here, argument, is_org, noun, option
from lemming.commands.screen import counted, one_line, show, show_json, tell
from lemming.commands.trust import load_settings
from lemming.exchange.applying import Change, changes_of, new, there, write_new
from lemming.exchange.applying import write as write_changes
from lemming.exchange.claude import take_claude
from lemming.exchange.company import take_company
from lemming.exchange.document_lines import locate_by_line
from lemming.exchange.one_file import LIMIT_BYTES, OrgPieces, document_of, wanted_of
from lemming.exchange.openclaw import take_openclaw
from lemming.exchange.putting import Put, put_together, write
from lemming.exchange.source import Destination, Source, Taken, open_source
from lemming.exchange.template import template_files
from lemming.facts.problems import problems_of_agents, problems_of_config
from lemming.facts.readiness import readiness_of
from lemming.facts.structure_problems import waits_for_its_name
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import ConfigError, DiskError, NotTrusted, Problem, UsageError
from lemming.kernel.files import fs
from lemming.kernel.files.whole_folder import finish_put, put_whole
from lemming.kernel.org.config import MODELS_FILE, load_config
from lemming.kernel.org.format import require_known_format
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.firing_plan import is_for_a_person
from lemming.kernel.tools import SHIPPED
from lemming.service.agreement import Agreement

_SENTENCE_WIDTH = 300


def apply(
    here: Here,
    file: Annotated[Path, argument("FILE", "YAML, .toml or .json; docs/AGENT_GUIDE.md.")],
    folder: Annotated[
        Path | None,
        argument(
            "DIR",
            "The organisation's folder, made if need be. Default: the nearest, else the current folder.",
        ),
    ] = None,
    yes: Annotated[
        bool, option("--yes -y", "Change files that are there, and take the code it brings.")
    ] = False,
    dry_run: Annotated[bool, option("--dry-run", "Say what would be written, and write nothing.")] = False,
) -> None:
    """Make an organisation, or change one, as one file says: its agents, models, settings and files.

    What the file does not name stays as it is; the same file again changes nothing. `lemming export org`
    prints such a file. It is judged where it goes first: nothing is written unless all of it can run there.
    Each gate, grant and limit that would go or change is named. Files that are there and say something else,
    and code, are written with --yes, or after a question on a terminal.

    \b
    Examples:
      lemming apply idea.yaml changelog
      lemming apply org.yaml --dry-run
    """
    there_already = here.org_if_any if folder is None else None
    base, template = (there_already.base, {}) if there_already else made_at(folder or Path())
    raw = _content(file)
    document = document_of(raw, file.name)
    org = Organisation(base)
    known, around = new() if template else there(org, load_settings(org))
    with locate_by_line(raw, str(file)):
        wanted = wanted_of(document, str(file), known, around)
    changes = changes_of(base, wanted, template)
    foreseen = foresee(base, changes, wanted.resumes) if changes else Foreseen((), (), ())
    if here.as_json:
        files = {change.path: change.kind for change in changes}
        show_json("applied", {"org": str(base), "files": files, "is_dry_run": dry_run,
                              "does": [*foreseen.brings], "loosens": [*foreseen.loosens]})  # fmt: skip
    else:
        for change in changes:
            show(f"{change.kind:<8} {change.path}")
        for line in foreseen.loosens:
            tell(one_line(line, _SENTENCE_WIDTH), style="yellow")
        for does in foreseen.brings:
            tell(f"brings along: {one_line(does, _SENTENCE_WIDTH)}", style="yellow")
    if foreseen.errors:
        for problem in foreseen.problems:
            tell_problem(problem, org)
        into = f" {folder}" if folder else ""
        tell(f"it cannot run so, and nothing was written; next: mend {file}, then lemming apply {file}{into}")
        raise typer.Exit(ConfigError.exit_status)
    if dry_run or not changes:
        tell("nothing was written" if changes else "nothing to change")
        return
    _require_leave(changes, foreseen, yes=yes, file=file, folder=folder)
    if not template:
        if forget_former(org, wanted.resumes):
            changes = changes_of(base, wanted, template)
        write_changes(base, changes)
    else:
        write_new(base, changes)
        with contextlib.suppress(DiskError):  # no home, or a read-only one: then `run-once` asks
            Agreement(base).note_maker()
    if not here.as_json:
        _tell_applied(base, wanted, file)


def made_at(folder: Path) -> tuple[Path, dict[str, bytes]]:
    """Return an organisation's folder, and the files with which it is made if it is not there."""
    base = folder.expanduser().absolute()
    finish_put(base)
    if is_org(base):
        require_known_format(base)
        return base, {}
    files = template_files("empty")
    if there := [name for name in ("agents", *files) if (base / name).exists()]:
        hint = "name another folder, or move it away"
        raise UsageError(f"no organisation, and {there[0]} is there", where=str(base), hint=hint)
    return base, files


def _content(file: Path) -> bytes:
    try:
        return fs.read_bytes(file, LIMIT_BYTES)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=str(file)) from error


def _require_leave(
    changes: list[Change], foreseen: Foreseen, *, yes: bool, file: Path, folder: Path | None
) -> None:
    changed = [change.path for change in changes if change.kind == "changed"]
    if yes or not (changed or foreseen.brings):
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        if typer.confirm("Write it?", err=True):
            return
        raise typer.Exit(1)
    into = f" {folder}" if folder else ""
    hint = f"read it, then: lemming apply {file}{into} --yes"
    if foreseen.brings:
        raise NotTrusted("it brings code, and nothing was written", where=str(file), hint=hint)
    raise UsageError(
        f"{counted(len(changed), 'file')} would change; nothing was written", where=str(file), hint=hint
    )


def _tell_applied(base: Path, wanted: OrgPieces, file: Path) -> None:
    org = Organisation(base)
    config = load_config(org)
    problems = problems_with(org, wanted.resumes)
    for problem in problems:
        tell_problem(problem, org)
    if any(problem.severity == "error" for problem in problems):
        tell(f"written, and it cannot run so; next: mend {file}, then lemming apply {file} {base} --yes")
        raise typer.Exit(ConfigError.exit_status)
    if (found := readiness_of(config.model("default"), base)).is_ready is False:
        tell(f'the model "default" is not ready: {found.remark}: {found.fix}', style="yellow")
    for remark in waits_for_its_name(survey_agents(org).agents, config, wanted.resumes):
        tell(remark)
    inside = "" if base == Path.cwd() else f"cd {base}; "
    tell(f"{counted(len(wanted.resumes), 'agent')}; next: {inside}lemming run-once")


app = noun("Take over agents of other programs: docs/AGENT_GUIDE.md.")

Take = Callable[[Source, Destination, Taken], None]
Folder = Annotated[Path, argument("DIR", "The folder to import from.", show_default=False)]
Into = Annotated[
    Path | None, option("--into ORG", "The organisation's folder; made if need be. Default: the nearest.")
]
DryRun = Annotated[bool, option("--dry-run", "Say what would be written, and write nothing.")]


@app.verb("claude")
def import_claude(here: Here, folder: Folder, into: Into = None, dry_run: DryRun = False) -> None:
    """Take over the subagents of a Claude Code project: .claude/agents/*.md, its skills, its CLAUDE.md.

    \b
    Examples:
      lemming import claude ~/project --dry-run
      lemming import claude ~/project --into team
    """
    _import(here, folder, into, take_claude, is_dry=dry_run)


@app.verb("openclaw")
def import_openclaw(here: Here, folder: Folder, into: Into = None, dry_run: DryRun = False) -> None:
    """Take over an OpenClaw workspace, or all those in a folder such as ~/.openclaw.

    \b
    Example:
      lemming import openclaw ~/.openclaw/workspace
    """
    now = timestamp(SystemClock().now())

    def take(source: Source, known: Destination, taken: Taken) -> None:
        take_openclaw(source, known, taken, now)

    _import(here, folder, into, take, is_dry=dry_run)


@app.verb("company")
def import_company(here: Here, folder: Folder, into: Into = None, dry_run: DryRun = False) -> None:
    """Take over an agent company: COMPANY.md, agents/*/AGENTS.md, teams, tasks, .paperclip.yaml.

    \b
    Example:
      lemming import company ~/lean-dev-shop --into shop
    """
    _import(here, folder, into, take_company, is_dry=dry_run)


def _import(here: Here, folder: Path, into: Path | None, take: Take, *, is_dry: bool) -> None:
    taken = Taken()
    source = open_source(folder, taken.remarks)
    base, template = (here.org.base, {}) if into is None else made_at(into)
    take(source, _known(base, source, is_new=bool(template)), taken)
    put = put_together(base, taken, template)
    if not taken.resumes:
        why = "; ".join(f"{remark.file}: {remark.message}" for remark in taken.remarks[:3])
        raise UsageError("no agents found", where=str(source.folder), hint=why or "lemming import --help")
    if not is_dry:
        _write(base, template, put, taken.resumes)
    problems = [] if is_dry else problems_with(Organisation(base), taken.resumes)
    written = [
        *template,
        *sorted(put.files),
        *([MODELS_FILE] if put.models and MODELS_FILE not in template else []),
    ]
    if here.shows("import", _as_json(base, taken, written, problems, is_dry=is_dry)):
        return
    for file in written:
        show(str(base / file))
    _tell(base, taken, problems, is_dry=is_dry)


def _known(base: Path, source: Source, *, is_new: bool) -> Destination:
    people: tuple[str, ...] = ("human",)
    if not is_new:
        config = load_settings(org := Organisation(base))
        found = [name for name, each in survey_agents(org).agents.items() if is_for_a_person(each, config)]
        people = tuple(found) or people
    is_in_place = base.exists() and source.folder.exists() and base.samefile(source.folder)
    return Destination(frozenset(SHIPPED), people, is_in_place)


def _write(base: Path, template: dict[str, bytes], put: Put, names: Iterable[str]) -> None:
    if not template:
        forget_former(Organisation(base), names)
        write(base, put)
        return
    with put_whole(base, "import") as staged:
        for file, content in template.items():
            fs.publish(staged, file, content)
        write(staged, put)


def problems_with(org: Organisation, names: Iterable[str]) -> list[Problem]:
    """Return what is wrong with the settings, and with the agents of these names."""
    config = load_settings(org)
    found = list(problems_of_config(org, config))
    for name in names:
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
