"""`lemming apply` and `lemming import`: organisations from one file, agents from other programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import typer

from lemming.commands.command_context import CommandContext, DryRun, argument, is_org, make_command_group, option
from lemming.commands.error_reporting import print_problem
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
    list_loosened_guards,
    load_existing_defaults,
    load_template,
    make_new_defaults,
    plan_writes,
    write_new_org,
)
from lemming.import_export.apply_document import apply_writes as write_changes
from lemming.import_export.claude_importer import ClaudeImport
from lemming.import_export.import_source import ImportSource
from lemming.import_export.org_document import LIMIT_BYTES, locate_by_line, parse_document, parse_org
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, DiskError, NotTrusted, Problem, UsageError
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, require_known_format
from lemming.libraries.atomic_folder import finish_staging
from lemming.operations.permission_grants import PermissionGrants
from lemming.queries.checks.file_checks import find_order_conflicts
from lemming.queries.model_readiness import check_readiness
from lemming.queries.org_validation import validate_agents, validate_config
from lemming.queries.permissions_required import list_required_permissions

_SENTENCE_WIDTH = 300
_FILE_LIMIT_BYTES = 1 << 20
_TOP_LEVEL_FILE = "AGENTS.md"
_COPIED_FOLDERS = ("config", "agents", "shared", "skills", "tools", "evals")
_EXCLUDED_FOLDERS = frozenset({"outbox", "memory", "logs", "workspace"})
_IDENTIFIER = re.compile(rb"[\w.-]+")
_QUOTED_TEXT = re.compile(r'"([^"]+)"')


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
    command = f"lemming apply {file}{f' {folder}' if folder else ''}"
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
        print_notice(f"it could not run: nothing was written; next: fix {file}, then {command}")
        raise typer.Exit(ConfigError.exit_status)
    if dry_run or not changes:
        print_notice("nothing was written" if changes else "nothing to change")
        return
    _require_confirmation(changes, preview, yes=yes, file=file, command=command)
    if not template:
        if forget_former_agents(org, pieces.resumes):
            changes = plan_writes(base, pieces, template)
        write_changes(base, changes)
    else:
        write_new_org(base, changes)
        with suppress(DiskError):  # no home, or a read-only one: then `run-once` asks
            PermissionGrants(base).mark_as_local()
    if context.as_json:
        return
    org = Organisation(base)
    config = load_config(org)
    problems = _validate(org, load_settings(org), pieces.resumes)
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
    changes: list[PlannedWrite], preview: ChangePreview, *, yes: bool, file: Path, command: str
) -> None:
    """Raise an error unless the user confirms changes of existing files and new code."""
    changed_paths = [change.path for change in changes if change.kind == "changed"]
    if yes or not (changed_paths or preview.effects):
        return
    if can_ask():
        if typer.confirm("Write these files?", err=True):
            return
        raise typer.Exit(1)
    hint = f"read it, then run: {command} --yes"
    if preview.effects:
        raise NotTrusted("the file contains code; nothing was written", where=str(file), hint=hint)
    problem = f"{format_count(len(changed_paths), 'file')} would change; nothing was written"
    raise UsageError(problem, where=str(file), hint=hint)


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
    source = ImportSource(folder.expanduser().absolute())
    if not source.folder.is_dir():
        hint = "name the folder to import from"
        raise UsageError("the folder does not exist", where=str(source.folder), hint=hint)
    base, template = (context.org.base, {}) if into is None else prepare_org_folder(into)
    people: Sequence[str] = ()
    if not template:
        people = survey_agents(Organisation(base)).find_people(load_settings(Organisation(base)))
    is_in_place = base.exists() and base.samefile(source.folder)
    result = ClaudeImport(source, people or ("human",), is_in_place)
    result.read_project()
    writes = result.plan_writes(base, template)
    if not (result.resumes or paths.GUIDE in result.optional):
        reasons = "; ".join(f"{remark.file}: {remark.message}" for remark in source.remarks[:3])
        hint = reasons or "lemming import --help"
        raise UsageError("no agents and no AGENTS.md found", where=str(source.folder), hint=hint)
    if not dry_run:
        if template:
            write_new_org(base, writes)
        else:
            forget_former_agents(Organisation(base), result.resumes)
            write_changes(base, writes)
    org = Organisation(base)
    problems = [] if dry_run else _validate(org, load_settings(org), result.resumes)
    written = [*template, *sorted({change.path for change in writes} - template.keys())]
    facts = {"org": str(base), "agents": list(result.resumes), "files": written, "is_dry_run": dry_run}
    remarks = [remark._asdict() for remark in source.remarks]
    print_json("import", {**facts, "remarks": remarks, "problems": [problem.as_json() for problem in problems]})
    for file in written:
        print_data(str(base / file))
    for remark in source.remarks:
        print_notice(f"{remark.file}: {remark.message}", style="yellow")
    for name, resume in result.resumes.items():
        unused_keys = [f"{key}: {', '.join(value)}" for key, value in resume.items() if key.startswith("x-")]
        if unused_keys:
            print_notice(f"{name} keeps, and does nothing with, {'; '.join(unused_keys)}", style="dim")
    for problem in problems:
        print_problem(problem, org)
    if dry_run:
        print_notice(f"{format_count(len(result.resumes), 'agent')}; nothing was written")
        return
    if not result.resumes:
        print_notice('no agents, but a guide: an agent reads AGENTS.md with `"guides": true` in its resume')
        return
    print_notice(f"{format_count(len(result.resumes), 'agent')}: {', '.join(result.resumes)}")
    print_notice(f"next: lemming -C {base} validate; read the resumes before the first run-once")


def _validate(org: Organisation, config: Config, names: Iterable[str]) -> list[Problem]:
    return [*validate_config(org, config), *(item for name in names for item in validate_agents(org, config, name))]


class ChangePreview(NamedTuple):
    """Effects of a document: new code and permissions, loosened guards, and the resulting problems."""

    effects: Sequence[str]
    loosened_guards: Sequence[str]
    problems: Sequence[Problem]

    @property
    def errors(self) -> list[Problem]:
        """The problems that prevent the organisation from running."""
        return [problem for problem in self.problems if problem.severity == "error"]


def preview_changes(base: Path, changes: list[PlannedWrite], names: Iterable[str]) -> ChangePreview:
    """Preview changes for an organisation, of the agents `names`. Existing effects and problems are left out."""
    with TemporaryDirectory(prefix="lemming-apply-") as name:
        old_copy, new_copy = Path(name, "before"), Path(name, "after")
        for folder in (old_copy, new_copy):
            fs.make_root(folder)
            _copy_settings(base, folder)
        write_changes(new_copy, changes)
        old_permissions = {*map(_permission_key, _list_permissions(old_copy))}
        permissions = _list_permissions(new_copy)
        new_permissions = [item for item in permissions if _permission_key(item) not in old_permissions]
        effects = [permission.does for permission in new_permissions if permission.needs_agreement]
        named_files = {file for permission in new_permissions for file in permission.bound_to}
        code_paths = [change.path for change in changes if is_code(change.path) and change.path not in named_files]
        effects += [f"writes the Python code in {path}" for path in code_paths]
        old_problems = {_problem_key(problem) for problem in _find_problems(old_copy, names)}
        problems = [problem for problem in _find_problems(new_copy, names) if _problem_key(problem) not in old_problems]
    loosened_guards = [
        f"{change.path}: {guard}"
        for change in changes
        if change.previous is not None
        for guard in list_loosened_guards(change.path, change.previous, change.content)
    ]
    return ChangePreview(effects, loosened_guards, problems)


def is_code(path: str) -> bool:
    """Return True if a file is Python that an organisation may load.

    >>> is_code("agents/ada/tools/x.py"), is_code("shared/x.py")
    (True, False)
    """
    return path.endswith(".py") and "tools" in path.split("/")[:-1]


def _copy_settings(base: Path, target: Path) -> None:
    """Copy the settings of an organisation; entries, memories, logs and workspaces are omitted."""
    with suppress(FileNotFoundError):
        fs.write_atomic(target, _TOP_LEVEL_FILE, fs.read_bytes(base / _TOP_LEVEL_FILE, _FILE_LIMIT_BYTES))
    for top in _COPIED_FOLDERS:
        for folder, _, files in walk(str(base / top)):
            inside = Path(folder).relative_to(base).parts
            if inside[:1] == ("agents",) and _EXCLUDED_FOLDERS & {*inside[2:3]}:
                continue
            for file in files:
                relative = str(Path(file.path).relative_to(base))
                fs.write_atomic(target, relative, fs.read_bytes(file.path, _FILE_LIMIT_BYTES))


def _list_permissions(folder: Path) -> list[RequiredPermission]:
    """Return the required permissions of an organisation, or no permissions for a broken configuration."""
    org = Organisation(folder)
    try:
        return list_required_permissions(org, load_config(org), survey_agents(org).agents.values())
    except ConfigError:  # reported among the problems
        return []


def _find_problems(folder: Path, names: Iterable[str]) -> list[Problem]:
    """Return the problems of the settings and of the named agents, without loading tool files."""
    org = Organisation(folder)
    try:
        config = load_config(org)
    except ConfigError as error:
        return [*error.problems]
    problems = _validate(org, replace(config, org=replace(config.org, tool_files=[])), names)
    return [problem for problem in problems if not _may_come_from_code(folder, config, problem)]


def _may_come_from_code(folder: Path, config: Config, problem: Problem) -> bool:
    """Return True if a missing tool may be defined by a tool file or a plugin."""
    match = _QUOTED_TEXT.search(problem.message)
    if "/permissions/tools/" not in problem.pointer or match is None:
        return False
    code_paths = (file.path for _, _, files in walk(str(folder)) for file in files if is_code(file.path))
    return bool(config.org.plugins) or any(
        match[1].encode() in _IDENTIFIER.findall(fs.read_bytes(path, _FILE_LIMIT_BYTES)) for path in code_paths
    )


def _permission_key(permission: RequiredPermission) -> tuple[object, ...]:
    return permission.does, *sorted(permission.bound_to.items())


def _problem_key(problem: Problem) -> tuple[str, str, str]:
    return problem.message, problem.file, problem.pointer
