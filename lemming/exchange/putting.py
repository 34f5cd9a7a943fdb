"""Putting what an importer has taken into an organisation. Nothing that is there is written over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lemming.exchange.source import Taken
from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import as_laid_out, compact, parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import MODELS_FILE

_SECRET = re.compile(
    r"(?:api_?key|access_?key|private_?key|token|secret|password|authorization)\Z", re.IGNORECASE
)
_LEFT_OUT = "(left out)"
_LIMIT_BYTES = 1 << 20


class Put(NamedTuple):
    """Files to be written, by path, and the lines that `config/models.json` lacks, by their keys."""

    files: dict[str, bytes]
    models: dict[str, Any]


def put_together(base: Path, taken: Taken, template: Mapping[str, bytes]) -> Put:
    """Return what an import writes, beside the `template` of a new organisation.

    Raises `UsageError` when a file of an agent is there already, but for those of an import cut off.

    An agent whose resume would be none is left out, and told of, as is a guide or skill that is there.
    """
    files: dict[str, bytes] = {}
    for name, resume in list(taken.resumes.items()):
        file, kept = paths.resume_file(name), _without_secrets(resume, taken, name)
        content = pretty(kept)
        try:
            decode_resume(name, content)
        except ConfigError as error:
            taken.remark(file, f"{error.message}: left out")
            del taken.resumes[name]
            continue
        files[file] = content
    own = {path: raw for path, raw in taken.files.items() if _agent_in(path) in taken.resumes}
    agents = {**files, **own}
    there = [path for path in agents if _is_there(base, path)]
    was_cut_off = len(there) < len(agents) and all(fs.holds(base / path, agents[path]) for path in there)
    if there and not was_cut_off:
        names = ", ".join(there[:4]) + (", ..." if len(there) > 4 else "")
        hint = "rename them there, or move these away: `lemming agents rename`"
        raise UsageError(f"{names} already there; nothing was written", where=str(base), hint=hint)
    return Put({**files, **own, **_optional(base, taken)}, _models(base, taken, template.get(MODELS_FILE)))


def write(base: Path, put: Put) -> None:
    """Write it, resumes last, so that no agent takes a turn before its files and its model are there."""
    if put.models:
        with changing_file(base, MODELS_FILE) as opened:
            plain = parse(opened.raw, allow_bom=True)
            missing = {key: line for key, line in put.models.items() if key not in plain}
            if missing:
                opened.publish(with_keys(opened.raw, plain, missing))
    for path in sorted(put.files, key=lambda path: (path.endswith("/resume.json"), path)):
        if not fs.create(base, path, put.files[path]) and not fs.holds(base / path, put.files[path]):
            raise UsageError(f"{path} came meanwhile; the rest was not written", where=str(base))


def _optional(base: Path, taken: Taken) -> dict[str, bytes]:
    found = {}
    for path, raw in taken.optional.items():
        if not _is_there(base, path):
            found[path] = raw
        elif fs.read_bytes(base / path, len(raw) + 1) != raw:
            taken.remark(path, "is there already and says something else; it was left as it is")
    return found


def _models(base: Path, taken: Taken, made: bytes | None) -> dict[str, Any]:
    """Return the lines that the models' file lacks; `made` is the file of a new organisation."""
    models = [resume["model"] for resume in taken.resumes.values()]
    used = {key for model in models for key in (model["key"], *model.get("fallback", ()))}
    if made is None and _is_there(base, MODELS_FILE):
        made = fs.read_bytes(base / MODELS_FILE, _LIMIT_BYTES)
    plain: dict[str, Any] = parse(made, allow_bom=True) if made else {}
    for key in used & plain.keys() & taken.models.keys():
        if plain[key].get("model") != taken.models[key]["model"]:
            taken.remark(MODELS_FILE, f'"{key}" is there already, for another model; it was left as it is')
    return {key: taken.models[key] for key in sorted(used & taken.models.keys()) if key not in plain}


def with_keys(raw: bytes, plain: dict[str, Any], missing: dict[str, Any]) -> bytes:
    """Return a JSON object's file with more keys at its end; the rest stays as a person has laid it out."""
    wanted = {**plain, **missing}
    before, brace, after = raw.rstrip().rpartition(b"}")
    lines = [f"  {compact(key).decode()}: {compact(value).decode()}" for key, value in missing.items()]
    text = b"," * bool(plain) + ("\n" + ",\n".join(lines) + "\n").encode()
    return as_laid_out(before.rstrip() + text + brace + after + b"\n", wanted)


def _agent_in(path: str) -> str:
    return path.split("/")[1] if path.startswith("agents/") else ""


def _is_there(base: Path, path: str) -> bool:
    return (base / path).exists() or (base / path).is_symlink()


def _without_secrets(resume: dict[str, Any], taken: Taken, name: str) -> dict[str, Any]:
    """Return a resume that keeps no secret of its source."""
    found: list[str] = []

    def kept(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {each: kept(item, each) for each, item in value.items()}
        if isinstance(value, list):
            return [kept(item) for item in value]
        if isinstance(value, str) and value and _SECRET.search(key) and not value.startswith("$"):
            found.append(key)
            return _LEFT_OUT
        return value

    clean = {key: kept(value) if key.startswith("x-") else value for key, value in resume.items()}
    for key in found:
        taken.remark(name, f"the value of {key} was left out: name a variable that holds it")
    return clean
