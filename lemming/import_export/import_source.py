"""An import: the source folder, the result (resumes, other files, models, remarks), and its files.

The source folder is untrusted: reads are limited in size, and links are not followed. Existing files of the
organisation are never overwritten.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lemming.import_export.apply_document import PlannedWrite, plan_writes
from lemming.import_export.org_document import OrgDocument
from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.base.paths import MODELS_FILE
from lemming.kernel.files import fs
from lemming.kernel.files.disk_errors import raises_disk_error
from lemming.libraries.front_matter import InvalidFrontMatter, parse_front_matter, split_front_matter

TEXT_LIMIT_BYTES = 256 << 10
FILE_LIMIT_BYTES = 4 << 20
MAX_FILES = 2000
MAX_DEPTH = 6
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})


class ImportSource:
    """A folder of another program, with relative paths. Each unreadable file becomes a remark."""

    def __init__(self, folder: Path, remarks: list[Remark]) -> None:
        self.folder, self._remarks = folder, remarks

    def list_folder(self, folder: str = "") -> tuple[list[str], list[str]]:
        """Return the sorted names of the folders and of the files in a folder, without links."""
        folders, files = [], []
        for entry in self._scan_folder(folder):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            else:
                description = "a link" if entry.is_symlink() else "no file"
                self._add_remark(_join_path(folder, entry.name), f"{description}: left out")
        return sorted(folders), sorted(files)

    def walk_files(self, folder: str) -> list[str]:
        """Return the sorted relative paths of all files below a folder, without hidden folders."""
        paths, pending = list[str](), [("", 0)]
        while pending and len(paths) <= MAX_FILES:
            current, depth = pending.pop()
            folders, files = self.list_folder(_join_path(folder, current))
            paths += [_join_path(current, name) for name in files]
            children = [name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS]
            pending += [(_join_path(current, name), depth + 1) for name in children if depth < MAX_DEPTH]
        if len(paths) > MAX_FILES:
            self._add_remark(folder or ".", f"more than {MAX_FILES} files; the rest is left out")
        return sorted(paths)[:MAX_FILES]

    def read_bytes(self, path: str, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes | None:
        """Return the bytes of a file, or None for a missing file. An unreadable or oversized file adds a remark."""
        if self._has_symlink(path):
            return None
        try:
            raw = fs.read_bytes(self.folder / path, limit_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._add_remark(path, f"cannot be read: {error.strerror}")
            return None
        if len(raw) > limit_bytes:
            self._add_remark(path, f"has more than {limit_bytes} bytes: left out")
            return None
        return raw

    def read_text(self, path: str) -> str | None:
        """Return the text of a file, or None as in `read_bytes` and for invalid UTF-8."""
        raw = self.read_bytes(path, TEXT_LIMIT_BYTES)
        if raw is None:
            return None
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            self._add_remark(path, "is not UTF-8 text: left out")
            return None

    def read_markdown(self, path: str) -> tuple[dict[str, Any], str] | None:
        """Return the front matter of a Markdown file and the text, or None as in `read_text`."""
        text = self.read_text(path)
        if text is None:
            return None
        try:
            header, body = split_front_matter(text)
            return ({} if header is None else parse_front_matter(header)), body.strip()
        except InvalidFrontMatter as error:
            location = f"line {error.line}: " if error.line else ""
            self._add_remark(path, f"{location}{error}: left out")
            return None

    def _scan_folder(self, folder: str) -> list[os.DirEntry[str]]:
        if self._has_symlink(folder):
            return []
        try:
            return _scan_entries(self.folder / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._add_remark(folder or ".", f"cannot be listed: {error.strerror}")
            return []

    def _has_symlink(self, path: str) -> bool:
        """Return True if the path or a parent folder is a link, with a single remark."""
        parts = path.split("/") if path else []
        for depth in range(len(parts)):
            partial_path = "/".join(parts[: depth + 1])
            if (self.folder / partial_path).is_symlink():
                self._add_remark(partial_path, "a link: left out")
                return True
        return False

    def _add_remark(self, path: str, message: str) -> None:
        remark = Remark(path, message)
        if remark not in self._remarks:
            self._remarks.append(remark)


@raises_disk_error
def _scan_entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.name.isprintable()]


def open_source(folder: Path, remarks: list[Remark]) -> ImportSource:
    """Return the source folder named by the user. Raises: UsageError for a missing folder."""
    path = folder.expanduser().absolute()
    if not path.is_dir():
        raise UsageError("the folder does not exist", where=str(path), hint="name the folder to import from")
    return ImportSource(path, remarks)


def _join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name


# --- result of an import -------------------------------------------------------------------------


class Remark(NamedTuple):
    """A note for the user about a file of the source."""

    file: str
    message: str


@dataclass(frozen=True)
class ImportTarget:
    """Facts about the organisation for importers: tools, persons, and location.

    `is_in_place`: the source is the organisation's own folder, so files readable in place are not copied.
    """

    tools: Collection[str]
    people: tuple[str, ...]
    is_in_place: bool = False


@dataclass
class ImportResult:
    """Result of an import. `optional`: shared guides and skills by path, skipped where the path exists."""

    resumes: dict[str, dict[str, Any]] = field(default_factory=dict)
    optional: dict[str, bytes] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def add_remark(self, file: str, message: str) -> None:
        """Add a remark for the user."""
        self.remarks.append(Remark(file, message))


# --- writing an import ----------------------------------------------------------------------------


_SECRET = re.compile(r"(?:api_?key|access_?key|private_?key|token|secret|password|authorization)\Z", re.IGNORECASE)
_LEFT_OUT = "(left out)"
_LIMIT_BYTES = 1 << 20


def plan_import(base: Path, result: ImportResult, template: Mapping[str, bytes]) -> list[PlannedWrite]:
    """Return the writes of an import, with the `template` of a new organisation.

    An agent with an invalid resume is left out with a remark, as is a different existing guide or skill. Raises:
    UsageError if a file of an agent exists, except for the files of an interrupted import.
    """
    files: dict[str, bytes] = {}
    for name, resume in list(result.resumes.items()):
        file = paths.resume_file(name)
        result.resumes[name] = _remove_secrets(resume, result, name)
        content = dump_pretty(result.resumes[name])
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
    models = _merge_models(base, result, template.get(MODELS_FILE))
    settings = {MODELS_FILE: models} if models else {}
    return plan_writes(base, OrgDocument(result.resumes, settings, _select_optional_files(base, result), []), template)


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
