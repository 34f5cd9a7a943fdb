"""An organisation as one document, which `lemming apply` takes back. What was said in it is no part of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lemming.exchange.one_file import IN_PARTS, LIMIT_BYTES, is_taken
from lemming.exchange.shorthand import resume_of, words_of
from lemming.kernel.agents import RESUME_LIMIT_BYTES, Survey, decode_resume, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.counter import load_tick

Json = dict[str, Any]
LARGEST_BYTES = 64 << 10
_TOPS = ("AGENTS.md", "agents", "config", "evals", "shared", "skills", "tools")
_DONE = "done"  # what a folder channel has taken


def document_of_org(org: Organisation, template: Mapping[str, bytes]) -> tuple[Json, list[str]]:
    """Return the document, and the files that have no place in it: no text, too long, too many.

    What stands in the `template` that a new organisation begins with need not be said.

    Raises `ConfigError` for a resume that is broken, and for settings that are, or are gone: a document
    without gates is one of an organisation that has none.
    """
    base = org.base
    load_config(org)
    survey = survey_agents(org)
    for error in survey.broken.values():
        raise error
    agents = {}
    for name in survey.agents:
        raw = fs.read_bytes(base / paths.resume_file(name), RESUME_LIMIT_BYTES)
        if template.get(paths.resume_file(name)) != raw:
            agents[name] = _in_words(name, parse(raw, allow_bom=True))
    parts = {part: _settings(base, file, template) for part, file in IN_PARTS.items()}
    files, left = _files(base, template)
    document = {"agents": agents, **parts, "files": files, "trust": dict(_labels(org, survey, files))}
    return {part: value for part, value in document.items() if value}, left


def _in_words(name: str, plain: Json) -> Json:
    plain.pop("$schema", None)
    words = words_of(plain)
    meant = pretty(resume_of(name, words))
    if decode_resume(name, meant).value == decode_resume(name, pretty(plain)).value:
        return words
    return {key: value for key, value in plain.items() if key != "name"}


def _settings(base: Path, file: str, template: Mapping[str, bytes]) -> Json:
    try:
        plain: Json = parse(fs.read_bytes(base / file, LIMIT_BYTES), allow_bom=True)
    except FileNotFoundError:
        return {}
    usual: Json = parse(template.get(file, b"{}"))
    return {key: value for key, value in plain.items() if key not in usual or usual[key] != value}


def _labels(org: Organisation, survey: Survey, files: Json) -> Iterator[tuple[str, str]]:
    """Yield the files that are trusted less than those of the organisation's own, and how far they are."""
    if not (config := load_config(org)).org.further.get("trust"):
        return
    from lemming.capabilities.trust.authors import Authors
    from lemming.capabilities.trust.marks import Marks

    authors = Authors(org, config, survey.agents, load_tick(org))
    marks = Marks(org, authors)
    for path in files:
        if authors.order.is_low(word := marks.of(path).word):
            yield path, word


def _files(base: Path, template: Mapping[str, bytes]) -> tuple[Json, list[str]]:
    found: Json = {}
    left, total = [], 0
    for path in _paths(base):
        raw = fs.read_bytes(base / path, LARGEST_BYTES + 1)
        total += len(raw)
        text = raw.decode("utf-8", "replace")
        if template.get(path) == raw:
            continue
        if len(raw) > LARGEST_BYTES or text.encode() != raw or total > LIMIT_BYTES // 2:
            left.append(path)
        else:
            found[path] = text
    return found, left


def _paths(base: Path) -> Iterator[str]:
    for top in _TOPS:
        place = base / top
        below = sorted(place.rglob("*")) if place.is_dir() and not place.is_symlink() else [place]
        for file in below:
            path = file.relative_to(base).as_posix()
            is_ours = not any(part.startswith(".") or part == _DONE for part in Path(path).parts)
            if is_ours and file.is_file() and not file.is_symlink() and is_taken(path):
                yield path


# --- as YAML that a person reads -----------------------------------------------------------------
# Texts of several lines as blocks, keys in their order.


_WIDTH = 100
_TEXT, _LIST = "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq"


def yaml_of(document: dict[str, Any]) -> str:
    """Return a document of JSON values as YAML, as `load_yaml` reads it back."""
    import yaml  # only where there is any

    dumper: Any = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})
    dumper.add_representer(str, _text)
    dumper.add_representer(list, _list)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text


def _text(dumper: Any, text: str) -> Any:
    is_block = "\n" in text and not text.startswith((" ", "\n"))
    return dumper.represent_scalar(_TEXT, text, style="|" if is_block else None)


def _list(dumper: Any, items: list[Any]) -> Any:
    is_short = all(isinstance(item, str | int | float) for item in items) and len(str(items)) < _WIDTH
    return dumper.represent_sequence(_LIST, items, flow_style=is_short)
