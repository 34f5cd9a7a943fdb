"""Apply a document to an organisation: plan the changes and write the files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lemming.import_export.org_document import LIMIT_BYTES, TOOL_FILES_PATTERN, OrgDocument
from lemming.import_export.resume_shorthand import ShorthandDefaults
from lemming.kernel.agents import RESUME_LIMIT_BYTES, Agent, decode_resume, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, dump_pretty, parse, to_line
from lemming.kernel.base.times import zone_error
from lemming.kernel.files import fs
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.atomic_folder import stage_org
from lemming.libraries.settings_edits import lock_folders, preserve_layout
from lemming.libraries.wording import shorten_line

Json = dict[str, Any]
_LOCAL, _ZONEINFO_FOLDER = Path("/etc/localtime"), "zoneinfo/"


class PlannedWrite(NamedTuple):
    """A planned write of a file: the new content, and the previous content if the file exists."""

    path: str
    content: bytes
    previous: bytes | None

    @property
    def kind(self) -> Literal["new", "changed"]:
        """ "new" for a missing file, "changed" for an existing file."""
        return "new" if self.previous is None else "changed"


def build_defaults(agents: Mapping[str, Agent], config: Config) -> ShorthandDefaults:
    """Return the defaults for a new agent: the persons, and the time zone of schedules without a zone."""
    persons = tuple(name for name, agent in agents.items() if config.is_person(agent))
    return ShorthandDefaults(persons, "" if config.org.timezone else _get_local_timezone())


def load_existing_defaults(org: Organisation, config: Config) -> tuple[list[str], ShorthandDefaults]:
    """Return the names of an organisation's agents, and the defaults for a new agent."""
    agents = survey_agents(org).agents
    return list(agents), build_defaults(agents, config)


def make_new_defaults() -> tuple[list[str], ShorthandDefaults]:
    """Return the agents and defaults of an organisation before its creation, like `load_existing_defaults`."""
    return ["human"], ShorthandDefaults(("human",), _get_local_timezone())


def plan_writes(base: Path, document: OrgDocument, template: Mapping[str, bytes]) -> list[PlannedWrite]:
    """Return the writes needed to apply a document, resumes last.

    `template` holds the files of a new organisation. Raises: ConfigError for an existing file with errors.
    """
    writes = [*_plan_settings(base, document, template)]
    for path, content in document.files.items():
        current_raw = _load_file(base, path)
        if current_raw is not None and path.startswith(f"{paths.TRUST}/"):
            continue  # a document must not raise an existing trust label
        if current_raw != content:
            writes.append(PlannedWrite(path, content, current_raw))
    writes += _plan_resumes(base, document, template)
    planned_paths = {change.path for change in writes}
    template_writes = [PlannedWrite(path, raw, None) for path, raw in template.items() if path not in planned_paths]
    return [*template_writes, *writes]


def write_new_org(base: Path, changes: list[PlannedWrite]) -> None:
    """Write the files of a new organisation atomically: all files or none."""
    with stage_org(base, "apply") as staged:
        for change in changes:
            fs.write_atomic(staged, change.path, change.content)


def apply_writes(base: Path, changes: list[PlannedWrite]) -> None:
    """Write the planned changes, resumes last: no agent may take a turn before all its files and its model exist.

    Raises: UsageError, with nothing written, if another command has changed a file in the meantime and the write would
    undo the change.
    """
    with lock_folders(base, (change.path for change in changes if change.previous is not None)):
        for change in changes:
            if _load_file(base, change.path) != change.previous:
                hint = "run the command again to read the new content"
                message = "the file changed during the command; nothing was written"
                raise UsageError(message, where=change.path, hint=hint)
        for change in sorted(changes, key=lambda planned: planned.path.endswith("/resume.json")):
            if change.previous is not None:
                fs.write_atomic(base, change.path, change.content)
            elif not fs.create(base, change.path, change.content):
                message = f"{change.path} was created during the command; the remaining files were not written"
                raise UsageError(message, where=str(base))


def _plan_settings(base: Path, document: OrgDocument, template: Mapping[str, bytes]) -> Iterator[PlannedWrite]:
    for path, settings in document.settings.items():
        current_raw = _load_file(base, path)
        raw = current_raw if current_raw is not None else template.get(path, b"{}\n")
        current = _parse_object(raw, path)
        if path == paths.ORG_FILE and settings.get("tool_files") == [TOOL_FILES_PATTERN]:
            patterns = [*current.get("tool_files", []), TOOL_FILES_PATTERN]
            settings = {**settings, "tool_files": [*dict.fromkeys(patterns)]}
        if current | settings != current:
            added = {key: value for key, value in settings.items() if key not in current}
            replaced = {key for key, value in settings.items() if key in current and current[key] != value}
            # if keys are only added, the layout of the file stays
            lines = [f"  {to_line(key)}: {to_line(value)}" for key, value in (current | settings).items()]
            rewritten = ("{\n" + ",\n".join(lines) + "\n}\n").encode()  # a line for each key, as in the templates
            content = rewritten if replaced else append_keys(raw, current, added)
            yield PlannedWrite(path, content, current_raw)
        elif current_raw is None:
            yield PlannedWrite(path, raw, None)


def append_keys(raw: bytes, document: dict[str, Any], missing: dict[str, Any]) -> bytes:
    """Append keys to a JSON object in its file. The layout of the rest stays unchanged."""
    merged = {**document, **missing}
    head, brace, tail = raw.rstrip().rpartition(b"}")
    lines = [f"  {dump_compact(key).decode()}: {dump_compact(value).decode()}" for key, value in missing.items()]
    text = b"," * bool(document) + ("\n" + ",\n".join(lines) + "\n").encode()
    return preserve_layout(head.rstrip() + text + brace + tail + b"\n", merged)


