"""The page as files that open from disk: its own files, and what it shows as scripts beside them.

A browser lets a page from disk fetch nothing, but it may load scripts; each file of data is one call with one
text of JSON, so that nothing an agent wrote is ever code or markup.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.files import fs
from lemming.kernel.files.outputs import put_private_output, without_secrets

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


def place_for(base: Path, given: Path) -> Path:
    """Return the folder for a report; raise `UsageError` where there is something else already."""
    folder = Path(os.path.abspath(given.expanduser()))
    if folder.resolve().is_relative_to(base.resolve()):
        hint = f"name a folder elsewhere: {base.resolve().parent / 'report'}"
        raise UsageError("a report cannot be inside the organisation", where=str(folder), hint=hint)
    if not os.path.lexists(folder):
        return folder
    if not folder.is_dir():
        raise UsageError("that is no folder", where=str(folder), hint="name a new one")
    if any(folder.iterdir()) and not _is_report(folder):
        hint = "name a new folder, an empty one, or one that `lemming report` wrote"
        raise UsageError("there is something else in this folder", where=str(folder), hint=hint)
    return folder


def _is_report(folder: Path) -> bool:
    try:
        return MARK.encode() in fs.read_bytes(folder / "index.html", 64 << 20)
    except OSError:
        return False


@dataclass
class Shelf:
    """The folder of a report as it is filled: values by their keys, several in a file of data."""

    folder: Path
    files: list[str] = field(default_factory=list)
    total_bytes: int = 0
    keys: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, Json] = field(default_factory=dict)

    def put(self, name: str, values: Mapping[str, Any], *, most: int | None = None) -> int:
        """Write a file of data with values by their keys; return how long it is.

        One that is longer than `most` is not written, and 0 is returned.
        """
        content = _call(name, values)
        if most is not None and len(content) > most:
            return 0
        self.keys[name] = [*values]
        return self._write(f"data/{name}.js", content)

    def put_index(self, facts: Json) -> None:
        """Write, last of all, which file has what, with what else the page is to know."""
        index = _call("index", {**facts, "files": self.keys, "errors": self.errors})
        self._write("data/index.js", index)
        written = {*self.files}
        for stale in sorted((self.folder / "data").glob("*.js")):
            if (relative := f"data/{stale.name}") not in written:
                fs.remove(self.folder, relative)

    def put_page(self, summary: str) -> None:
        """Write the page itself, with a summary for who has no JavaScript, and the files it is made of."""
        page = (STATIC / "index.html").read_text()
        fs.make_root(self.folder)
        before, _, after = page.partition("<noscript>")
        page = f"{before}<noscript>{summary}</noscript>{after.partition('</noscript>')[2]}"
        policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        page = page.replace('<meta charset="utf-8">\n', f'<meta charset="utf-8">\n{policy}\n{MARK}\n', 1)
        self._write("index.html", page.replace(_LIBRARY, _LIBRARY + _READS, 1).encode())
        for file in sorted(it for it in STATIC.rglob("*") if it.is_file()):
            if file.name != "index.html":
                self._write(f"static/{file.relative_to(STATIC).as_posix()}", file.read_bytes())
        self._write("static/on_disk.js", READER.read_bytes())

    def value_or_none(self, key: str, make: Callable[[], Any]) -> Any:
        """Return what `make` gives; None, and remember why under the key, where it raises an error."""
        try:
            return make()
        except LemmingError as error:
            self.errors[key] = error.as_json()
            return None

    def _write(self, relative: str, content: bytes) -> int:
        put_private_output(self.folder, relative, content)
        self.files.append(relative)
        self.total_bytes += len(content)
        return len(content)


def _call(name: str, values: Mapping[str, Any]) -> bytes:
    text = compact(without_secrets(values, compact).decode()).decode()
    return f'Lemming.put("{name}", {text});\n'.encode()


def key_of(view: str, /, **parameters: object) -> str:
    """Return under which key a value of a view stands; the reader makes the same of what is asked for.

    >>> key_of("tick", number=3, first=100)
    'tick\\nfirst=100\\nnumber=3'
    """
    return "\n".join((view, *(f"{name}={parameters[name]}" for name in sorted(parameters))))
