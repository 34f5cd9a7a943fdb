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
from lemming.capabilities.gates.spending_limit import FREE_RUNS, parse_window
from lemming.capabilities.gates.untrusted_senders import validate_untrusted_access
from lemming.capabilities.pricing.prices import get_price, max_call_cost
from lemming.ext import CheckSubject, Inventory, LemmingError, ModelEntry, Problem, make_warning
from lemming.kernel.access.agent_files import read_text
from lemming.kernel.access.allowed_paths import resolve_org_path
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import did_you_mean, dump_compact
from lemming.kernel.base.name_patterns import is_any_match, is_match
from lemming.kernel.llm.call_cost import CALL_OVERHEAD_TOKENS
from lemming.kernel.org.config import Config
from lemming.kernel.plugins.capability_table import NO_MODELS, PREFIXES
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.kernel.providers import get_provider_class
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
    earlier_rules = [*iter_rules(settings)]
    if only is None:
        yield from _check_rules(paths.ORG_FILE, earlier_rules, [], subject.names, None)
    for name in [only] if only else agents:
        if agent := agents.get(name):
            file = paths.resume_file(name)
            yield from _check_rules(file, [*iter_rules(agent)], earlier_rules, subject.names, agent)


def _check_rules(
    file: str, own_rules: Sequence[GateRule], earlier_rules: Sequence[GateRule], names: Inventory, agent: Agent | None
) -> Iterator[Problem]:
    rules, plugins = [*earlier_rules, *own_rules], tuple(names.config.org.plugins)
    for index, (_, gate) in enumerate(own_rules):
        pointer = f"/gates/{index}"
        for at, message, hint in _find_unknown_tools(gate, names, agent):
            yield make_warning(message, f"{pointer}/tool{at}", hint, file, CODE)
        for name in gate.approved:
            if name not in (candidates := [agent.name] if agent else names.folders):
                message = f'"approved" names "{name}", and there is no such agent'
                hint = did_you_mean(name, candidates) or "remove it"
                yield make_warning(message, f"{pointer}/approved/{name}", hint, file, CODE)
        if gate.check and not find_unimported(plugins) and gate.check not in (functions := load_checks(plugins)):
            message = f'function "{gate.check}" is not registered by a plugin: the gate blocks'
            hint = did_you_mean(gate.check, [*functions]) or "register it with @check in a plugin"
            yield make_warning(message, f"{pointer}/check", hint, file, CODE)
        if deciding_rule := _find_shadowing_gate(rules[: len(earlier_rules) + index], gate):
            message = f"the gate is never reached: {deciding_rule.line} decides all its calls"
            yield make_warning(message, pointer, "move it before that gate, or remove it", file, CODE)


def _find_unknown_tools(gate: Gate, names: Inventory, agent: Agent | None) -> Iterator[tuple[str, str, str]]:
    """Yield the tools of a gate that no agent may call: the location below `tool`, the problem, and the fix."""
    if not gate.tool_patterns or names.toolset is None:
        return
    agents = [agent] if agent else [*names.survey.agents.values()]
    callable_names = {name for candidate in agents for name in names.allowed_tools[candidate.name]}
    for index, pattern in enumerate(gate.tool_patterns):
        at = "" if isinstance(gate.tool, str) else f"/{index}"
        if any(is_match(name, pattern) for name in callable_names):
            continue
        if pattern.startswith(PREFIXES):
            may_exist = missing_server_tool_reason(names.org, pattern) is None
            if may_exist and (reason_and_hint := missing_server_tool_reason(names.org, pattern, today=True)):
                yield at, *reason_and_hint
        elif any(is_match(name, pattern) for name in names.tool_names):
            subject = f"{agent.name} may not" if agent else "no agent may"
            yield at, f'{subject} call "{pattern}": the gate has no effect', "grant the tool, or remove the gate"


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
    is_limit = earlier_gate.at == "spend" and earlier_gate.per is not None
    if earlier_gate.at != gate.at or earlier_gate.finding_key or earlier_gate.then not in SETTLES or is_limit:
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
    # A condition with all parts of the earlier condition implies the earlier condition.
    parts = [dump_compact(part) for part in _conjuncts(gate.when)]
    return has_tools and has_classes and all(dump_compact(part) in parts for part in _conjuncts(earlier_gate.when))


