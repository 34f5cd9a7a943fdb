"""Gates that do nothing as things are: nobody may call what they concern, or another settles it before.

All of it is warnings: what can never be stops the run, or that agent (`lemming.kernel.tick.soundness`). And
limits that cannot hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lemming.capabilities.gates.checks import checks_of
from lemming.capabilities.gates.format import SETTLES, Gate, Rule
from lemming.capabilities.gates.keys import gates_in, rules_in
from lemming.capabilities.gates.limit import window_of
from lemming.capabilities.money.prices import price_of
from lemming.kernel.agents import Agent, agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import compact, nearest
from lemming.kernel.base.patterns import is_among, is_named
from lemming.kernel.llm.credits import AROUND_A_CALL
from lemming.kernel.org.config import ORG_FILE, Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.registry import not_imported
from lemming.kernel.plugins.shipped import NO_MODELS, PREFIXES
from lemming.kernel.tick.firing_plan import takes_turns
from lemming.kernel.tools import Tool, toolset_of, why_no_server
from lemming.kernel.tools.toolset import Toolset

Json = dict[str, Any]
CODE = "LMG-308"


@dataclass(frozen=True)
class _Known:
    """What there is in an organisation, for gates to be about."""

    base: OrgPath
    config: Config
    agents: dict[str, Agent] = field(default_factory=dict)

    @cached_property
    def org(self) -> Organisation:
        return Organisation.at(self.base)

    @cached_property
    def names(self) -> Sequence[str]:
        return agent_folders(self.base)

    @cached_property
    def toolset(self) -> Toolset | None:
        """The tools; None where not all of them are known here."""
        settings = self.config.org
        if not_imported(settings.plugins) or load_config(self.base).org.tool_files != settings.tool_files:
            return None
        try:
            return toolset_of(settings, self.org)
        except ConfigError:
            return None

    @cached_property
    def allowed(self) -> Mapping[str, Mapping[str, Tool]]:
        """The tools that each agent may call."""
        tools = self.toolset
        return {name: tools.allowed(it, self.config.org) for name, it in self.agents.items()} if tools else {}


def problems_of_gates(base: OrgPath, config: Config, only: str | None = None) -> Iterator[Problem]:
    """Yield a warning for each gate that does nothing; `only`: those of this agent's resume."""
    agents = survey_agents(base).agents
    if not gates_in(config.org) and not any(map(gates_in, agents.values())):
        return
    known = _Known(base, config, agents)
    if only is None:
        yield from _problems_in(ORG_FILE, [*rules_in(config.org)], (), known, None)
    for name in [only] if only else agents:
        if agent := agents.get(name):
            of_org = [*rules_in(config.org)]
            yield from _problems_in(paths.resume_file(name), [*rules_in(agent)], of_org, known, agent)


def _problems_in(
    file: str, own: Sequence[Rule], before: Sequence[Rule], known: _Known, agent: Agent | None
) -> Iterator[Problem]:
    rules = [*before, *own]
    for place, (_, gate) in enumerate(own):
        pointer = f"/gates/{place}"
        for at, message, hint in _wrong_with(gate, known, agent):
            yield Problem(message, file, pointer=f"{pointer}{at}", hint=hint, severity="warning", code=CODE)
        if settling := _settled_before(rules[: len(before) + place], gate):
            message = f"no call of this gate: {settling.line} settles all that it concerns"
            hint = "put it before that one, or take it out"
            yield Problem(message, file, pointer=pointer, hint=hint, severity="warning", code=CODE)


Wrong = tuple[str, str, str]
"""The place below the gate, what is wrong there, and what to do."""


def _wrong_with(gate: Gate, known: _Known, agent: Agent | None) -> Iterator[Wrong]:
    yield from _idle_tools(gate, known, agent)
    yield from _idle_approvals(gate, known, agent)
    if _is_old_always(gate):
        yield (
            "",
            "`approve --for tool` of an earlier version wrote it: it lets pass what gates behind it block",
            'take it out; "approved" in the gate that asks ends the asking only (docs/approvals.md)',
        )
    plugins = tuple(known.config.org.plugins)
    if gate.check and not not_imported(plugins) and gate.check not in (functions := checks_of(plugins)):
        hint = nearest(gate.check, [*functions]) or "a plugin registers one with @check"
        yield "/check", f'no plugin registers the function "{gate.check}": it blocks', hint


def _idle_tools(gate: Gate, known: _Known, agent: Agent | None) -> Iterator[Wrong]:
    """Yield what is wrong with the tools that a gate names."""
    if not gate.tools or known.toolset is None:
        return
    there = {
        name for toolset in (known.toolset, *known.toolset.agents_with_more.values()) for name in toolset
    }
    those = [agent] if agent else [*known.agents.values()]
    callable_ = {name: tool for it in those for name, tool in known.allowed[it.name].items()}
    for index, pattern in enumerate(gate.tools):
        at = "/tool" if isinstance(gate.tool, str) else f"/tool/{index}"
        if any(is_named(name, pattern) for name in callable_):
            continue
        if pattern.startswith(PREFIXES):
            may_be = why_no_server(known.base, pattern) is None
            if may_be and (why := why_no_server(known.base, pattern, today=True)):
                yield at, *why
        elif any(is_named(name, pattern) for name in there):
            who = f"{agent.name} may not" if agent else "no agent may"
            yield at, f'{who} call "{pattern}": it concerns nothing', "grant it, or take the gate out"


