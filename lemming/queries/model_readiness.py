"""Readiness of entries in `config/models.json` on this machine, as far as visible without a model call."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.redaction.secrets import strip_userinfo
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import LOCAL_MODEL, ModelEntry
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.kernel.plugins.capability_table import provided
from lemming.kernel.providers import is_channel, is_person, make_provider
from lemming.libraries.compatible_servers import SERVERS
from lemming.libraries.model_catalogue import find_weights
from lemming.libraries.optional_packages import install_command
from lemming.operations.model_detection import KeylessServer, ServedModels
from lemming.queries.permissions_required import is_this_machine

WITH_TOOLS = "list models with `lemming models list`, choose one with `lemming models use KEY`"

_KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_MAX_NAMES_SHOWN = 4
_OLLAMA_ADDRESS = "http://127.0.0.1:11434"

REMARKS_WITHOUT_MODEL = {
    "plan": "the agent's plan.json has its steps",
    "clock": "config/calendar.json has its requests and times",
}


@dataclass(frozen=True)
class Readiness:
    """Readiness of a model; `is_ready` is None if only a call can decide."""

    is_ready: bool | None
    remark: str
    fix: str = ""


def check_readiness(entry: ModelEntry, base: Path | None, plugins: Sequence[str] | None = None) -> Readiness:
    """Return the readiness of a model and the missing parts. Makes no call and imports no SDK."""
    try:
        make_provider(entry.provider, entry.options, base=base, plugins=plugins)
    except LemmingError as error:
        return Readiness(False, error.message, error.hint)
    if is_person(entry.provider, plugins):
        return Readiness(True, "a person answers, with `lemming send`")
    if is_channel(entry.provider, plugins):
        return _check_channel(entry)
    if entry.provider in REMARKS_WITHOUT_MODEL:
        return Readiness(True, REMARKS_WITHOUT_MODEL[entry.provider])
    if entry.provider == "scripted":
        return Readiness(True, f"answers are read from {entry.options['file']}")
    if entry.provider in provided("harness_providers"):
        return Readiness(*require_fact("workers.check_worker_model")(entry, base or Path()))
    if entry.provider == "ollama":
        host = str(entry.options.get("host") or os.environ.get("OLLAMA_HOST") or _OLLAMA_ADDRESS)
        return Readiness(None, f"asks the Ollama server at {strip_userinfo(host)}")
    if entry.provider == "cli":
        program = str((entry.options.get("command") or [""])[0])
        if shutil.which(program):
            return Readiness(True, f"runs {program}")
        return Readiness(False, f"program {program!r} does not exist", "install it, or correct options.command")
    if entry.provider == "local":
        return _check_local_model(entry)
    if entry.provider in (*_KEY_VARIABLES, *SERVERS):
        return _check_hosted_model(entry)
    return Readiness(None, f"no check of provider {entry.provider}")


def check_served_model(server: KeylessServer, served: ServedModels, model: str) -> Readiness:
    """Return the readiness of a model on a local server, given the server's list of models."""
    address = strip_userinfo(server.address)
    if served.problem:
        fix = "start the server, or correct the address in config/models.json"
        return Readiness(False, f"{address}: {served.problem}", fix)
    context = f", {served.context:,} tokens of context" if served.context else ""
    if served.has_one:
        return Readiness(True, f"{address} serves {served.names[0]}{context}")
    if model in served.names or (server.kind == "ollama" and f"{model}:latest" in served.names):
        return Readiness(True, f"served at {address}{context}")
    fix = "load it there, or correct the model in config/models.json"
    fix = f"ollama pull {model}" if server.kind == "ollama" else fix
    if not served.names:
        return Readiness(False, f"{address} serves no model", fix)
    shown_names = ", ".join(served.names[:_MAX_NAMES_SHOWN])
    left = len(served.names) - _MAX_NAMES_SHOWN
    remaining_count = f" and {left} more" if left > 0 else ""
    remark = f'"{model}" is not served at {address}, which serves {shown_names}{remaining_count}'
    return Readiness(False, remark, did_you_mean(model, list(served.names)) or fix)


def describe_limitations(entry: ModelEntry) -> str:
    """Return the limitations of a very small model as part of a sentence, or an empty string."""
    if entry.provider == "local" and entry.model == LOCAL_MODEL:
        return "restates, asks and titles, and cannot sort, plan, check or call tools"
    return ""


def find_plaintext_secret(entry: ModelEntry) -> str:
    """Return the secret sent over plain http to another machine as part of a sentence, or an empty string."""
    options, is_ollama = entry.options, entry.provider == "ollama"
    key = "host" if is_ollama else "base_url"
    address = str(options.get(key) or (os.environ.get("OLLAMA_HOST") if is_ollama else "") or "")
    if not address or is_this_machine(address) or address.partition("://")[0].lower() == "https":
        return ""
    if "@" in address.rpartition("://")[2].partition("/")[0]:
        return "the password in the address"
    key_variable = options.get("api_key_env")
    if server := SERVERS.get(entry.provider):
        key_variable = server.key_variable(address, key_variable)
    if is_ollama and os.environ.get("OLLAMA_API_KEY", "").strip():
        key_variable = "OLLAMA_API_KEY"
    return f"the key in {key_variable}" if key_variable else ""


def _check_local_model(entry: ModelEntry) -> Readiness:
    if find_spec("xllamacpp") is None:
        return Readiness(False, "xllamacpp is not installed", install_command("local"))
    if path := entry.options.get("path"):
        is_there = Path(path).expanduser().is_file()
        remark = f"weights at {path}" if is_there else f"file {path} does not exist"
        return Readiness(is_there, remark, "check options.path")
    try:
        return Readiness(True, f"weights at {find_weights(entry.model)}")
    except LemmingError as error:
        return Readiness(False, error.message, error.hint)


def _check_hosted_model(entry: ModelEntry) -> Readiness:
    key_variable, address = entry.options.get("api_key_env"), entry.options.get("base_url")
    display_address = strip_userinfo(str(address or "")).partition("?")[0]
    if server := SERVERS.get(entry.provider):
        key_variable, display_address = (server.key_variable(address, key_variable), display_address or server.address)
    if not key_variable and (address or server):
        return Readiness(None, f"asks {display_address}")
    key = str(key_variable or _KEY_VARIABLES[entry.provider])
    if os.environ.get(key, "").strip():
        return Readiness(True, f"{key} is set, and sent to {display_address}" if address else f"{key} is set")
    return Readiness(False, f"{key} is not set", f"export {key}=...")


def _check_channel(entry: ModelEntry) -> Readiness:
    """Return the readiness of a channel: every environment variable in its options must be set."""
    variables = [str(value) for key, value in entry.options.items() if key.endswith("_env") and value]
    for name in variables:
        if not os.environ.get(name, "").strip():
            return Readiness(False, f"{name} is not set", f"export {name}=...")
    return Readiness(True, "a channel: `lemming channels` shows what comes and goes")


def small_model_warning(agent: Agent, config: Config) -> str:
    """Return a warning if a model is too small for the tools granted in a resume, else an empty text."""
    entry = config.models.get(agent.model.key)
    is_too_small = entry is not None and (entry.provider, entry.model) == ("local", LOCAL_MODEL)
    if not (is_too_small and agent.permissions.tools):
        return ""
    tools = ", ".join(agent.permissions.tools)
    return f'model "{agent.model.key}" is {LOCAL_MODEL}, which is too small to call tools: {tools}'
