"""Sidecar labels: files with the trust labels of other files, at `trust/<path of the file>.json`.

A sidecar label is written together with its file. A file without a sidecar label has the label of its owner.
`.all.json` in a folder labels everything below the folder, for the possible writes of a command. Of two
labels the later one counts; within a tick, the lower one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NamedTuple

from lemming.capabilities.trust.author_labels import OrgTrustLabeler
from lemming.capabilities.trust.trust_settings import AGENT, SourcedLabel
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty, parse
from lemming.kernel.base.paths import ALL_RESUMES, TRUST
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular, walk
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.libraries.lenient_json import parse_or_default

ALL = ".all.json"
LABEL_LIMIT_BYTES = 64 << 10
MAX_NAME_BYTES = 240  # a name has at most 255 bytes, and `.json` is added
_LABEL_LIKE = re.compile(r"\.json(\.d)*\Z")
_LIKE_ALL = re.compile(r"\.all\.*\Z")
_RESUME = re.compile(r"agents/[^/]+/resume\.json")
_NONE: Mapping[str, bytes] = {}


class SidecarLabel(NamedTuple):
    """The content of a sidecar label: the labelled file, the trust label, and the tick of the write."""

    file: str
    label: str
    tick: float


def get_label_path(path: str) -> str:
    """Return the path of a file's sidecar label, from `FileEffect.path_key`.

    >>> get_label_path("shared/notes.txt"), get_label_path("shared/a.json/b")
    ('trust/shared/notes.txt.json', 'trust/shared/a.json.d/b.json')
    """
    folder, _, name = path.rpartition("/")
    # A file called `.all` must not get the label that stands for its whole folder.
    if _LIKE_ALL.match(name):
        name = f"{name}."
    return f"{_label_folder(folder)}/{_short_name(name)}.json"


def get_folder_label_path(folder: str) -> str:
    """Return the path of the sidecar label for everything below a folder.

    >>> get_folder_label_path("shared")
    'trust/shared/.all.json'
    """
    return f"{_label_folder(folder)}/{ALL}"


def _label_folder(folder: str) -> str:
    """Return the folder for the sidecar labels of a folder's files. No subfolder name equals a label's name."""
    parts = ["@", *folder[1:].split("/")] if folder.startswith("/") else folder.split("/")
    names = [_short_name(f"{part}.d" if _LABEL_LIKE.search(part) else part) for part in parts if part]
    return "/".join([TRUST, *names])


def _short_name(name: str) -> str:
    raw = name.encode("utf-8", "replace")
    return name if len(raw) <= MAX_NAME_BYTES else sha256(raw).hexdigest()


def make_label_effect(file: str, label: str, tick: int, agent: str, sources: Iterable[SourcedLabel]) -> FileEffect:
    """Return the effect of writing a sidecar label: file, label, author, tick and sources.

    A `file` ending with `/` stands for everything below the folder.
    """
    label_path = get_folder_label_path(file[:-1]) if file.endswith("/") else get_label_path(file)
    source_records = [{"is": source.label, "of": source.source} for source in sources]
    record = {"file": file, "trust": label, "tick": tick, "agent": agent, "from": source_records}
    return FileEffect(label_path, dump_pretty(record))


def _enclosing_label_paths(path: str) -> Iterator[str]:
    """Yield the paths of the folder labels covering a file."""
    while (path := path.rpartition("/")[0]) and path != "/":
        yield get_folder_label_path(path)


class SidecarLabels:
    """The sidecar labels of an organisation as one turn sees them. `staged` are files not yet on disk."""

    def __init__(self, org: Organisation, authors: OrgTrustLabeler, staged: Mapping[str, bytes] = _NONE) -> None:
        self._org, self._authors, self._staged = org, authors, staged
        self._staged_marks = sorted(path for path in staged if path.startswith(f"{TRUST}/"))
        self._has_any = bool(self._staged_marks) or path_exists(f"{org.base}/{TRUST}")

    def get_label(self, path: str) -> SourcedLabel:
        """Return the trust label of a file, endorsements included. `path` as in `FileEffect.path_key`."""
        label = self._authors.apply_endorsements(self.get_raw_label(path), path, lambda: self._file_digest(path))
        return SourcedLabel(label, path)

    def get_raw_label(self, path: str) -> str:
        """Return the trust label of a file without endorsements."""
        order = self._authors.order
        labels = [self._folder_default_label(path)]
        if self._has_any:
            own_label = self._read_label(get_label_path(path))
            enclosing = filter(None, map(self._read_label, _enclosing_label_paths(path)))
            # Labels hold ticks only: of two from one tick either may be the later.
            labels += [mark.label for mark in enclosing if own_label is None or mark.tick >= own_label.tick]
            labels += [own_label.label] if own_label else []
        return order.lowest(labels)

    def iter_folder_labels(self, path: str) -> Iterator[SourcedLabel]:
        """Yield the labels of files below a folder, and the folder's default. `path` as in `FileEffect.path_key`."""
        yield SourcedLabel(self._folder_default_label(path), path)
        for folder, label in self._authors.folder_labels.items():
            is_below = path == "/" or folder.startswith(f"{path}/")
            if is_below and _is_nonempty_folder(os.path.join(self._org.base, folder)):
                yield SourcedLabel(label, folder)
        if not self._has_any:
            return
        for enclosing_mark in filter(None, map(self._read_label, _enclosing_label_paths(f"{path}/"))):
            yield SourcedLabel(enclosing_mark.label, path)
        for label_path in self._all_paths():
            if (mark := self._read_label(label_path)) and _is_label_inside(mark, label_path, path):
                label = self._authors.order.normalize(mark.label)
                if not self._authors.order.is_untrusted(label):
                    continue
                if not mark.file or mark.file.endswith("/"):
                    yield SourcedLabel(label, mark.file or label_path)
                elif mark.file in self._staged or path_exists(os.path.join(self._org.base, mark.file)):
                    yield self.get_label(mark.file)

    def _file_digest(self, path: str) -> str:
        """Return the SHA-256 of a file in hex, empty without a regular file."""
        if path in self._staged:
            return sha256(self._staged[path]).hexdigest()
        return compute_file_digest(self._org, path)

    def _folder_default_label(self, path: str) -> str:
        """Return the default label of a file by location, for example in a channel's folder."""
        labels = self._authors.folder_labels.items()
        enclosing_labels = [label for folder, label in labels if f"{path}/".startswith(f"{folder}/")]
        return self._authors.order.lowest((AGENT, *enclosing_labels))

    def _all_paths(self) -> Iterator[str]:
        """Yield the paths of all sidecar labels, sorted."""
        paths = set(self._staged_marks)
        prefix_length = len(f"{self._org.base}/")
        for _, _, files in walk(f"{self._org.base}/{TRUST}"):
            paths.update(file.path[prefix_length:] for file in files if file.name.endswith(".json"))
        yield from sorted(paths)

    def _read_label(self, label_path: str) -> SidecarLabel | None:
        """Return the sidecar label at a path, or None if absent. A damaged label permanently means the lowest trust."""
        if label_path in self._staged:
            return _decode(self._staged[label_path])
        try:
            return self._org.files.get_value(label_path, _decode, limit_bytes=LABEL_LIMIT_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return _DAMAGED


def iter_untrusted_files(
    org: Organisation, config: Config, resumes: Mapping[str, Agent], tick: int, files: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield the files with less trust than the organisation's own files, each with its trust label."""
    authors = OrgTrustLabeler(org, config, resumes, tick)
    sidecar_labels = SidecarLabels(org, authors)
    for path in files:
        if authors.order.is_untrusted(label := sidecar_labels.get_label(path).label):
            yield path, label


def make_import_label(file: str, label: str) -> tuple[str, bytes]:
    """Return path and content of the sidecar label of an imported file, which no turn wrote."""
    effect = make_label_effect(file, label, 0, "", ())
    return effect.path, effect.content


def compute_file_digest(base: OrgPath, path: str) -> str:
    """Return the SHA-256 of a file in hex, empty without a regular file. Raises `DiskError` for an unreadable file."""
    full_path = os.path.join(base, path)
    try:
        with open_regular(full_path) as file:
            return file_digest(file, "sha256").hexdigest()
    except ValueError:
        return ""
    except OSError as error:
        # A read that the disk refused must not decide if an endorsement counts.
        require_about_one_file(full_path, error)
        return ""


def _is_nonempty_folder(folder: str) -> bool:
    """Return True if a folder contains any entry."""
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError as error:
        require_about_one_file(folder, error)
        return False


def _is_label_inside(sidecar_label: SidecarLabel, label_path: str, folder: str) -> bool:
    if folder == ALL_RESUMES:  # elsewhere a star is an ordinary letter of a name
        return bool(_RESUME.fullmatch(sidecar_label.file))
    if folder == "/" or not sidecar_label.file:
        return folder == "/" or label_path.startswith(f"{_label_folder(folder)}/")
    return sidecar_label.file == folder or sidecar_label.file.startswith(f"{folder}/")


_DAMAGED = SidecarLabel("", "", float("inf"))  # the least trusted, and no later label replaces it


def _decode(raw: bytes) -> SidecarLabel:
    match parse_or_default(raw, None, limit_bytes=LABEL_LIMIT_BYTES):
        case {"file": str(file), "trust": str(word), "tick": int(tick)}:
            return SidecarLabel(file, word, tick)
    return _DAMAGED


@contextmanager
def move_labels(base: OrgPath, old: str, new: str) -> Iterator[None]:
    """Copy the sidecar labels of a folder to its new name, and delete the old labels after the rename."""
    # Before the rename: a crash in between must leave no file without its label.
    old_labels, new_labels = f"{base}/{_label_folder(old)}", _label_folder(new)
    for _, _, files in walk(old_labels):
        for label_file in files:
            raw = fs.read_bytes(label_file.path, LABEL_LIMIT_BYTES)
            with suppress(JsonProblem, KeyError, TypeError):  # a damaged label is copied as it is
                record: Any = parse(raw, limit_bytes=LABEL_LIMIT_BYTES)
                raw = dump_pretty({**record, "file": new + str(record["file"]).removeprefix(old)})
            fs.write_atomic(Path(base), f"{new_labels}{label_file.path.removeprefix(old_labels)}", raw)
    try:
        yield
    except DiskError:
        if path_exists(f"{base}/{old}") and not path_exists(f"{base}/{new}"):  # the folder keeps its old name
            _delete_labels(base, new)
        raise
    _delete_labels(base, old)


def _delete_labels(base: OrgPath, folder: str) -> None:
    if os.path.isdir(f"{base}/{_label_folder(folder)}"):
        fs.remove_tree(Path(base), _label_folder(folder))
