"""Export of an organisation as a document for `lemming apply`, without messages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lemming.import_export.org_document import LIMIT_BYTES, SETTINGS_FILES, is_allowed_file
from lemming.import_export.resume_shorthand import expand_shorthand, to_shorthand
from lemming.kernel.agents import RESUME_LIMIT_BYTES, Survey, decode_resume, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.kernel.tick.tick_counter import load_tick

Json = dict[str, Any]
MAX_FILE_BYTES = 64 << 10
_EXPORTED_PATHS = ("AGENTS.md", "agents", "config", "evals", "shared", "skills", "tools")
_RECEIVED_FOLDERS = ("answers", "done", "failed")
"""Folders of a folder channel with what was said: no document may give it to somebody else."""


def export_org(org: Organisation, template: Mapping[str, bytes]) -> tuple[Json, list[str]]:
    """Return the document, and the files omitted from the document: binary, too long, or beyond the total limit.

    Files equal to the `template` of a new organisation are left out. Raises: ConfigError for an invalid resume, and for
    invalid or missing settings: a document without gates would mean an organisation without gates.
    """
    base = org.base
    config, survey = load_config(org), survey_agents(org)
    for error in survey.broken.values():
        raise error
    agents = {}
    for name in survey.agents:
        raw = fs.read_bytes(base / paths.resume_file(name), RESUME_LIMIT_BYTES)
        if template.get(paths.resume_file(name)) != raw:
            resume = parse(raw, allow_bom=True)
            resume.pop("$schema", None)
            shorthand = to_shorthand(resume)
            expanded = decode_resume(name, dump_pretty(expand_shorthand(name, shorthand))).value
            is_equal = expanded == decode_resume(name, dump_pretty(resume)).value
            agents[name] = shorthand if is_equal else {key: resume[key] for key in resume if key != "name"}
    parts: Json = {}
    for part, file in SETTINGS_FILES.items():
        with suppress(FileNotFoundError):
            settings = parse(fs.read_bytes(base / file, LIMIT_BYTES), allow_bom=True)
            new_settings = parse(template.get(file, b"{}"))
            parts[part] = {key: settings[key] for key in settings if (key, settings[key]) not in new_settings.items()}
    folders = [entry.options.get("path", "") for entry in config.models.values() if entry.provider == "folder"]
    received = frozenset(f"{os.path.normpath(str(folder))}/{name}" for folder in folders for name in _RECEIVED_FOLDERS)
    files, omitted = _export_files(base, template, received)
    document = {"agents": agents, **parts, "files": files, "trust": dict(_iter_trust_labels(org, survey, files))}
    return {part: value for part, value in document.items() if value}, omitted


def _iter_trust_labels(org: Organisation, survey: Survey, files: Json) -> Iterator[tuple[str, str]]:
    """Yield the files with less trust than the organisation's own files, with the trust label."""
    if not (config := load_config(org)).org.extensions.get("trust"):
        return
    # An export without these labels would pass for trusted text where it is imported.
    yield from require_fact("trust.untrusted_files")(org, config, survey.agents, load_tick(org), files)


def _export_files(base: Path, template: Mapping[str, bytes], received: frozenset[str]) -> tuple[Json, list[str]]:
    exported: Json = {}
    omitted, total = [], 0
    for path in _iter_paths(base, received):
        raw = fs.read_bytes(base / path, MAX_FILE_BYTES + 1)
        total += len(raw)
        text = raw.decode("utf-8", "replace")
        if template.get(path) == raw:
            continue
        if len(raw) > MAX_FILE_BYTES or text.encode() != raw or total > LIMIT_BYTES // 2:
            omitted.append(path)
        else:
            exported[path] = text
    return exported, omitted


def _iter_paths(base: Path, received: frozenset[str]) -> Iterator[str]:
    for top in _EXPORTED_PATHS:
        path_on_disk = base / top
        is_folder = path_on_disk.is_dir() and not path_on_disk.is_symlink()
        for file in sorted(path_on_disk.rglob("*")) if is_folder else [path_on_disk]:
            path = file.relative_to(base).as_posix()
            is_hidden = any(part.startswith(".") for part in file.relative_to(base).parts)
            is_exported = not is_hidden and received.isdisjoint(map(str, file.relative_to(base).parents))
            if is_exported and file.is_file() and not file.is_symlink() and is_allowed_file(path):
                yield path


# --- readable YAML -------------------------------------------------------------------------------
# Texts of several lines as blocks, keys in their order.


_WIDTH = 100


def to_yaml(document: dict[str, Any]) -> str:
    """Return a document of JSON values as YAML, readable by `parse_yaml`."""
    import yaml  # only imported for an export

    dumper: Any = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})

    def represent_text(dumper: Any, text: str) -> Any:
        is_block = "\n" in text and not text.startswith((" ", "\n"))
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if is_block else None)

    def represent_list(dumper: Any, items: list[Any]) -> Any:
        is_short = all(isinstance(item, str | int | float) for item in items) and len(str(items)) < _WIDTH
        return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_short)

    dumper.add_representer(str, represent_text)
    dumper.add_representer(list, represent_list)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text
