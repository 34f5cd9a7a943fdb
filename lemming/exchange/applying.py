"""Putting one document into an organisation: what would change, and writing that."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lemming.exchange.one_file import LIMIT_BYTES, TOOLS, OrgPieces
from lemming.exchange.putting import with_keys
from lemming.exchange.shorthand import WordDefaults
from lemming.kernel.agents import RESUME_LIMIT_BYTES, Agent, decode_resume, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import parse, pretty, to_line
from lemming.kernel.base.times.zones import why_no_zone
from lemming.kernel.files import fs
from lemming.kernel.files.whole_folder import put_whole
from lemming.kernel.org.changing import lock_folders
from lemming.kernel.org.config import ORG_FILE, Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.firing_plan import is_for_a_person

Json = dict[str, Any]
_LOCAL, _NAMES = Path("/etc/localtime"), "zoneinfo/"


class Change(NamedTuple):
    """A file that is not as the document wants it: what it is to hold, and what it holds, if it is there."""

    path: str
    content: bytes
    was: bytes | None

    @property
    def kind(self) -> Literal["new", "changed"]:
        """Return True if the file exists."""
        return "new" if self.was is None else "changed"


def surroundings(agents: Mapping[str, Agent], config: Config) -> WordDefaults:
    """Return what one more agent comes into: the persons, and the zone of an hour that names none."""
    persons = tuple(name for name, agent in agents.items() if is_for_a_person(agent, config))
    return WordDefaults(persons, "" if config.org.timezone else _zone_here())


def there(org: Organisation, config: Config) -> tuple[list[str], WordDefaults]:
    """Return the agents of an organisation, and what one more comes into."""
    agents = survey_agents(org).agents
    return list(agents), surroundings(agents, config)


def new() -> tuple[list[str], WordDefaults]:
    """Return what `there` does, of an organisation that is yet to be made."""
    return ["human"], WordDefaults(("human",), _zone_here())


def changes_of(base: Path, wanted: OrgPieces, template: Mapping[str, bytes]) -> list[Change]:
    """Return what has to be written, resumes last; `template` is what a new organisation begins with.

    Raises `ConfigError` for a file that is there and broken.
    """
    found = [
        *_of_settings(base, wanted, template),
        *_of_files(base, wanted),
        *_of_resumes(base, wanted, template),
    ]
    written = {change.path for change in found}
    left = [Change(path, raw, None) for path, raw in template.items() if path not in written]
    return [*left, *found]


def write_new(base: Path, changes: list[Change]) -> None:
    """Write the files of a new organisation, all of them or none."""
    with put_whole(base, "apply") as staged:
        for change in changes:
            fs.publish(staged, change.path, change.content)


def write(base: Path, changes: list[Change]) -> None:
    """Write them, resumes last, so that no agent takes a turn before its files and its model are there.

    Raises `UsageError`, and writes nothing, where another command has changed a file since these changes were
    made out: what that wrote would be lost.
    """
    with lock_folders(base, (change.path for change in changes if change.was is not None)):
        for change in changes:
            if _read(base, change.path) != change.was:
                hint = "give the command again: it starts from what the file says now"
                message = "the file has changed meanwhile; nothing was written"
                raise UsageError(message, where=change.path, hint=hint)
        for change in sorted(changes, key=lambda it: it.path.endswith("/resume.json")):
            if change.was is not None:
                fs.publish(base, change.path, change.content)
            elif not fs.create(base, change.path, change.content):
                raise UsageError(f"{change.path} came meanwhile; the rest was not written", where=str(base))


def _of_settings(base: Path, wanted: OrgPieces, template: Mapping[str, bytes]) -> Iterator[Change]:
    for path, said in wanted.settings.items():
        there = _read(base, path)
        raw = there if there is not None else template.get(path, b"{}\n")
        plain = _object(raw, path)
        if path == ORG_FILE and said.get("tool_files") == [TOOLS]:
            said = {**said, "tool_files": [*dict.fromkeys([*plain.get("tool_files", []), TOOLS])]}
        if plain | said != plain:
            added = {key: value for key, value in said.items() if key not in plain}
            replaced = {key for key, value in said.items() if key in plain and plain[key] != value}
            # where keys are only added, the file keeps the form that people gave it
            content = _lines_of(plain | said) if replaced else with_keys(raw, plain, added)
            yield Change(path, content, there)
        elif there is None:
            yield Change(path, raw, None)


def _lines_of(plain: Json) -> bytes:
    """Return settings with a line for each key, as the templates have them."""
    lines = [f"  {to_line(key)}: {to_line(value)}" for key, value in plain.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _of_files(base: Path, wanted: OrgPieces) -> Iterator[Change]:
    for path, content in wanted.files.items():
        there = _read(base, path)
        if there is not None and path.startswith(f"{paths.TRUST}/"):
            continue  # a document raises no mark that stands there
        if there != content:
            yield Change(path, content, there)


def _of_resumes(base: Path, wanted: OrgPieces, template: Mapping[str, bytes]) -> Iterator[Change]:
    for name, plain in wanted.resumes.items():
        path = paths.resume_file(name)
        there, content = _read(base, path), pretty(plain)
        if there is None or not _is_same(name, there, content):
            yield Change(path, content, there)
    readers: dict[str, list[str]] = {}
    for reader, read in wanted.read_by:
        readers.setdefault(reader, []).append(read)
    for reader, names in readers.items():
        path = paths.resume_file(reader)
        there = _read(base, path)
        plain = _object(there or template.get(path, b"{}"), path)
        permissions = dict(plain.get("permissions") or {})
        before = permissions.get("read_outboxes", [])
        after = [*dict.fromkeys([*before, *names])]
        if "*" not in before and after != before:
            permissions["read_outboxes"] = after
            yield Change(path, pretty({**plain, "permissions": permissions}), there)


def _is_same(name: str, there: bytes, wanted: bytes) -> bool:
    try:
        return decode_resume(name, there).value == decode_resume(name, wanted).value
    except ConfigError:  # a broken one is mended
        return False


def _read(base: Path, path: str) -> bytes | None:
    try:
        return fs.read_bytes(base / path, max(LIMIT_BYTES, RESUME_LIMIT_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=path) from error


def _object(raw: bytes, path: str) -> Json:
    try:
        plain = parse(raw, allow_bom=True)
    except ValueError as error:
        raise ConfigError(f"it is no JSON: {error}", where=path, hint="`lemming validate`") from error
    if not isinstance(plain, dict):
        raise ConfigError("expected an object", where=path, hint="`lemming validate`")
    return plain


def _zone_here() -> str:
    """Return the name of the zone that `TZ` or the system says, such as Europe/Berlin; else UTC."""
    try:
        _, _, system = os.readlink(_LOCAL).partition(_NAMES)
    except OSError:
        system = ""
    for name in (os.environ.get("TZ", "").removeprefix(":"), system):
        if name and not why_no_zone(name):
            return name.removeprefix("Etc/") if name == "Etc/UTC" else name
    return "UTC"