def _is_old_always(gate: Gate) -> bool:
    said = bool(re.search(r"\bsaid so about \d+/[^/ ]+/\d+$", gate.because))
    return said and (gate.at, gate.then) == ("call", "pass")


def _idle_approvals(gate: Gate, known: _Known, agent: Agent | None) -> Iterator[Wrong]:
    """Yield the agents of which a gate need not ask that are not there."""
    for name in gate.approved:
        if name not in ([agent.name] if agent else known.names):
            hint = nearest(name, [agent.name] if agent else known.names) or "take it out"
            yield f"/approved/{name}", f'it asks nobody about "{name}", which is no agent here', hint


# --- gates behind others ------------------------------------------------------------------------


def _settled_before(earlier: Sequence[Rule], gate: Gate) -> Rule | None:
    """Return a gate that surely settles whatever this one concerns, before it is asked."""
    for place, rule in enumerate(earlier):
        if not _settles_all_of(rule.gate, gate):
            continue
        between = (it.gate for it in earlier[place:] if it.gate.at == gate.at)
        if rule.gate.when is None or not any(it.then == "rewrite" for it in between):
            return rule  # else what is looked at may have become another thing meanwhile
    return None


def _settles_all_of(before: Gate, gate: Gate) -> bool:
    if before.at != gate.at or before.finding or before.then not in SETTLES or _is_limit(before):
        return False
    has_tools = not before.tools or (
        bool(gate.tools)
        and all(it in before.tools or ("*" not in it and is_among(it, before.tools)) for it in gate.tools)
    )
    has_classes = not before.classes or (bool(gate.classes) and set(gate.classes) <= set(before.classes))
    return has_tools and has_classes and _follows(gate.when, before.when)


def _is_limit(gate: Gate) -> bool:
    """Return whether a gate speaks only once something is spent."""
    return gate.at == "spend" and gate.per is not None


def _follows(narrow: Json | None, wide: Json | None) -> bool:
    """Return whether one condition surely holds wherever another does: it has all parts of it."""
    parts = {compact(it) for it in _parts(narrow)}
    return all(compact(it) in parts for it in _parts(wide))


def _parts(condition: Json | None) -> Iterator[Json]:
    """Yield what must hold for a condition to hold."""
    if condition is None:
        return
    if "all" in condition:
        for each in condition["all"]:
            yield from _parts(each)
    else:
        yield condition


# --- limits that cannot hold ----------------------------------------------------------------------


def problems_of_limits(base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
    """Yield what is wrong with the limits of a resume; None: of the settings."""
    file = paths.resume_file(agent.name) if agent else paths.ORG_FILE
    concerned = [agent] if agent else survey_agents(base).agents.values()
    asking = (it for it in concerned if agent or takes_turns(it, config))
    keys = {key for it in asking for key in (it.model.key, *it.model.fallback)}
    entries = [(key, config.models[key]) for key in sorted(keys) if key in config.models]
    models = [(key, entry) for key, entry in entries if entry.provider not in NO_MODELS]
    for place, gate in enumerate(gates_in(agent or config.org)):
        if gate.at != "spend":
            continue
        pointer = f"/gates/{place}"
        if why := _why_too_long(gate, config):
            hint = "shorten it, or raise kept_journals: what was spent is read from journals"
            yield Problem(why, file, pointer=f"{pointer}/window", hint=hint)
        unpriced = [key for key, it in models if gate.dollars is not None and price_of(it) is None]
        if unpriced:
            message = f"a limit in dollars refuses {', '.join(unpriced)}: no price is known"
            hint = (
                "set usd_per_million_input_tokens and usd_per_million_output_tokens in config/models.json; "
                "0 for one that costs nothing"
            )
            yield Problem(message, file, pointer=f"{pointer}/dollars", hint=hint, severity="warning")
        tokens = gate.tokens
        never = [key for key, it in models if tokens and it.max_output_tokens + AROUND_A_CALL > tokens]
        if never:
            message = f"a limit of {tokens} tokens never lets {', '.join(never)} be asked"
            hint = f"what a question can have at most counts: max_output_tokens, {AROUND_A_CALL}, its prompt"
            yield Problem(message, file, pointer=f"{pointer}/tokens", hint=hint, severity="warning")


def _why_too_long(gate: Gate, config: Config) -> str:
    """Return why what a limit adds up is not all kept; empty when it is."""
    kept, window = config.org.kept_journals, window_of(gate.window)
    if kept is None or gate.per in (None, "turn"):
        return ""
    if window is None:
        is_counted = gate.calls is not None and gate.per != "request"
        return f"calls are counted from the first tick on, and journals of {kept} ticks are kept" * is_counted
    ticks = window.ticks or (window.seconds or 0) / max(config.org.tick_interval_s, 1e-3)
    return f"{window} is longer than the {kept} ticks whose journals are kept" if ticks > kept else ""
