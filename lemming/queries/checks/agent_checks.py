"""Checks of one agent and its files, beyond names and before its turn. Tools are read as text: no code runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lemming.kernel.access.allowed_paths import Access, grant_error, resolve_path
from lemming.kernel.access.context_files import expand_context
from lemming.kernel.agents import Agent, list_agent_folders, suggest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied, Problem, ToolError, UnknownModel
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.base.problems import make_warning
from lemming.kernel.files import fs
from lemming.kernel.memory import load_memories
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.model_entries import PROVIDERS_WITHOUT_MODEL, ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.resume import FileAccess
from lemming.kernel.plugins.capability_table import PREFIXES
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.kernel.providers import get_provider_class, is_channel, is_person
from lemming.kernel.tick.validation.checks import AgentSubject
from lemming.kernel.tools import get_toolset, missing_server_tool_reason
from lemming.kernel.turn.forms.form_choice import CONTRACT_KEYS
from lemming.kernel.turn.forms.reply_form import MEMORY_WRITE, is_granted
from lemming.libraries.agent_folders import read_allowed_text
from lemming.operations.retention import max_retention

DEFAULT_PROMPT_FORM = "fit"
"""The prompt of a line that does not say which."""
RARE_TICKS = 60
"""An agent that is due only every so many ticks waits long for its next turn."""
_WANTS_MEMORY = re.compile(r"\bremember|\bmemori[sz]e|\byour memory\b", re.IGNORECASE)


def _check_name(subject: AgentSubject) -> Iterator[Problem]:
    if message := paths.new_agent_name_error(subject.agent.name):
        hint = "rename it with `lemming agents rename`: no entry can be addressed to it"
        yield make_warning(message, "/name", hint)


def _check_model(subject: AgentSubject) -> Iterator[Problem]:
    agent, config = subject.agent, subject.config
    keys = [agent.model.key, *agent.model.fallback]
    pointers = ["/model/key", *(f"/model/fallback/{index}" for index in range(len(agent.model.fallback)))]
    for pointer, key in zip(pointers, keys, strict=True):
        try:
            config.model(key)
        except UnknownModel as error:
            yield Problem(error.message, pointer=pointer, hint=f"{error.hint} ({paths.MODELS_FILE})")
    for number, key in enumerate(agent.model.fallback, 1):
        if key in keys[:number]:
            hint = "name each model key once, and not model.key"
            yield Problem(f'model key "{key}" has already been tried', pointer=pointers[number], hint=hint)
        elif reason := _explain_invalid_fallback(key, agent, config):
            yield Problem(reason, pointer=pointers[number], hint="choose a fallback model that reads the same prompt")


def _explain_invalid_fallback(key: str, agent: Agent, config: Config) -> str:
    entry, primary_entry = config.models.get(key), config.models.get(agent.model.key)
    if entry is None or primary_entry is None:  # reported separately
        return ""
    if not _is_model(primary_entry, config):
        return f'model key "{agent.model.key}" is not a model, so a fallback is never used'
    if not _is_model(entry, config):
        return f'model key "{key}" is not a model, so it is never called'
    if "values" in (entry.prompt, primary_entry.prompt) and entry.prompt != primary_entry.prompt:
        fallback_form, primary_form = (line.prompt or DEFAULT_PROMPT_FORM for line in (entry, primary_entry))
        return f'prompt of model key "{key}" must be "{primary_form}" as the agent\'s, got "{fallback_form}"'
    return ""


def _is_model(entry: ModelEntry, config: Config) -> bool:
    provider, plugins = entry.provider, config.org.plugins
    return not (is_person(provider, plugins) or is_channel(provider, plugins) or provider in PROVIDERS_WITHOUT_MODEL)


def _check_memory(subject: AgentSubject) -> Iterator[Problem]:
    """Yield a warning if the instructions mention remembering but the agent cannot write memories."""
    agent = subject.agent
    if not _WANTS_MEMORY.search(agent.instructions) or is_granted(agent, MEMORY_WRITE):
        return
    if not CONTRACT_KEYS.search(agent.instructions) and not load_memories(subject.org, agent.name).values:
        message = "the instructions speak of remembering, but the agent may not write memories"
        hint = f'add "{MEMORY_WRITE}" to permissions.tools'
        yield make_warning(message, "/instructions", hint)


def _check_readers(subject: AgentSubject) -> Iterator[Problem]:
    agent, folders = subject.agent, subject.names.folders
    for index, name in enumerate(agent.permissions.read_outboxes):
        pointer = f"/permissions/read_outboxes/{index}"
        if name == agent.name:
            hint = "remove it: an agent always sees its own latest entries"
            yield make_warning("an agent must not read itself", pointer, hint)
        elif name != "*" and name not in folders:
            message = f'agent "{name}" does not exist'
            yield make_warning(message, pointer, suggest_agent(name, folders))


def _check_schedule(subject: AgentSubject) -> Iterator[Problem]:
    schedule, settings = subject.agent.schedule, subject.config.org
    if schedule.cron is not None and (schedule.timezone or settings.timezone) is None:
        hint = 'add "timezone": "Europe/Berlin" here, or for all in config/org.json'
        yield Problem("a cron expression must have a time zone, got none", pointer="/schedule/cron", hint=hint)
    if schedule.cron is None and schedule.missed != "once":
        yield make_warning('"missed" needs a cron expression, got none', "/schedule/missed", "add cron")


def _check_steps(subject: AgentSubject) -> Iterator[Problem]:
    """Yield a warning for an agent that runs rarely and reads its tool results one turn later."""
    agent, config = subject.agent, subject.config
    schedule, entry = agent.schedule, config.models.get(agent.model.key)
    is_rare = schedule.cron is not None or schedule.run_every_n_ticks >= RARE_TICKS
    if not (is_rare and entry and _is_model(entry, config)) or agent.turn.strategy:
        return
    steps, pointer = agent.turn.max_steps or config.org.defaults.turn.max_steps, "/turn/max_steps"
    if steps is None and _is_asked_for_contract(agent, entry, config):
        steps, pointer = 1, "/schedule"
    tools = get_toolset(config.org, subject.org).for_agent(agent.name)
    names = [name for name in agent.permissions.tools if (tool := tools.get(name)) and tool.success_is_news]
    if steps == 1 and names:
        next_turn = f"by {schedule.cron!r}" if schedule.cron else f"{schedule.run_every_n_ticks} ticks later"
        message = f"a turn makes one model call, so the results of {names[0]} are read in the next turn, {next_turn}"
        yield make_warning(message, pointer, 'set "turn": {"max_steps": 8} to read them in the same turn')


def _is_asked_for_contract(agent: Agent, entry: ModelEntry, config: Config) -> bool:
    """Return True if replies are the whole contract, without tool calls of the backend: then a turn has one step."""
    provider = get_provider_class(entry.provider, tuple(config.org.plugins))
    writes_contract = entry.prompt is None and provider.writes_contract
    is_contract = entry.prompt == "full" or writes_contract or bool(CONTRACT_KEYS.search(agent.instructions))
    return is_contract and entry.tools != "native" and not (entry.tools is None and provider.prefers_tools)


def _check_retention(subject: AgentSubject) -> Iterator[Problem]:
    agent, config = subject.agent, subject.config
    interval, retention = agent.schedule.run_every_n_ticks, config.org.retention_ticks
    is_reader = agent.permissions.read_outboxes and config.has_model_turns(agent)
    if not (is_reader and 0 < retention < interval):
        return
    longest = max_retention(retention, interval)
    outcome = "they are kept longer for it" if longest > interval else "some are removed before it sees them"
    message = (
        f"due every {interval} ticks, but entries are kept for {retention} (unseen ones up to {longest}): {outcome}"
    )
    hint = 'raise "retention_ticks" in config/org.json, or let the agent run more often'
    yield make_warning(message, "/schedule/run_every_n_ticks", hint)


def _check_tools(subject: AgentSubject) -> Iterator[Problem]:
    agent, config, org = subject.agent, subject.config, subject.org
    tools = get_toolset(config.org, org).for_agent(agent.name)
    for index, name in enumerate(agent.permissions.tools):
        pointer = f"/permissions/tools/{index}"
        if name.startswith(PREFIXES):
            if server_error := missing_server_tool_reason(org, name, today=True):
                yield Problem(server_error[0], pointer=pointer, hint=server_error[1])
            continue
        if "*" in name and any(is_match(tool_name, name) for tool_name in tools):
            continue
        try:
            tool = tools.find(name)
        except ToolError as error:
            if unloaded_tool := explain_unloaded_tool(org, agent.name, name):
                reason, hint, is_wrong = unloaded_tool
                yield Problem(reason, pointer=pointer, hint=hint, severity="error" if is_wrong else "warning")
            elif not find_unimported(config.org.plugins):  # otherwise it may belong to a plugin
                yield Problem(error.message, pointer=pointer, hint=error.hint)
            continue
        if reason := tool.refusal_reason(agent, config.org):
            message = f"{agent.name} may not call {name}, in spite of its resume"
            hint = f"change the reason or remove {name} here: {reason}"
            yield make_warning(message, pointer, hint)


def _check_file_access(subject: AgentSubject) -> Iterator[Problem]:
    files, base = subject.agent.permissions.file_access, Path(subject.org)
    if files == FileAccess():  # as nearly every agent has
        return
    grants: list[tuple[Access, list[str]]] = [("read", files.allow_read), ("write", files.allow_write)]
    for access, folders in grants:
        for index, folder in enumerate(folders):
            pointer = f"/permissions/file_access/allow_{access}/{index}"
            if reason := grant_error(folder) or _explain_useless_grant(subject.agent, base, folder, access):
                hint = "use ./workspace, ./shared, a folder in one of them, or an absolute path"
                yield make_warning(f'"{folder}" grants nothing: {reason}', pointer, hint)
            elif folder.startswith("/") and not Path(folder).is_dir():
                yield make_warning(f"folder {folder} does not exist", pointer, "make it")


def _explain_useless_grant(agent: Agent, base: Path, folder: str, access: Access) -> str:
    """Return the reason for a useless grant of a folder, or an empty string."""
    only = FileAccess(**{"allow_read": [], "allow_write": [], f"allow_{access}": [folder]})
    restricted_agent = replace(agent, permissions=replace(agent.permissions, file_access=only))
    try:
        resolve_path(restricted_agent, base, f"{folder.rstrip('/')}/any", access, caller="file_access")
    except PermissionDenied as error:
        return error.message
    return ""


def _check_context(subject: AgentSubject) -> Iterator[Problem]:
    agent, base = subject.agent, Path(subject.org)
    without_memories = replace(agent.permissions, read_memories=[])
    for index, item in enumerate(agent.context):
        try:
            only_item = replace(agent, context=[item], permissions=without_memories)
            for context_file in expand_context(only_item, base, {}).context:
                read_allowed_text(agent, base, context_file.file)
        except ToolError as error:
            hint = error.hint or "correct the path, or put a file there that the agent may read"
            yield Problem(f"{error.message}; every turn would fail", pointer=f"/context/{index}/file", hint=hint)


AGENT_CHECKS = (
    _check_name,
    _check_model,
    _check_readers,
    _check_retention,
    _check_schedule,
    _check_steps,
    _check_tools,
    _check_file_access,
    _check_context,
    _check_memory,
)
"""The kernel's checks of one agent and its files, in this order."""


