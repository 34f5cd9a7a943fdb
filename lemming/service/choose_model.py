"""Having agents use another model: `default` of `config/models.json`, or `model.key` of resumes.

One value is put in the place of another in the text, so that whatever else a person has written there, spaces
included, stays as it was.
"""

from __future__ import annotations

import json
from typing import Any

from lemming.kernel.agents import load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import as_laid_out, locate, parse, to_line
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import MODELS_FILE, load_config
from lemming.kernel.org.organisation import OrgPath

DEFAULT_KEY = "default"
RECORDED = "recorded"
"""The key that recorded answers get when another model takes their place."""


def use_by_default(base: OrgPath, key: str) -> tuple[bool, str]:
    """Have the key "default" stand for what another key stands for; return whether that is new.

    Returned is also the key of what it stood for before: recorded answers without one get one. Raises
    `UnknownModel` for a key that is none, `ConfigError` for a file that is broken, `DiskError`.
    """
    load_config(base).model(key)
    with changing_file(base, MODELS_FILE) as opened:
        raw = opened.raw
        plain = parse(raw, allow_bom=True)
        entry = plain.get(key) or built_in_line(base, key)
        before = plain.get(DEFAULT_KEY)
        back = next((it for it, line in plain.items() if line == before and it != DEFAULT_KEY), "")
        if before == entry:
            return False, back
        changed = with_value(raw, [DEFAULT_KEY], entry)
        if not back and RECORDED not in plain and _is_recording(before):
            back, changed = RECORDED, _with_line_before(changed, RECORDED, before)
        opened.publish(changed)
    return True, back


def add_line(base: OrgPath, key: str, line: dict[str, Any]) -> bool:
    """Put a line into `config/models.json` unless its key is there; return whether it was put."""
    with changing_file(base, MODELS_FILE) as opened:
        if key in parse(opened.raw, allow_bom=True):
            return False
        opened.publish(with_value(opened.raw, [key], line))
    return True


def _is_recording(line: Any) -> bool:
    return isinstance(line, dict) and line.get("provider") in ("scripted", "replay")


def use_for_agent(base: OrgPath, agent: str, key: str) -> bool:
    """Have one agent use a model key; return whether that is new. Raises as `use_by_default`."""
    load_config(base).model(key)
    if load_agent(base, agent).model.key == key:
        return False
    with changing_file(base, paths.resume_file(agent)) as opened:
        opened.publish(with_value(opened.raw, ["model", "key"], key))
    return True


def with_value(raw: bytes, keys: list[str], value: Any) -> bytes:
    """Return a JSON object's file with one value in the place of another, or put in where there was none.

    >>> with_value(b'{"a":  {"b": [1, 2]}}', ["a", "b"], "c")
    b'{"a":  {"b": "c"}}'
    """
    wanted = _with(parse(raw, allow_bom=True), keys, value)
    text = raw.decode("utf-8", "surrogateescape")
    changed = _replaced(text, keys, value).encode("utf-8", "surrogateescape")
    return as_laid_out(changed, wanted)


def _replaced(text: str, keys: list[str], value: Any) -> str:
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix(mark)
    line, column = locate(text, "".join(f"/{key}" for key in keys))
    if not line:
        return text
    at = sum(len(one) for one in text.splitlines(keepends=True)[: line - 1]) + column - 1
    begin = text.index(":", at + len(json.dumps(keys[-1]))) + 1
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    _, end = json.JSONDecoder().raw_decode(text, begin)
    return f"{mark}{text[:begin]}{to_line(value)}{text[end:]}"


def _with_line_before(raw: bytes, key: str, value: Any) -> bytes:
    """Return a file with one more key, before the default one."""
    text = raw.decode("utf-8", "surrogateescape")
    line, column = locate(text.removeprefix("\ufeff"), f"/{DEFAULT_KEY}")
    lines = text.splitlines(keepends=True)
    place = lines[line - 1]
    head = place[: column - 1] if line > 1 else ""
    if head.strip() == "" and line > 1:
        lines[line - 1] = f'{head}"{key}": {to_line(value)},\n{place}'
    changed = "".join(lines).encode("utf-8", "surrogateescape")
    wanted = {**parse(raw, allow_bom=True), key: value}
    return as_laid_out(changed, wanted)


def _with(plain: Any, keys: list[str], value: Any) -> Any:
    first, *rest = keys
    return {**plain, first: _with(plain.get(first, {}), rest, value) if rest else value}


def built_in_line(base: OrgPath, key: str) -> dict[str, Any]:
    """Return the line of a key that stands for something although the file has no line for it."""
    from dataclasses import MISSING, fields

    entry = load_config(base).model(key)
    return {
        field.name: value
        for field in fields(entry)
        if (value := getattr(entry, field.name)) != (field.default if field.default is not MISSING else {})
    }
