"""Whether a line of `config/models.json` can be used on this machine, as far as one sees without a call."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lemming.capabilities.hosted.servers import SERVERS
from lemming.facts.reach import is_this_machine
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.extras import install_line
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.redaction.secrets import without_userinfo
from lemming.kernel.org.models import LOCAL_MODEL, ModelEntry
from lemming.kernel.providers import is_channel, is_person, make_provider
from lemming.service.served_models import ServedModels, ServerPlace

_KEYS = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}
_NAMES_SHOWN = 4
_OLLAMA = "http://127.0.0.1:11434"

WITHOUT_MODEL = {
    "plan": "the agent's plan.json says what it does",
    "clock": "config/calendar.json says what it asks for, and when",
}


@dataclass(frozen=True)
class Readiness:
    """`is_ready` is None when only a call would tell."""

    is_ready: bool | None
    remark: str
    fix: str = ""


def readiness_of(entry: ModelEntry, base: Path | None, plugins: Sequence[str] | None = None) -> Readiness:
    """Return whether a model can be asked, and what is missing. Nothing is called or imported from an SDK."""
    try:
        make_provider(entry.provider, entry.options, base=base, plugins=plugins)
    except LemmingError as error:
        return Readiness(False, error.message, error.hint)
    if is_person(entry.provider, plugins):
        return Readiness(True, "a person answers, with `lemming send`")
    if is_channel(entry.provider, plugins):
        return _channel(entry)
    if entry.provider in WITHOUT_MODEL:
        return Readiness(True, WITHOUT_MODEL[entry.provider])
    if entry.provider == "scripted":
        return Readiness(True, f"answers are read from {entry.options['file']}")
    hosted = dict.fromkeys((*_KEYS, *SERVERS), _hosted)
    look = {"local": _local, "cli": _cli, "ollama": _ollama, **hosted}
    return look.get(entry.provider, _unknown)(entry)


def readiness_at(place: ServerPlace, served: ServedModels, model: str) -> Readiness:
    """Return whether a server serves the model of a line, in words."""
    address = without_userinfo(place.address)
    if served.problem:
        fix = "start the server, or correct the address in config/models.json"
        return Readiness(False, f"{address}: {served.problem}", fix)
    context = f", {served.context:,} tokens of context" if served.context else ""
    if served.has_one:
        return Readiness(True, f"{address} serves {served.names[0]}{context}")
    if _is_served(place.kind, model, served.names):
        return Readiness(True, f"served at {address}{context}")
    if not served.names:
        return Readiness(False, f"{address} serves no model", _how_to_get(place.kind, model))
    shown = ", ".join(served.names[:_NAMES_SHOWN])
    more = f" and {len(served.names) - _NAMES_SHOWN} more" if len(served.names) > _NAMES_SHOWN else ""
    fix = nearest(model, list(served.names)) or _how_to_get(place.kind, model)
    return Readiness(False, f'"{model}" is not served at {address}, which serves {shown}{more}', fix)


def _is_served(kind: str, model: str, names: Iterable[str]) -> bool:
    return model in names or (kind == "ollama" and f"{model}:latest" in names)


def _how_to_get(kind: str, model: str) -> str:
    return f"ollama pull {model}" if kind == "ollama" else "load it there, or correct the line's model"


def what_it_cannot(entry: ModelEntry) -> str:
    """Return what is beyond a very small model, as a part of a sentence; empty where nobody knows of any."""
    if entry.provider == "local" and entry.model == LOCAL_MODEL:
        return "restates, asks and titles, and cannot sort, plan, check or call tools"
    return ""


def seen_on_the_way(entry: ModelEntry) -> str:
    """Return which secret goes over plain http to another machine, as part of a sentence; empty for none."""
    options, is_ollama = entry.options, entry.provider == "ollama"
    key = "host" if is_ollama else "base_url"
    address = str(options.get(key) or (os.environ.get("OLLAMA_HOST") if is_ollama else "") or "")
    if not address or is_this_machine(address) or address.partition("://")[0].lower() == "https":
        return ""
    if "@" in address.rpartition("://")[2].partition("/")[0]:
        return "the password in the address"
    named = options.get("api_key_env")
    if host := SERVERS.get(entry.provider):
        named = host.key_variable(address, named)
    if is_ollama and os.environ.get("OLLAMA_API_KEY", "").strip():
        named = "OLLAMA_API_KEY"
    return f"the key in {named}" if named else ""


def _local(entry: ModelEntry) -> Readiness:
    if find_spec("xllamacpp") is None:
        return Readiness(False, "xllamacpp is not installed", install_line("local"))
    if path := entry.options.get("path"):
        is_there = Path(path).expanduser().is_file()
        return Readiness(
            is_there, f"weights at {path}" if is_there else f"no file {path}", "check options.path"
        )
    from lemming.capabilities.embedded.weights import find_weights

    try:
        return Readiness(True, f"weights at {find_weights(entry.model)}")
    except LemmingError as error:
        return Readiness(False, error.message, error.hint)


def _hosted(entry: ModelEntry) -> Readiness:
    named, address = entry.options.get("api_key_env"), entry.options.get("base_url")
    shown = without_userinfo(str(address or "")).partition("?")[0]
    if host := SERVERS.get(entry.provider):
        named, shown = host.key_variable(address, named), shown or host.address
    if not named and (address or host):
        return Readiness(None, f"asks {shown}")
    key = str(named or _KEYS[entry.provider])
    if os.environ.get(key, "").strip():
        return Readiness(True, f"{key} is set, and sent to {shown}" if address else f"{key} is set")
    return Readiness(False, f"{key} is not set", f"export {key}=...")


def _ollama(entry: ModelEntry) -> Readiness:
    host = str(entry.options.get("host") or os.environ.get("OLLAMA_HOST") or _OLLAMA)
    return Readiness(None, f"asks the Ollama server at {without_userinfo(host)}")


def _cli(entry: ModelEntry) -> Readiness:
    command: list[Any] = entry.options.get("command") or [""]
    program = str(command[0])
    if shutil.which(program):
        return Readiness(True, f"runs {program}")
    return Readiness(False, f"there is no program {program!r}", "install it, or correct options.command")


def _channel(entry: ModelEntry) -> Readiness:
    """Return whether the variables are set that a channel's options name."""
    named = [str(value) for key, value in entry.options.items() if key.endswith("_env") and value]
    for name in named:
        if not os.environ.get(name, "").strip():
            return Readiness(False, f"{name} is not set", f"export {name}=...")
    return Readiness(True, "a channel: `lemming channels` shows what comes and goes")


def _unknown(entry: ModelEntry) -> Readiness:
    return Readiness(None, f"only {entry.provider} knows")
