"""`lemming apply`: an organisation, or a part of one, out of one file."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from lemming.access.trust import Agreement, Reach
from lemming.agents import Agent, survey_agents
from lemming.base.errors import ConfigError, DiskError, NotTrusted, UsageError
from lemming.commands.failures import tell_problem
from lemming.commands.options import AsJson, argument, option
from lemming.commands.org import find_org_if_any, is_org
from lemming.commands.screen import counted, one_line, show, show_json, tell
from lemming.commands.trust import load_settings
from lemming.exchange.applying import Change, changes_of, new, there, write
from lemming.exchange.one_file import LIMIT_BYTES, OrgPieces, document_of, wanted_of
from lemming.exchange.template import template_files
from lemming.facts.checks import problems_of_agents, problems_of_config
from lemming.facts.reach import reaches
from lemming.facts.readiness import readiness_of
from lemming.facts.reading_order import waits_for_its_name
from lemming.files import fs
from lemming.org.config import load_config
from lemming.org.format import require_known_format
from lemming.org.organisation import Organisation

_SENTENCE_WIDTH = 300


def apply(
    ctx: typer.Context,
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
    as_json: AsJson = False,
) -> None:
    """Make an organisation, or change one, as one file says: its agents, models, settings and files.

    What the file does not name stays as it is; the same file again changes nothing. `lemming export org`
    prints such a file. Files that are there and say something else, and code, are written with --yes, or
    after a question on a terminal.

    \b
    Examples:
      lemming apply idea.yaml changelog
      lemming apply org.yaml --dry-run
    """
    base, template = _into(ctx, folder)
    document = document_of(_content(file), file.name)
    org = Organisation(base)
    known, around = new() if template else there(org, load_settings(org))
    wanted = wanted_of(document, str(file), known, around)
    changes = changes_of(base, wanted, template)
    brings = _brings(wanted) if changes else []
    if as_json:
        files = {change.path: change.kind for change in changes}
        show_json("applied", {"org": str(base), "files": files, "is_dry_run": dry_run,
                              "does": [reach.does for reach in brings]})  # fmt: skip
    else:
        for change in changes:
            show(f"{change.kind:<8} {change.path}")
        for reach in brings:
            tell(f"brings along: {one_line(reach.does, _SENTENCE_WIDTH)}", style="yellow")
    if dry_run or not changes:
        tell("nothing was written" if changes else "nothing to change")
        return
    _require_leave(changes, brings, yes=yes, file=file, folder=folder)
    write(base, changes)
    if template:
        with contextlib.suppress(DiskError):  # no home, or a read-only one: then `run-once` asks
            Agreement(base).note_maker()
    if not as_json:
        _tell(base, wanted, file)


def _into(ctx: typer.Context, folder: Path | None) -> tuple[Path, dict[str, bytes]]:
    """Return the organisation's folder, and the files with which it is made if it is not there."""
    if folder is None and (org := find_org_if_any(ctx)):
        return org.base, {}
    base = (folder or Path()).expanduser().absolute()
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


def _brings(wanted: OrgPieces) -> list[Reach]:
    """Return what running would do outside the folder because of the document, looked at in an empty one."""
    with TemporaryDirectory(prefix="lemming-apply-") as name:
        place = Path(name)
        alone = wanted._replace(read_by=[])
        write(place, changes_of(place, alone, template_files("empty")))
        org = Organisation(place)
        config = load_config(org)
        agents: list[Agent] = list(survey_agents(org).agents.values())
        return [reach for reach in reaches(org, config, agents) if reach.needs_leave]


def _require_leave(
    changes: list[Change], brings: list[Reach], *, yes: bool, file: Path, folder: Path | None
) -> None:
    changed = [change.path for change in changes if change.kind == "changed"]
    if yes or not (changed or brings):
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        if typer.confirm("Write it?", err=True):
            return
        raise typer.Exit(1)
    into = f" {folder}" if folder else ""
    hint = f"read it, then: lemming apply {file}{into} --yes"
    if brings:
        raise NotTrusted("it brings code, and nothing was written", where=str(file), hint=hint)
    raise UsageError(
        f"{counted(len(changed), 'file')} would change; nothing was written", where=str(file), hint=hint
    )


def _tell(base: Path, wanted: OrgPieces, file: Path) -> None:
    org = Organisation(base)
    config = load_settings(org)
    problems = list(problems_of_config(org, config))
    for name in wanted.resumes:
        problems += problems_of_agents(org, config, name)
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
