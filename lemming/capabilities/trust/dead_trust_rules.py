"""Validate trust rules: report rules without an author or a tool. Only certain problems are reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lemming.capabilities.trust.trust_settings import TOOL_LABELS, TrustRule, TrustSettings, get_minimum_label
from lemming.ext import Inventory, PointerProblem
from lemming.kernel.agents import Agent, suggest_agent
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.org.capability_usage import provider_capability
from lemming.kernel.org.config import Config
from lemming.kernel.plugins.capability_loader import load_provided
from lemming.kernel.plugins.capability_table import STRATEGY_OWNERS
from lemming.libraries.conditions.predicates import iter_fields

VERIFIED = {"http": ("secret", "token"), "folder": ("owner",), "mail": (), "command": ()}
"""Fields verified by the shipped channels (docs/trust.md); a plugin's channel may verify anything."""
_LATER = 'set "may_be_absent": true if you add it later'


def validate_trust(trust: TrustSettings, inventory: Inventory) -> Iterator[PointerProblem]:
    """Yield rules without an existing author, unreachable rules, and patterns without a matching tool."""
    for number, rule in enumerate(trust.rules):
        pointer = f"/trust/rules/{number}"
        named = [name for name in inventory.agent_names if is_match(name, rule.from_)]
        earlier = [item for item in trust.rules[:number] if not item.when and is_match(rule.from_, item.from_)]
        if not named and not rule.may_be_absent:
            hint = f"{suggest_agent(rule.from_, inventory.agent_names)}; {_LATER}"
            yield PointerProblem(f"{pointer}/from", f'there is no agent "{rule.from_}"', hint)
        elif rule.when and not rule.may_be_absent and not any(map(inventory.is_channel, named)):
            hint = "remove `when`: only fields verified by a channel can be tested"
            yield PointerProblem(f"{pointer}/when", f'"{rule.from_}" is not a channel', hint)
        elif (providers := [*map(inventory.agent_provider, named)]) and (
            field := _find_unverified_field(rule, providers)
        ):
            verified_fields = sorted(
                {f"verified.{item}" for provider in providers for item in VERIFIED.get(provider, ())}
            )
            hint = did_you_mean(field, verified_fields) or f"verified fields: {', '.join(verified_fields) or 'none'}"
            yield PointerProblem(f"{pointer}/when", f'the channel of "{rule.from_}" does not verify "{field}"', hint)
        elif earlier:
            hint = "move it up: the first matching rule counts"
            yield PointerProblem(
                f"{pointer}/from", f'an earlier rule ("{earlier[0].from_}") already covers these agents', hint
            )
    for pattern in () if trust.may_be_absent else trust.tools:
        if pattern not in TOOL_LABELS and (reason := inventory.missing_tool_reason(pattern)):
            yield PointerProblem(f"/trust/tools/{pattern}", reason[0], f"{reason[1]}; {_LATER}")


def validate_clean_turns(agent: Agent, trust: TrustSettings | None, config: Config) -> Iterator[PointerProblem]:
    """Yield the reasons no turn of an agent can be clean, although the resume demands clean turns."""
    if not (minimum := get_minimum_label(agent)):
        return
    if trust is None:
        hint = 'set "trust": {} in config/org.json, or remove this'
        yield PointerProblem("/trust", "trust tracking is off", hint)
    elif minimum not in trust.order:
        hint = did_you_mean(minimum, trust.order) or f"use one of {', '.join(trust.order)}"
        yield PointerProblem("/trust/clean", f'"clean" must be a label of "order", got "{minimum}"', hint)
    if brain := provider_capability(agent, config):
        message = f"{brain} depend on their memory, which clean turns may hide: they would restart each time"
        yield PointerProblem("/trust", message, "remove this, or choose another model key")
    strategy = agent.turn.strategy
    if strategy and strategy in STRATEGY_OWNERS and load_provided(STRATEGY_OWNERS, strategy).has_memory:
        message = f"{strategy} depends on its memory, which clean turns may hide: it would restart each time"
        yield PointerProblem("/turn/strategy", message, "remove this, or remove trust.clean")
    if agent.turn.take != "one":
        hint = 'set "take": "one" in turn'
        yield PointerProblem("/turn", 'clean turns require "take": "one"', hint)


def _find_unverified_field(rule: TrustRule, providers: Sequence[str]) -> str:
    """Return the first field of a rule's condition not verified by any channel, or an empty text."""
    if not rule.when or not VERIFIED.keys() >= {*providers}:
        return ""
    verified_fields = {f"verified.{name}" for provider in providers for name in VERIFIED[provider]}
    return next((name for name in iter_fields(rule.when) if name not in verified_fields), "")
