"""`lemming models use` and `lemming models test`: choosing a model, and trying one out with a single call."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.agents import survey_agents
from lemming.base.clock import SystemClock
from lemming.base.errors import UsageError
from lemming.base.paths import resume_file
from lemming.commands.options import AsJson, Trust, argument, option
from lemming.commands.org import describe_engine, find_agent, find_org, running_engine
from lemming.commands.screen import one_line, show, show_json, tell
from lemming.commands.trust import load_settings, require_agreement
from lemming.facts.readiness import readiness_of, what_it_cannot
from lemming.org.config import MODELS_FILE, load_config
from lemming.org.organisation import Organisation
from lemming.tick.plan import why_no_tools

Agents = Annotated[list[str] | None, option("--agents AGENT", "Only this agent; repeat it.", of_agents=True)]


def use_model(
    ctx: typer.Context,
    key: Annotated[str, argument("KEY", "A key of config/models.json.")],
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    """Have a model used: by all agents whose resume says "default", or by those named with --agents.

    Without --agents, the line "default" of config/models.json becomes what the line KEY says. With it, the
    resumes of these agents name KEY. Everything else in these files stays as it is written.

    \b
    Examples:
      lemming models use fast
      lemming models use fast --agents editor --agents planner
    """
    from lemming.service.choose_model import DEFAULT_KEY, use_by_default, use_for_agent

    base = find_org(ctx)
    load_settings(base).model(key)
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
    if as_json:
        show_json("model_used", {"key": key, "agents": names, "changed": changed})
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
    for why in [why for agent in using if (why := why_no_tools(agent, config))][:3]:
        tell(f"warning: {why}", style="yellow")


def _tell_of_others(base: Any, default: str) -> None:
    """Say which agents name a key of their own, and so keep it."""
    others = [agent for agent in survey_agents(base).agents.values() if agent.model.key != default]
    if others:
        named = ", ".join(f"{agent.name} ({agent.model.key})" for agent in others[:10])
        tell(f"as before: {one_line(named, 300)}; --agents NAME changes one")


def try_model(
    ctx: typer.Context,
    key: Annotated[str, argument("KEY", "A key of config/models.json.")] = "default",
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Make one small call to a model, with the contract; show what works, what it costs and how long it took.

    What its server was found not to take is forgotten first, and found out again. The call counts against
    nobody's credits. Exit status: 0 the model is of use here, 1 it is not.

    \b
    Examples:
      lemming models test
      lemming models test fast --json
    """
    from lemming.service.model_trial import try_out

    base = find_org(ctx)
    if not trust:
        require_agreement(base, can_ask=not as_json)
    config = load_settings(base)
    entry = config.model(key)
    found = try_out(Path(base), entry, config.org, SystemClock(), threading.Event())
    if as_json:
        show_json("model_test", {"key": key, **found.as_json()})
    else:
        for label, text in found.lines(key):
            show(f"{label:<9} {one_line(text, 400)}")
    raise typer.Exit(0 if found.is_of_use else 1)
