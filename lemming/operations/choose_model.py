"""Choose the model of all agents, or of a single agent.

The model is `default` in `config/models.json`, or `model.key` in a resume. Only the value is replaced in the text; all
other text of the user, including spaces, stays unchanged.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from lemming.kernel.agents import load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import locate, parse, to_line
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.settings_edits import edit_file, preserve_layout, set_json_value

DEFAULT_KEY = "default"
RECORDED_KEY = "recorded"
"""The key that recorded answers get when another model takes their place."""


def set_default_model(base: OrgPath, key: str) -> tuple[bool, str]:
    """Set the entry of key "default" to the entry of another key.

    Return True for a change, and the old model's key. Recorded answers without a key get the key "recorded". Raises:
    UnknownModel for an unknown key, ConfigError for an invalid file, DiskError.
    """
    load_config(base).model(key)
    with edit_file(base, paths.MODELS_FILE) as models_file:
        raw = models_file.raw
        models = parse(raw, allow_bom=True)
        entry = models.get(key) or get_builtin_entry(base, key)
        old_entry = models.get(DEFAULT_KEY)
        equal_keys = [name for name in models if models[name] == old_entry and name != DEFAULT_KEY]
        old_key = equal_keys[0] if equal_keys else ""
        if old_entry == entry:
            return False, old_key
        changed = set_json_value(raw, [DEFAULT_KEY], entry)
        is_recording = isinstance(old_entry, dict) and old_entry.get("provider") in ("scripted", "replay")
        if not old_key and RECORDED_KEY not in models and is_recording:
            old_key, changed = RECORDED_KEY, _insert_before_default(changed, RECORDED_KEY, old_entry)
        models_file.publish(changed)
    return True, old_key


def add_model_entry(base: OrgPath, key: str, entry: dict[str, Any]) -> bool:
    """Add an entry to `config/models.json`. Return False if the key exists already."""
    with edit_file(base, paths.MODELS_FILE) as models_file:
        if key in parse(models_file.raw, allow_bom=True):
            return False
        models_file.publish(set_json_value(models_file.raw, [key], entry))
    return True


def set_agent_model(base: OrgPath, agent: str, key: str) -> bool:
    """Set the model key of an agent, and return True for a change. Raises: the errors of `set_default_model`."""
    load_config(base).model(key)
    if load_agent(base, agent).model.key == key:
        return False
    with edit_file(base, paths.resume_file(agent)) as resume_file:
        resume_file.publish(set_json_value(resume_file.raw, ["model", "key"], key))
    return True


def _insert_before_default(raw: bytes, key: str, value: Any) -> bytes:
    """Return a models file with a further entry in front of the default entry."""
    text = raw.decode("utf-8", "surrogateescape")
    line, column = locate(text.removeprefix("\ufeff"), f"/{DEFAULT_KEY}")
    lines = text.splitlines(keepends=True)
    default_line = lines[line - 1]
    indent = default_line[: column - 1]
    if line > 1 and not indent.strip():
        lines[line - 1] = f'{indent}"{key}": {to_line(value)},\n{default_line}'
    changed = "".join(lines).encode("utf-8", "surrogateescape")
    updated = {**parse(raw, allow_bom=True), key: value}
    return preserve_layout(changed, updated)


def get_builtin_entry(base: OrgPath, key: str) -> dict[str, Any]:
    """Return the entry of a built-in key without an entry in the file."""
    entry = load_config(base).model(key)
    defaults = {field.name: {} if field.default is MISSING else field.default for field in fields(entry)}
    return {name: getattr(entry, name) for name in defaults if getattr(entry, name) != defaults[name]}