def _conjuncts(condition: Json | None) -> Iterator[Json]:
    """Yield the necessary parts of a condition."""
    if condition is None:
        return
    if "all" in condition:
        for part in condition["all"]:
            yield from _conjuncts(part)
    else:
        yield condition


Models = Sequence[tuple[str, ModelEntry]]


def find_limit_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems of spending limits and of judges in the gates of an agent, or of the settings."""
    agent, config = subject.agent, subject.config
    gates = get_gates(agent or config.org)
    if not gates:
        return
    concerned = [agent] if agent else survey_agents(subject.org).agents.values()
    turn_agents = (item for item in concerned if agent or config.has_model_turns(item))
    keys = {key for item in turn_agents for key in (item.model.key, *item.model.fallback)}
    entries = [(key, config.models[key]) for key in sorted(keys) if key in config.models]
    models: Models = [(key, entry) for key, entry in entries if entry.provider not in NO_MODELS]
    for index, gate in enumerate(gates):
        if gate.at == "spend":
            yield from _validate_limit(gate, f"/gates/{index}", models, config)
        elif gate.by:
            yield from _validate_judge(gate, f"/gates/{index}", subject)


def _validate_limit(gate: Gate, pointer: str, models: Models, config: Config) -> Iterator[Problem]:
    if retention_problem := _retention_gap(gate, config):
        hint = "shorten it, or raise kept_journals: spending is read from journals"
        yield Problem(retention_problem, pointer=f"{pointer}/window", hint=hint)
    if unpriced := [key for key, item in models if gate.dollars is not None and get_price(item) is None]:
        message = f"a limit in dollars blocks models without a price: {', '.join(unpriced)}"
        hint = (
            "set usd_per_million_input_tokens and usd_per_million_output_tokens in config/models.json; "
            "0 for a free model"
        )
        yield make_warning(message, f"{pointer}/dollars", hint)
    if unlimited := [key for key, item in models if gate.dollars is not None and _has_unlimited_runs(item, config)]:
        message = f"a limit in dollars blocks programs without options.max_cost_usd: {', '.join(unlimited)}"
        yield make_warning(message, f"{pointer}/dollars", f"set it in config/models.json; {FREE_RUNS}")
    tokens = gate.tokens
    if blocked := [key for key, item in models if tokens and item.max_output_tokens + CALL_OVERHEAD_TOKENS > tokens]:
        message = f"a limit of {tokens} tokens blocks every call of {', '.join(blocked)}"
        hint = f"raise it above max_output_tokens plus {CALL_OVERHEAD_TOKENS} plus the prompt"
        yield make_warning(message, f"{pointer}/tokens", hint)


def _has_unlimited_runs(entry: ModelEntry, config: Config) -> bool:
    """Return True if a run of the model's program may cost any number of dollars."""
    is_free = get_price(entry) is not None and max_call_cost(entry, 1).dollars == 0
    makes_many_calls = get_provider_class(entry.provider, config.org.plugins).makes_many_calls
    return makes_many_calls and entry.max_cost_usd is None and not is_free


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


def _validate_judge(gate: Gate, pointer: str, subject: CheckSubject) -> Iterator[Problem]:
    from lemming.capabilities.gates.gate_judges import get_judge  # only a gate with a judge needs judges
    from lemming.capabilities.judges.judges_capability import validate_judge_name

    judge = get_judge(gate)
    yield from validate_judge_name(subject.org, judge.by, subject.file, pointer, subject.config)
    if judge.policy_file:
        try:
            policy = resolve_org_path(Path(subject.org), judge.policy_file.removeprefix("./"), caller="policy")
            read_text(policy, {})
        except LemmingError as error:
            hint = error.hint or "name a file of the organisation"
            yield Problem(error.message, pointer=f"{pointer}/policy", hint=hint)