_SOURCE_LIMIT_BYTES = 1 << 20


def explain_unloaded_tool(base: OrgPath, agent_name: str, tool_name: str) -> tuple[str, str, bool] | None:
    """Return the reason a tool file is not loaded, the fix, and True if a setting is wrong.

    Returns None if no file in `tools/` seems to contain the tool.
    """
    file = _find_source(Path(base), agent_name, tool_name)
    if not file:
        return None
    if any(Path(file).match(pattern) for pattern in load_config(base).org.tool_files):
        reason = f'tool "{tool_name}" is in {file}, which is not loaded: the workspace is not trusted'
        return reason, "review it with `lemming trust`, accept it with `lemming trust --yes`", False
    reason = f'tool "{tool_name}" is in {file}, which no pattern in tool_files matches'
    return reason, f'add "{Path(file).parent}/*.py" to tool_files in config/org.json', True


def find_unloaded_files(base: OrgPath) -> Iterator[Problem]:
    """Yield a warning for each file with `@tool` in a tool folder without a match in `tool_files`."""
    patterns = load_config(base).org.tool_files
    agent_names = filter(paths.AGENT_NAME.match, list_agent_folders(base))
    for folder in ("tools", *(f"{paths.agent_folder(name)}/tools" for name in agent_names)):
        for file in (f"{folder}/{name}" for name in _list_python_files(Path(base) / folder)):
            is_matched = any(Path(file).match(pattern) for pattern in patterns)
            if not is_matched and "@tool" in _load_source(Path(base) / file):
                message = "no pattern in tool_files matches the file, so it is not loaded"
                hint = f'add "{folder}/*.py" to tool_files in config/org.json, or remove the file'
                yield Problem(message, file, hint=hint, severity="warning")


def _find_source(base: Path, agent_name: str, tool_name: str) -> str:
    for folder in ("tools", f"{paths.agent_folder(agent_name)}/tools"):
        for name in _list_python_files(base / folder):
            text = _load_source(base / folder / name)
            if Path(name).stem == tool_name or f"def {tool_name}(" in text or f'"{tool_name}"' in text:
                return f"{folder}/{name}"
    return ""


def _load_source(path: Path) -> str:
    try:
        return fs.read_bytes(path, _SOURCE_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:  # where tools are loaded, that is said
        return ""


def _list_python_files(folder: Path) -> list[str]:
    try:
        names = fs.list_names(folder)
    except OSError:
        return []
    return sorted(name for name in names if name.endswith(".py") and not name.startswith("_"))
