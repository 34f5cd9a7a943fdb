"""Warnings for gates without effect: no agent may call their tools, or an earlier gate decides first.

Impossible gates are errors and stop the run or exclude the agent (`lemming.kernel.tick.validation`). Also
checks limits that cannot hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lemming.capabilities.gates.gate_evaluation import load_checks
from lemming.capabilities.gates.gate_format import SETTLES, Gate, GateRule
from lemming.capabilities.gates.gate_settings import get_gates, iter_rules
from lemming.capabilities.gates.spending_limit import parse_window
from lemming.capabilities.gates.untrusted_senders import validate_untrusted_access
from lemming.capabilities.pricing.prices import get_price
from lemming.ext import CheckSubject, Inventory, LemmingError, Problem, make_warning
from lemming.kernel.access.agent_files import read_text
from lemming.kernel.access.allowed_paths import resolve_org_path
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import did_you_mean, dump_compact
from lemming.kernel.base.name_patterns import is_any_match, is_match
from lemming.kernel.llm.call_cost import CALL_OVERHEAD_TOKENS
from lemming.kernel.org.config import Config, OrgSettings
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_table import NO_MODELS, PREFIXES
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.kernel.tools import missing_server_tool_reason

Json = dict[str, Any]
CODE = "LMG-308"


def find_gate_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield the problems of the gates of settings and resumes: no effect, unchecked actions, invalid limits."""
    yield from validate_gates(subject)
    yield from validate_untrusted_access(subject.org, subject.config, subject.only)
    if subject.only is None:
        yield from find_limit_problems(subject)


def validate_gates(subject: CheckSubject) -> Iterator[Problem]:
    """Yield a warning for each gate without effect."""
    settings, agents, only = subject.config.org, survey_agents(subject.org).agents, subject.only
    if not get_gates(settings) and not any(map(get_gates, agents.values())):
        return
    if only is None:
        yield from _check_rules(paths.ORG_FILE, [*iter_rules(settings)], (), subject.names, None)
    for name in [only] if only else agents:
        if agent := agents.get(name):
            rules = [*iter_rules(agent)]
            yield from _check_rules(paths.resume_file(name), rules, [*iter_rules(settings)], subject.names, agent)


def _check_rules(
    file: str,
    own_rules: Sequence[GateRule],
    earlier_rules: Sequence[GateRule],
    names: Inventory,
    agent: Agent | None,
) -> Iterator[Problem]:
    rules = [*earlier_rules, *own_rules]
    for index, (_, gate) in enumerate(own_rules):
        pointer = f"/gates/{index}"
        for at, message, hint in _check_gate(gate, names, agent):
            yield make_warning(message, f"{pointer}{at}", hint, file, CODE)
        if deciding_rule := _find_shadowing_gate(rules[: len(earlier_rules) + index], gate):
            message = f"the gate is never reached: {deciding_rule.line} decides all its calls"
            hint = "move it before that gate, or remove it"
            yield make_warning(message, pointer, hint, file, CODE)


GateProblem = tuple[str, str, str]
"""The location below the gate, the problem, and the fix."""


def _check_gate(gate: Gate, names: Inventory, agent: Agent | None) -> Iterator[GateProblem]:
    yield from _find_unknown_tools(gate, names, agent)
    yield from _find_idle_approvals(gate, names, agent)
    plugins = tuple(names.config.org.plugins)
    if gate.check and not find_unimported(plugins) and gate.check not in (functions := load_checks(plugins)):
        hint = did_you_mean(gate.check, [*functions]) or "register it with @check in a plugin"
        yield "/check", f'function "{gate.check}" is not registered by a plugin: the gate blocks', hint


def _find_unknown_tools(gate: Gate, names: Inventory, agent: Agent | None) -> Iterator[GateProblem]:
    """Yield problems of the tools named by a gate."""
    if not gate.tool_patterns or names.toolset is None:
        return
    agents = [agent] if agent else [*names.survey.agents.values()]
    callable_names = {name for candidate in agents for name in names.allowed_tools[candidate.name]}
    for index, pattern in enumerate(gate.tool_patterns):
        at = "/tool" if isinstance(gate.tool, str) else f"/tool/{index}"
        if any(is_match(name, pattern) for name in callable_names):
            continue
        if pattern.startswith(PREFIXES):
            may_exist = missing_server_tool_reason(names.org, pattern) is None
            if may_exist and (reason_and_hint := missing_server_tool_reason(names.org, pattern, today=True)):
                yield at, *reason_and_hint
        elif any(is_match(name, pattern) for name in names.tool_names):
            subject = f"{agent.name} may not" if agent else "no agent may"
            yield (at, f'{subject} call "{pattern}": the gate has no effect', "grant the tool, or remove the gate")


