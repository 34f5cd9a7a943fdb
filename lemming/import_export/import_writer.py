"""Write the result of an import into an organisation. Existing files are never overwritten."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lemming.import_export.import_source import ImportResult
from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import dump_compact, dump_pretty, parse, preserve_layout
from lemming.kernel.files import fs
from lemming.kernel.org.changing import edit_file
from lemming.kernel.org.config import MODELS_FILE

_SECRET = re.compile(r"(?:api_?key|access_?key|private_?key|token|secret|password|authorization)\Z", re.IGNORECASE)
_LEFT_OUT = "(left out)"
_LIMIT_BYTES = 1 << 20


class ImportFiles(NamedTuple):
    """Files to write, by path, and the missing entries of `config/models.json`, by key."""

    files: dict[str, bytes]
    models: dict[str, Any]


def build_import_files(base: Path, result: ImportResult, template: Mapping[str, bytes]) -> ImportFiles:
    """Return the files of an import, apart from the `template` of a new organisation.

    An agent with an invalid resume is left out with a remark, as is a different existing guide or skill. Raises:
    UsageError if a file of an agent exists, except for the files of an interrupted import.
    """
    files: dict[str, bytes] = {}
    for name, resume in list(result.resumes.items()):
        file, clean_resume = paths.resume_file(name), _remove_secrets(resume, result, name)
        content = dump_pretty(clean_resume)
        try:
            decode_resume(name, content)
        except ConfigError as error:
            result.add_remark(file, f"{error.message}: left out")
            del result.resumes[name]
            continue
        files[file] = content
    existing = [path for path in files if _has_path(base, path)]
    is_interrupted_import = len(existing) < len(files) and all(
        fs.has_content(base / path, files[path]) for path in existing
    )
    if existing and not is_interrupted_import:
        names = ", ".join(existing[:4]) + (", ..." if len(existing) > 4 else "")
        hint = "rename them there, or rename these with `lemming agents rename`"
        raise UsageError(f"{names} already present; nothing was written", where=str(base), hint=hint)
    return ImportFiles(
        {**files, **_select_optional_files(base, result)},
        _merge_models(base, result, template.get(MODELS_FILE)),
    )


def write_files(base: Path, import_files: ImportFiles) -> None:
    """Write the files, resumes last: no agent may take a turn before all its files and its model exist."""
    if import_files.models:
        with edit_file(base, MODELS_FILE) as models_file:
            models = parse(models_file.raw, allow_bom=True)
            missing = {key: line for key, line in import_files.models.items() if key not in models}
            if missing:
                models_file.publish(append_keys(models_file.raw, models, missing))
    for path in sorted(import_files.files, key=lambda path: (path.endswith("/resume.json"), path)):
        if not fs.create(base, path, import_files.files[path]) and not fs.has_content(
            base / path, import_files.files[path]
        ):
            raise UsageError(
                f"{path} was created during the command; the remaining files were not written", where=str(base)
            )


def _select_optional_files(base: Path, result: ImportResult) -> dict[str, bytes]:
    selected = {}
    for path, raw in result.optional.items():
        if not _has_path(base, path):
            selected[path] = raw
        elif fs.read_bytes(base / path, len(raw) + 1) != raw:
            result.add_remark(path, "already exists with other content; it was not changed")
    return selected


def _merge_models(base: Path, result: ImportResult, template_raw: bytes | None) -> dict[str, Any]:
    """Return the missing entries of the models file; `template_raw` is the file of a new organisation."""
    models = [resume["model"] for resume in result.resumes.values()]
    used = {key for model in models for key in (model["key"], *model.get("fallback", ()))}
    if template_raw is None and _has_path(base, MODELS_FILE):
        template_raw = fs.read_bytes(base / MODELS_FILE, _LIMIT_BYTES)
    existing: dict[str, Any] = parse(template_raw, allow_bom=True) if template_raw else {}
    for key in used & existing.keys() & result.models.keys():
        if existing[key].get("model") != result.models[key]["model"]:
            result.add_remark(MODELS_FILE, f'"{key}" already exists for another model; it was not changed')
    return {key: result.models[key] for key in sorted(used & result.models.keys()) if key not in existing}


def append_keys(raw: bytes, document: dict[str, Any], missing: dict[str, Any]) -> bytes:
    """Append keys to a JSON object in its file. The layout of the rest stays unchanged."""
    merged = {**document, **missing}
    head, brace, tail = raw.rstrip().rpartition(b"}")
    lines = [f"  {dump_compact(key).decode()}: {dump_compact(value).decode()}" for key, value in missing.items()]
    text = b"," * bool(document) + ("\n" + ",\n".join(lines) + "\n").encode()
    return preserve_layout(head.rstrip() + text + brace + tail + b"\n", merged)


def _has_path(base: Path, path: str) -> bool:
    return (base / path).exists() or (base / path).is_symlink()


def _remove_secrets(resume: dict[str, Any], result: ImportResult, name: str) -> dict[str, Any]:
    """Return a resume without the secrets of the source, and add a remark for each."""
    secret_keys: list[str] = []

    def strip_secrets(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {inner_key: strip_secrets(item, inner_key) for inner_key, item in value.items()}
        if isinstance(value, list):
            return [strip_secrets(item) for item in value]
        if isinstance(value, str) and value and _SECRET.search(key) and not value.startswith("$"):
            secret_keys.append(key)
            return _LEFT_OUT
        return value

    clean = {key: strip_secrets(value) if key.startswith("x-") else value for key, value in resume.items()}
    for key in secret_keys:
        result.add_remark(name, f"the value of {key} was left out: use an environment variable")
    return clean
