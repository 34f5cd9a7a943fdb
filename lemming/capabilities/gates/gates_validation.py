"""Warnings for gates without effect: no agent may call their tools, or an earlier gate decides first.

Impossible gates are errors and stop the run or exclude the agent (`lemming.kernel.tick.validation`). Also
checks limits that cannot hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lemming.capabilities.gates.gate_evaluation import load_checks
from lemming.capabilities.gates.gate_format import SETTLES, Gate, GateRule
from lemming.capabilities.gates.gate_judges import get_judge
from lemming.capabilities.gates.gate_settings import get_gates, iter_rules
from lemming.capabilities.gates.spending_limit import parse_window
from lemming.capabilities.judges.judges_validation import program_permission, validate_judge_name
from lemming.capabilities.pricing.prices import get_price
from lemming.ext import ConfigError, LemmingError, Problem, has_model_turns
from lemming.kernel.access.agent_files import read_text
from lemming.kernel.access.allowed_paths import resolve_org_path
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent, list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import did_you_mean, dump_compact
from lemming.kernel.base.name_patterns import is_any_match, is_match
from lemming.kernel.llm.call_cost import CALL_OVERHEAD_TOKENS
from lemming.kernel.org.config import ORG_FILE, Config, OrgSettings, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_table import NO_MODELS, PREFIXES
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.kernel.tools import Tool, get_toolset, missing_server_tool_reason
from lemming.kernel.tools.toolset import Toolset

Json = dict[str, Any]
CODE = "LMG-308"


@dataclass(frozen=True)
class _OrgFacts:
    """Facts about an organisation for checking its gates."""

    base: OrgPath
    config: Config
    agents: dict[str, Agent] = field(default_factory=dict)

    @cached_property
    def org(self) -> Organisation:
        return Organisation.from_path(self.base)

    @cached_property
    def names(self) -> Sequence[str]:
        return list_agent_folders(self.base)

    @cached_property
    def toolset(self) -> Toolset | None:
        """The tools, or None if some cannot be loaded."""
        settings = self.config.org
        if find_unimported(settings.plugins) or load_config(self.base).org.tool_files != settings.tool_files:
            return None
        try:
            return get_toolset(settings, self.org)
        except ConfigError:
            return None

    @cached_property
    def tools_by_agent(self) -> Mapping[str, Mapping[str, Tool]]:
        """Callable tools of each agent."""
        tools = self.toolset
        return (
            {name: tools.allowed_tools(agent, self.config.org) for name, agent in self.agents.items()} if tools else {}
        )


def validate_gates(base: OrgPath, config: Config, only: str | None = None) -> Iterator[Problem]:
    """Yield a warning for each gate without effect.

    If `only` is set, only the gates of this agent's resume are checked.
    """
    agents = survey_agents(base).agents
    if not get_gates(config.org) and not any(map(get_gates, agents.values())):
        return
    org_facts = _OrgFacts(base, config, agents)
    if only is None:
        yield from _check_rules(ORG_FILE, [*iter_rules(config.org)], (), org_facts, None)
    for name in [only] if only else agents:
        if agent := agents.get(name):
            org_rules = [*iter_rules(config.org)]
            yield from _check_rules(paths.resume_file(name), [*iter_rules(agent)], org_rules, org_facts, agent)


def _check_rules(
    file: str,
    own_rules: Sequence[GateRule],
    earlier_rules: Sequence[GateRule],
    org_facts: _OrgFacts,
    agent: Agent | None,
) -> Iterator[Problem]:
    rules = [*earlier_rules, *own_rules]
    for index, (_, gate) in enumerate(own_rules):
        pointer = f"/gates/{index}"
        for at, message, hint in _check_gate(gate, org_facts, agent):
            yield Problem(message, file, pointer=f"{pointer}{at}", hint=hint, severity="warning", code=CODE)
        if deciding_rule := _find_shadowing_gate(rules[: len(earlier_rules) + index], gate):
            message = f"the gate is never reached: {deciding_rule.line} decides all its calls"
            hint = "move it before that gate, or remove it"
            yield Problem(message, file, pointer=pointer, hint=hint, severity="warning", code=CODE)


GateProblem = tuple[str, str, str]
"""The location below the gate, the problem, and the fix."""


def _check_gate(gate: Gate, org_facts: _OrgFacts, agent: Agent | None) -> Iterator[GateProblem]:
    yield from _find_unknown_tools(gate, org_facts, agent)
    yield from _find_idle_approvals(gate, org_facts, agent)
    if _is_legacy_standing_approval(gate):
        yield (
            "",
            "this gate of an earlier `approve --for tool` lets pass calls that later gates block",
            'remove it, and use "approved" in the gate that asks (docs/gates.md)',
        )
    plugins = tuple(org_facts.config.org.plugins)
    if gate.check and not find_unimported(plugins) and gate.check not in (functions := load_checks(plugins)):
        hint = did_you_mean(gate.check, [*functions]) or "register it with @check in a plugin"
        yield "/check", f'function "{gate.check}" is not registered by a plugin: the gate blocks', hint


def _find_unknown_tools(gate: Gate, org_facts: _OrgFacts, agent: Agent | None) -> Iterator[GateProblem]:
    """Yield problems of the tools named by a gate."""
    if not gate.tool_patterns or org_facts.toolset is None:
        return
    available_names = {
        name for toolset in (org_facts.toolset, *org_facts.toolset.toolsets_by_agent.values()) for name in toolset
    }
    agents = [agent] if agent else [*org_facts.agents.values()]
    callable_ = {name: tool for candidate in agents for name, tool in org_facts.tools_by_agent[candidate.name].items()}
    for index, pattern in enumerate(gate.tool_patterns):
        at = "/tool" if isinstance(gate.tool, str) else f"/tool/{index}"
        if any(is_match(name, pattern) for name in callable_):
            continue
        if pattern.startswith(PREFIXES):
            may_exist = missing_server_tool_reason(org_facts.base, pattern) is None
            if may_exist and (reason_and_hint := missing_server_tool_reason(org_facts.base, pattern, today=True)):
                yield at, *reason_and_hint
        elif any(is_match(name, pattern) for name in available_names):
            subject = f"{agent.name} may not" if agent else "no agent may"
            yield (at, f'{subject} call "{pattern}": the gate has no effect', "grant the tool, or remove the gate")


def _is_legacy_standing_approval(gate: Gate) -> bool:
    has_legacy_reason = bool(re.search(r"\bsaid so about \d+/[^/ ]+/\d+$", gate.because))
    return has_legacy_reason and (gate.at, gate.then) == ("call", "pass")


def _find_idle_approvals(gate: Gate, org_facts: _OrgFacts, agent: Agent | None) -> Iterator[GateProblem]:
    """Yield the missing agents among the exemptions of a gate."""
    for name in gate.approved:
        if name not in ([agent.name] if agent else org_facts.names):
            hint = did_you_mean(name, [agent.name] if agent else org_facts.names) or "remove it"
            yield f"/approved/{name}", f'"approved" names "{name}", and there is no such agent', hint


# --- gates behind others ------------------------------------------------------------------------


def _find_shadowing_gate(earlier: Sequence[GateRule], gate: Gate) -> GateRule | None:
    """Return an earlier gate that surely decides all content of this gate, or None."""
    for index, rule in enumerate(earlier):
        if not _shadows(rule.gate, gate):
            continue
        between = (earlier_rule.gate for earlier_rule in earlier[index:] if earlier_rule.gate.at == gate.at)
        if rule.gate.when is None or not any(earlier_rule.then == "rewrite" for earlier_rule in between):
            return rule  # else a rewrite may have changed the content in between
    return None


def _shadows(earlier_gate: Gate, gate: Gate) -> bool:
    if (
        earlier_gate.at != gate.at
        or earlier_gate.finding_key
        or earlier_gate.then not in SETTLES
        or _is_limit(earlier_gate)
    ):
        return False
    has_tools = not earlier_gate.tool_patterns or (
        bool(gate.tool_patterns)
        and all(
            pattern in earlier_gate.tool_patterns
            or ("*" not in pattern and is_any_match(pattern, earlier_gate.tool_patterns))
            for pattern in gate.tool_patterns
        )
    )
    has_classes = not earlier_gate.tool_classes or (
        bool(gate.tool_classes) and set(gate.tool_classes) <= set(earlier_gate.tool_classes)
    )
    return has_tools and has_classes and _implies(gate.when, earlier_gate.when)


def _is_limit(gate: Gate) -> bool:
    """Return True if a gate is a spending limit."""
    return gate.at == "spend" and gate.per is not None


def _implies(narrow: Json | None, wide: Json | None) -> bool:
    """Return True if the narrow condition contains all parts of the wide condition, and so implies the wide
    condition.
    """
    parts = {dump_compact(part) for part in _conjuncts(narrow)}
    return all(dump_compact(part) in parts for part in _conjuncts(wide))


def _conjuncts(condition: Json | None) -> Iterator[Json]:
    """Yield the necessary parts of a condition."""
    if condition is None:
        return
    if "all" in condition:
        for part in condition["all"]:
            yield from _conjuncts(part)
    else:
        yield condition


# --- limits that cannot hold ----------------------------------------------------------------------


def validate_limits(base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
    """Yield problems of the spending limits of a resume, or of the settings if `agent` is None."""
    file = paths.resume_file(agent.name) if agent else paths.ORG_FILE
    concerned = [agent] if agent else survey_agents(base).agents.values()
    turn_agents = (item for item in concerned if agent or has_model_turns(item, config))
    keys = {key for item in turn_agents for key in (item.model.key, *item.model.fallback)}
    entries = [(key, config.models[key]) for key in sorted(keys) if key in config.models]
    models = [(key, entry) for key, entry in entries if entry.provider not in NO_MODELS]
    for index, gate in enumerate(get_gates(agent or config.org)):
        if gate.at != "spend":
            continue
        pointer = f"/gates/{index}"
        if retention_problem := _retention_gap(gate, config):
            hint = "shorten it, or raise kept_journals: spending is read from journals"
            yield Problem(retention_problem, file, pointer=f"{pointer}/window", hint=hint)
        unpriced = [key for key, item in models if gate.dollars is not None and get_price(item) is None]
        if unpriced:
            message = f"a limit in dollars blocks models without a price: {', '.join(unpriced)}"
            hint = (
                "set usd_per_million_input_tokens and usd_per_million_output_tokens in config/models.json; "
                "0 for a free model"
            )
            yield Problem(message, file, pointer=f"{pointer}/dollars", hint=hint, severity="warning")
        tokens = gate.tokens
        blocked_keys = [
            key for key, item in models if tokens and item.max_output_tokens + CALL_OVERHEAD_TOKENS > tokens
        ]
        if blocked_keys:
            message = f"a limit of {tokens} tokens blocks every call of {', '.join(blocked_keys)}"
            hint = f"raise it above max_output_tokens plus {CALL_OVERHEAD_TOKENS} plus the prompt"
            yield Problem(message, file, pointer=f"{pointer}/tokens", hint=hint, severity="warning")


def _retention_gap(gate: Gate, config: Config) -> str:
    """Return the reason a limit needs journals that are no longer kept, or the empty string."""
    kept_ticks, window = config.org.kept_journals, parse_window(gate.window)
    if kept_ticks is None or gate.per in (None, "turn"):
        return ""
    if window is None:
        is_counted = gate.calls is not None and gate.per != "request"
        return f"calls are counted from the first tick on, and journals of {kept_ticks} ticks are kept" * is_counted
    ticks = window.ticks or (window.seconds or 0) / max(config.org.tick_interval_s, 1e-3)
    return f"{window} is longer than the {kept_ticks} ticks whose journals are kept" if ticks > kept_ticks else ""


def validate_gate_judges(base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
    """Yield problems of the judges at the gates of an agent's resume, or of the settings if `agent` is None."""
    file = paths.resume_file(agent.name) if agent else paths.ORG_FILE
    for index, gate in enumerate(get_gates(agent or config.org)):
        if not gate.by:
            continue
        judge_settings = get_judge(gate)
        yield from validate_judge_name(base, judge_settings.by, file, f"/gates/{index}", config)
        if judge_settings.policy_file:
            try:
                read_text(
                    resolve_org_path(Path(base), judge_settings.policy_file.removeprefix("./"), caller="policy"), {}
                )
            except LemmingError as error:
                hint = error.hint or "name a file of the organisation"
                yield Problem(error.message, file, pointer=f"/gates/{index}/policy", hint=hint)


def gate_judge_programs(base: OrgPath, owner: OrgSettings | Agent) -> Iterator[RequiredPermission]:
    """Yield the permissions for judge programs at gates of the settings or of a resume."""
    file = paths.resume_file(owner.name) if isinstance(owner, Agent) else paths.ORG_FILE
    for index, gate in enumerate(get_gates(owner)):
        if gate.by:
            yield from program_permission(base, gate.by, f"at a gate of {file}", f"{file}#/gates/{index}")