def _find_idle_approvals(gate: Gate, names: Inventory, agent: Agent | None) -> Iterator[GateProblem]:
    """Yield the missing agents among the exemptions of a gate."""
    for name in gate.approved:
        if name not in (candidates := [agent.name] if agent else names.folders):
            hint = did_you_mean(name, candidates) or "remove it"
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


def find_limit_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems of spending limits and of judges in the gates of an agent, or of the settings."""
    if get_gates(subject.agent or subject.config.org):
        yield from _validate_limits(subject)
        yield from _validate_judges(subject)


def _validate_limits(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems of the spending limits of an agent, or of the settings."""
    agent, config = subject.agent, subject.config
    concerned = [agent] if agent else survey_agents(subject.org).agents.values()
    turn_agents = (item for item in concerned if agent or config.has_model_turns(item))
    keys = {key for item in turn_agents for key in (item.model.key, *item.model.fallback)}
    entries = [(key, config.models[key]) for key in sorted(keys) if key in config.models]
    models = [(key, entry) for key, entry in entries if entry.provider not in NO_MODELS]
    for index, gate in enumerate(get_gates(agent or config.org)):
        if gate.at != "spend":
            continue
        pointer = f"/gates/{index}"
        if retention_problem := _retention_gap(gate, config):
            hint = "shorten it, or raise kept_journals: spending is read from journals"
            yield Problem(retention_problem, pointer=f"{pointer}/window", hint=hint)
        unpriced = [key for key, item in models if gate.dollars is not None and get_price(item) is None]
        if unpriced:
            message = f"a limit in dollars blocks models without a price: {', '.join(unpriced)}"
            hint = (
                "set usd_per_million_input_tokens and usd_per_million_output_tokens in config/models.json; "
                "0 for a free model"
            )
            yield make_warning(message, f"{pointer}/dollars", hint)
        tokens = gate.tokens
        blocked_keys = [
            key for key, item in models if tokens and item.max_output_tokens + CALL_OVERHEAD_TOKENS > tokens
        ]
        if blocked_keys:
            message = f"a limit of {tokens} tokens blocks every call of {', '.join(blocked_keys)}"
            hint = f"raise it above max_output_tokens plus {CALL_OVERHEAD_TOKENS} plus the prompt"
            yield make_warning(message, f"{pointer}/tokens", hint)


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


def _validate_judges(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems of the judges at the gates of an agent, or of the settings."""
    org, config, file = subject.org, subject.config, subject.file
    for index, gate in enumerate(get_gates(subject.agent or config.org)):
        if not gate.by:
            continue
        from lemming.capabilities.gates.gate_judges import get_judge  # only a gate with a judge needs judges
        from lemming.capabilities.judges.judges_validation import validate_judge_name

        judge_settings = get_judge(gate)
        yield from validate_judge_name(org, judge_settings.by, file, f"/gates/{index}", config)
        if judge_settings.policy_file:
            try:
                policy = judge_settings.policy_file.removeprefix("./")
                read_text(resolve_org_path(Path(org), policy, caller="policy"), {})
            except LemmingError as error:
                hint = error.hint or "name a file of the organisation"
                yield Problem(error.message, pointer=f"/gates/{index}/policy", hint=hint)


def gate_judge_programs(base: OrgPath, owner: OrgSettings | Agent) -> Iterator[RequiredPermission]:
    """Yield the permissions for judge programs at gates of the settings or of a resume."""
    file = paths.resume_file(owner.name) if isinstance(owner, Agent) else paths.ORG_FILE
    for index, gate in enumerate(get_gates(owner)):
        if gate.by:
            from lemming.capabilities.judges.judges_validation import program_permission  # as above

            yield from program_permission(base, gate.by, f"at a gate of {file}", f"{file}#/gates/{index}")
