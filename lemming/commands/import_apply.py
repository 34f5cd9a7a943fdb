"""`lemming apply` and `lemming import`: organisations from one file, agents from other programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.command_context import CommandContext, DryRun, argument, is_org, make_command_group, option
from lemming.commands.error_reporting import print_problem
from lemming.commands.import_preview import ChangePreview, preview_changes
from lemming.commands.new_agent import forget_former_agents
from lemming.commands.terminal import (
    can_ask,
    format_count,
    one_line,
    print_data,
    print_json,
    print_notice,
    print_warning,
)
from lemming.commands.trust import load_settings
from lemming.import_export.apply_document import (
    PlannedWrite,
    load_existing_defaults,
    make_new_defaults,
    plan_writes,
    write_new_org,
)
from lemming.import_export.apply_document import apply_writes as write_changes
from lemming.import_export.claude_importer import import_claude
from lemming.import_export.import_source import (
    ImportResult,
    ImportSource,
    ImportTarget,
    open_source,
    plan_import,
)
from lemming.import_export.org_document import LIMIT_BYTES, OrgDocument, locate_by_line, parse_document, parse_org
from lemming.import_export.template_files import load_template
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, DiskError, NotTrusted, Problem, UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, require_known_format
from lemming.kernel.tools import SHIPPED
from lemming.libraries.atomic_folder import finish_staging
from lemming.operations.permission_grants import PermissionGrants
from lemming.queries.model_readiness import check_readiness
from lemming.queries.org_validation import validate_agents, validate_config
from lemming.queries.structure_validation import find_order_conflicts

_SENTENCE_WIDTH = 300


def apply(
    context: CommandContext,
    file: Annotated[Path, argument("FILE", "Document in YAML, TOML or JSON (docs/AGENT_GUIDE.md).")],
    folder: Annotated[
        Path | None,
        argument(
            "DIR", "Target folder; created if missing. Default: the nearest organisation, else the current folder."
        ),
    ] = None,
    yes: Annotated[bool, option("--yes -y", "Overwrite existing files and accept code from the document.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Create or update an organisation from one file: its agents, models, settings and files.

    Anything not named in the file stays unchanged; applying the same file again changes nothing. `lemming
    export org` prints a file of this format. The file is validated against the target first: nothing is
    written unless everything can run there. Each gate, grant and limit that would be removed or changed is
    listed. Changes to existing files, and new code, need --yes or a confirmation on a terminal.

    \b
    Examples:
      lemming apply idea.yaml changelog
      lemming apply org.yaml --dry-run
    """
    existing_org = context.org_if_any if folder is None else None
    base, template = (existing_org.base, {}) if existing_org else prepare_org_folder(folder or Path())
    raw = _read_file(file)
    document = parse_document(raw, file.name)
    org = Organisation(base)
    import_target, around = make_new_defaults() if template else load_existing_defaults(org, load_settings(org))
    with locate_by_line(raw, str(file)):
        pieces = parse_org(document, str(file), import_target, around)
    changes = plan_writes(base, pieces, template)
    preview = preview_changes(base, changes, pieces.resumes) if changes else ChangePreview((), (), ())
    facts = {"org": str(base), "files": {change.path: change.kind for change in changes}, "is_dry_run": dry_run}
    print_json("applied", {**facts, "does": [*preview.effects], "loosens": [*preview.loosened_guards]})
    for change in changes:
        print_data(f"{change.kind:<8} {change.path}")
    for line in (*preview.loosened_guards, *(f"contains: {effect}" for effect in preview.effects)):
        print_notice(one_line(line, _SENTENCE_WIDTH), style="yellow")
    if preview.errors:
        for problem in preview.problems:
            print_problem(problem, org)
        folder_arg = f" {folder}" if folder else ""
        print_notice(f"it could not run: nothing was written; next: fix {file}, then lemming apply {file}{folder_arg}")
        raise typer.Exit(ConfigError.exit_status)
    if dry_run or not changes:
        print_notice("nothing was written" if changes else "nothing to change")
        return
    _require_confirmation(changes, preview, yes=yes, file=file, folder=folder)
    if not template:
        if forget_former_agents(org, pieces.resumes):
            changes = plan_writes(base, pieces, template)
        write_changes(base, changes)
    else:
        write_new_org(base, changes)
        with contextlib.suppress(DiskError):  # no home, or a read-only one: then `run-once` asks
            PermissionGrants(base).mark_as_local()
    if not context.as_json:
        _print_apply_report(base, pieces, file)


def prepare_org_folder(folder: Path) -> tuple[Path, dict[str, bytes]]:
    """Return an organisation's folder, and the template files if the organisation is new."""
    base = folder.expanduser().absolute()
    finish_staging(base)
    if is_org(base):
        require_known_format(base)
        return base, {}
    files = load_template("empty")
    if existing := [name for name in ("agents", *files) if (base / name).exists()]:
        hint = "name another folder, or move it away"
        raise UsageError(f"not an organisation, and {existing[0]} already exists", where=str(base), hint=hint)
    return base, files


def _read_file(file: Path) -> bytes:
    try:
        return fs.read_bytes(file, LIMIT_BYTES)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=str(file)) from error