def _plan_resumes(base: Path, document: OrgDocument, template: Mapping[str, bytes]) -> Iterator[PlannedWrite]:
    for name, resume in document.resumes.items():
        path = paths.resume_file(name)
        current_raw, content = _load_file(base, path), dump_pretty(resume)
        is_equal = False
        with suppress(ConfigError):  # a broken resume is replaced
            is_equal = (
                current_raw is not None and decode_resume(name, current_raw).value == decode_resume(name, content).value
            )
        if not is_equal:
            yield PlannedWrite(path, content, current_raw)
    readers: dict[str, list[str]] = {}
    for reader, author in document.read_by:
        readers.setdefault(reader, []).append(author)
    for reader, names in readers.items():
        path = paths.resume_file(reader)
        current_raw = _load_file(base, path)
        resume = _parse_object(current_raw or template.get(path, b"{}"), path)
        permissions = dict(resume.get("permissions") or {})
        old_authors = permissions.get("read_outboxes", [])
        new_authors = [*dict.fromkeys([*old_authors, *names])]
        if "*" not in old_authors and new_authors != old_authors:
            permissions["read_outboxes"] = new_authors
            yield PlannedWrite(path, dump_pretty({**resume, "permissions": permissions}), current_raw)


def _load_file(base: Path, path: str) -> bytes | None:
    try:
        return fs.read_bytes(base / path, max(LIMIT_BYTES, RESUME_LIMIT_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=path) from error


def _parse_object(raw: bytes, path: str) -> Json:
    try:
        value = parse(raw, allow_bom=True)
    except ValueError as error:
        raise ConfigError(f"not valid JSON: {error}", where=path, hint="run `lemming validate`") from error
    if not isinstance(value, dict):
        raise ConfigError("expected a JSON object", where=path, hint="run `lemming validate`")
    return value


def _get_local_timezone() -> str:
    """Return the time zone name from `TZ` or the system, such as Europe/Berlin, or else UTC."""
    try:
        _, _, system = os.readlink(_LOCAL).partition(_ZONEINFO_FOLDER)
    except OSError:
        system = ""
    for name in (os.environ.get("TZ", "").removeprefix(":"), system):
        if name and not zone_error(name):
            return name.removeprefix("Etc/") if name == "Etc/UTC" else name
    return "UTC"


# --- guards that a change loosens -----------------------------------------------------------------


ORG_GUARD_KEYS = (
    "gates", "trust", "shell", "http", "paused", "quota", "tool_files", "plugins", "on_failure", "on_waiting",
    "create_agent_allowed", "create_agent_models", "create_agent_per_turn", "create_agent_max_agents",
    "create_agent_max_depth", "tool_max_memory_bytes", "tool_timeout_s", "loops",
)  # fmt: skip
"""Keys of the settings that guard something, or run something."""
RESUME_GUARD_KEYS = ("gates", "trust", "permissions", "credits", "model", "team", "verify", "loops", "turn")
"""Keys of a resume that do."""
_WIDTH = 160


def list_loosened_guards(path: str, old_raw: bytes, new_raw: bytes) -> Iterator[str]:
    """Yield the guards removed or altered in a changed file: "removes gate {...}"."""
    try:
        old, new = parse(old_raw, allow_bom=True), parse(new_raw, allow_bom=True)
    except (JsonProblem, ValueError):
        return
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    if path == paths.CREDITS_FILE:
        keys = (*old,)
    elif path == paths.ORG_FILE:
        keys = ORG_GUARD_KEYS
    elif path.endswith("/resume.json"):
        keys = RESUME_GUARD_KEYS
    else:
        return
    for key in keys:
        if key == "gates":
            yield from _list_gate_changes(old.get(key), new.get(key))
        elif key in old or key in new:
            yield from _list_changes(key, old.get(key), new.get(key))


def _list_gate_changes(old: Any, new: Any) -> Iterator[str]:
    """Yield the removed gates, and new gates in front of remaining gates: the first decisive gate wins."""
    old_lines = [to_line(gate) for gate in old] if isinstance(old, list) else []
    new_lines = [to_line(gate) for gate in new] if isinstance(new, list) else []
    removed = [gate for gate in old_lines if gate not in new_lines]
    for gate in removed:
        yield f"removes gate {shorten_line(gate, _WIDTH)}"
    remaining = [gate for gate in old_lines if gate in new_lines]
    if remaining and remaining != [gate for gate in new_lines if gate in old_lines]:
        yield "changes the order of the gates"
    for index, gate in enumerate(new_lines):
        is_new_pass = gate not in old_lines and '"then": "pass"' in gate
        if is_new_pass and any(other in old_lines for other in new_lines[index:]):
            yield f"lets pass, before other gates: {shorten_line(gate, _WIDTH)}"


def _list_changes(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*old, *new)):
            yield from _list_changes(f"{key}.{name}", old.get(name), new.get(name))
    elif new is None and old is not None:
        yield f"removes {key} {shorten_line(to_line(old), _WIDTH)}"
    elif old != new:
        yield f"changes {key} from {shorten_line(to_line(old), _WIDTH)} to {shorten_line(to_line(new), _WIDTH)}"


# --- files of a new organisation ------------------------------------------------------------------


BASE_TEMPLATES = {"recorded": "newsroom"}
"""Templates that add to another, or replace files of it."""

REPOSITORIES = {"workers": "site"}
"""Templates with a folder that becomes a git repository with one commit."""
TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


def load_template(template: str) -> dict[str, bytes]:
    """Return the files of a template by path in the organisation."""
    root = TEMPLATES / template
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    return {**load_template(BASE_TEMPLATES[template]), **files} if template in BASE_TEMPLATES else files
