"""The page as files to open from disk: static files, and the data as scripts.

A browser does not let a page from disk fetch files, but does load scripts. Each data file is a call with a
single JSON text, so text written by an agent is never code or markup.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.files import fs
from lemming.libraries.atomic_folder import require_outside
from lemming.libraries.output_files import without_secrets, write_private_output

Json = dict[str, Any]

STATIC = Path(__file__).parent / "static"
READER = Path(__file__).parent / "on_disk.js"
MARK = '<meta name="generator" content="lemming report">'
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data:; "
    "base-uri 'none'; form-action 'none'"
)
_READS = '<script defer src="static/on_disk.js"></script>\n<script defer src="data/index.js"></script>\n'
_LIBRARY = '<script defer src="static/lemming.js"></script>\n'


def resolve_report_folder(base: Path, path: Path) -> Path:
    """Return the folder for a report. Raises: UsageError if it contains other files or is inside the organisation."""
    folder = Path(os.path.abspath(path.expanduser()))
    require_outside(base, folder, subject="a report")
    if not os.path.lexists(folder):
        return folder
    if not folder.is_dir():
        raise UsageError("not a folder", where=str(folder), hint="name a new one")
    is_report = False
    with contextlib.suppress(OSError):
        is_report = MARK.encode() in fs.read_bytes(folder / "index.html", 64 << 20)
    if any(folder.iterdir()) and not is_report:
        hint = "name a new folder, an empty folder, or an earlier report"
        raise UsageError("the folder has other content", where=str(folder), hint=hint)
    return folder


@dataclass
class ReportFolder:
    """A report folder under construction: values by key, several in each data file."""

    folder: Path
    files: list[str] = field(default_factory=list)
    total_bytes: int = 0
    keys: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, Json] = field(default_factory=dict)

    def write_data(self, name: str, values: Mapping[str, Any], *, max_bytes: int | None = None) -> int:
        """Write a data file with values by key. Return its length in bytes, or 0 if over `max_bytes`, unwritten."""
        content = _format_script(name, values)
        if max_bytes is not None and len(content) > max_bytes:
            return 0
        self.keys[name] = [*values]
        return self._write(f"data/{name}.js", content)

    def write_index(self, facts: Json) -> None:
        """Write the index of keys by data file with facts for the page, and remove stale data files. Call this last."""
        index = _format_script("index", {**facts, "files": self.keys, "errors": self.errors})
        self._write("data/index.js", index)
        current_files = {*self.files}
        for stale in sorted((self.folder / "data").glob("*.js")):
            if (relative := f"data/{stale.name}") not in current_files:
                fs.remove(self.folder, relative)

    def write_page(self, summary: str) -> None:
        """Write the page with all static files, and a summary for browsers without JavaScript."""
        page = (STATIC / "index.html").read_text()
        fs.make_root(self.folder)
        head, _, tail = page.partition("<noscript>")
        page = f"{head}<noscript>{summary}</noscript>{tail.partition('</noscript>')[2]}"
        policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        page = page.replace('<meta charset="utf-8">\n', f'<meta charset="utf-8">\n{policy}\n{MARK}\n', 1)
        self._write("index.html", page.replace(_LIBRARY, _LIBRARY + _READS, 1).encode())
        for file in sorted(path for path in STATIC.rglob("*") if path.is_file()):
            if file.name != "index.html":
                self._write(f"static/{file.relative_to(STATIC).as_posix()}", file.read_bytes())
        self._write("static/on_disk.js", READER.read_bytes())

    def make_or_record_error(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, or None on an error, which is recorded under `key`."""
        try:
            return make()
        except LemmingError as error:
            self.errors[key] = error.as_json()
            return None

    def _write(self, relative: str, content: bytes) -> int:
        write_private_output(self.folder, relative, content)
        self.files.append(relative)
        self.total_bytes += len(content)
        return len(content)


def _format_script(name: str, values: Mapping[str, Any]) -> bytes:
    text = dump_compact(without_secrets(values, dump_compact).decode()).decode()
    return f'Lemming.put("{name}", {text});\n'.encode()


def make_view_key(view: str, /, **parameters: object) -> str:
    """Return the key of a view's value. The script on_disk.js builds the same key.

    >>> make_view_key("tick", number=3, first=100).splitlines()
    ['tick', 'first=100', 'number=3']
    """
    return "\n".join((view, *(f"{name}={parameters[name]}" for name in sorted(parameters))))