def _require_confirmation(
    changes: list[PlannedWrite], preview: ChangePreview, *, yes: bool, file: Path, folder: Path | None
) -> None:
    """Raise an error unless the user confirms changes of existing files and new code."""
    changed_paths = [change.path for change in changes if change.kind == "changed"]
    if yes or not (changed_paths or preview.effects):
        return
    if can_ask():
        if typer.confirm("Write these files?", err=True):
            return
        raise typer.Exit(1)
    folder_arg = f" {folder}" if folder else ""
    hint = f"read it, then run: lemming apply {file}{folder_arg} --yes"
    if preview.effects:
        raise NotTrusted("the file contains code; nothing was written", where=str(file), hint=hint)
    problem = f"{format_count(len(changed_paths), 'file')} would change; nothing was written"
    raise UsageError(problem, where=str(file), hint=hint)


def _print_apply_report(base: Path, pieces: OrgDocument, file: Path) -> None:
    """Print problems, readiness and next steps after an apply."""
    org = Organisation(base)
    config = load_config(org)
    problems = validate_imported_agents(org, pieces.resumes)
    for problem in problems:
        print_problem(problem, org)
    if any(problem.severity == "error" for problem in problems):
        print_notice(f"written, but it cannot run; next: fix {file}, then lemming apply {file} {base} --yes")
        raise typer.Exit(ConfigError.exit_status)
    if (readiness := check_readiness(config.model("default"), base)).is_ready is False:
        print_warning(f'the model "default" is not ready: {readiness.remark}: {readiness.fix}')
    for remark in find_order_conflicts(survey_agents(org).agents, config, pieces.resumes):
        print_notice(remark)
    cd_command = "" if base == Path.cwd() else f"cd {base}; "
    print_notice(f"{format_count(len(pieces.resumes), 'agent')}; next: {cd_command}lemming run-once")


app = make_command_group("Import agents from other programs.")


@app.subcommand("claude")
def import_claude_command(
    context: CommandContext,
    folder: Annotated[Path, argument("DIR", "Folder to import from.", show_default=False)],
    into: Annotated[
        Path | None, option("--into ORG", "Target organisation; created if missing. Default: the nearest.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Import a coding project: AGENTS.md or CLAUDE.md, and Claude Code's subagents and skills.

    \b
    Examples:
      lemming import claude ~/project --dry-run
      lemming import claude ~/project --into team
    """
    result = ImportResult()
    source = open_source(folder, result.remarks)
    base, template = (context.org.base, {}) if into is None else prepare_org_folder(into)
    import_claude(source, _build_target(base, source, is_new=bool(template)), result)
    writes = plan_import(base, result, template)
    if not (result.resumes or paths.GUIDE in result.optional):
        reasons = "; ".join(f"{remark.file}: {remark.message}" for remark in result.remarks[:3])
        hint = reasons or "lemming import --help"
        raise UsageError("no agents and no AGENTS.md found", where=str(source.folder), hint=hint)
    if not dry_run:
        if template:
            write_new_org(base, writes)
        else:
            forget_former_agents(Organisation(base), result.resumes)
            write_changes(base, writes)
    problems = [] if dry_run else validate_imported_agents(Organisation(base), result.resumes)
    written = [*template, *sorted({change.path for change in writes} - template.keys())]
    facts = {"org": str(base), "agents": list(result.resumes), "files": written, "is_dry_run": dry_run}
    remarks = [remark._asdict() for remark in result.remarks]
    print_json("import", {**facts, "remarks": remarks, "problems": [problem.as_json() for problem in problems]})
    for file in written:
        print_data(str(base / file))
    _print_import_report(base, result, problems, is_dry=dry_run)


def _build_target(base: Path, source: ImportSource, *, is_new: bool) -> ImportTarget:
    """Describe the target organisation: tools, people, and relation to the source folder."""
    people: tuple[str, ...] = ("human",)
    if not is_new:
        config = load_settings(org := Organisation(base))
        person_names = [name for name, agent in survey_agents(org).agents.items() if config.is_person(agent)]
        people = tuple(person_names) or people
    is_in_place = base.exists() and source.folder.exists() and base.samefile(source.folder)
    return ImportTarget(frozenset(SHIPPED), people, is_in_place)


def validate_imported_agents(org: Organisation, names: Iterable[str]) -> list[Problem]:
    """Return the problems of the settings and of the named agents."""
    config = load_settings(org)
    problems = list(validate_config(org, config))
    for name in names:
        problems += validate_agents(org, config, name)
    return problems


def _print_import_report(base: Path, result: ImportResult, problems: list[Problem], *, is_dry: bool) -> None:
    for remark in result.remarks:
        print_notice(f"{remark.file}: {remark.message}", style="yellow")
    for name, resume in result.resumes.items():
        unused_keys = [f"{key}: {', '.join(value)}" for key, value in resume.items() if key.startswith("x-")]
        if unused_keys:
            print_notice(f"{name} keeps, and does nothing with, {'; '.join(unused_keys)}", style="dim")
    for problem in problems:
        print_problem(problem, Organisation(base))
    if is_dry:
        print_notice(f"{format_count(len(result.resumes), 'agent')}; nothing was written")
        return
    if not result.resumes:
        print_notice('no agents, but a guide: an agent reads AGENTS.md with `"guides": true` in its resume')
        return
    print_notice(f"{format_count(len(result.resumes), 'agent')}: {', '.join(result.resumes)}")
    print_notice(f"next: lemming -C {base} validate; read the resumes before the first run-once")
