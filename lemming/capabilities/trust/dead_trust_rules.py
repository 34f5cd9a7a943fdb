"""Validate trust rules: report rules without an author or a tool. Only certain problems are reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lemming.capabilities.conditions.predicates import iter_fields
from lemming.capabilities.trust.trust_settings import TOOL_LABELS, TrustRule, TrustSettings, get_minimum_label
from lemming.kernel.agents import Agent, suggest_agent
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.org.capability_usage import provider_capability
from lemming.kernel.org.config import Config
from lemming.kernel.plugins.capability_table import MEMORY_STRATEGIES
from lemming.kernel.tick.validation.inventory import Inventory, PointerProblem

VERIFIED = {"http": ("secret", "token"), "folder": ("owner",), "mail": (), "command": ()}
"""Fields verified by the shipped channels (docs/trust.md); a plugin's channel may verify anything."""
_LATER = '"may_be_absent": true says that it is for later'


def validate_trust(trust: TrustSettings, inventory: Inventory) -> Iterator[PointerProblem]:
    """Yield rules without an existing author, unreachable rules, and patterns without a matching tool."""
    for number, rule in enumerate(trust.rules):
        pointer = f"/trust/rules/{number}"
        named = [name for name in inventory.agent_names if is_match(name, rule.from_)]
        earlier = [
            item for item in trust.rules[:number] if not item.when and is_match(rule.from_, item.from_)
        ]
        if not named and not rule.may_be_absent:
            hint = f"{suggest_agent(rule.from_, inventory.agent_names)}; {_LATER}"
            yield PointerProblem(f"{pointer}/from", f'"{rule.from_}" is the name of no agent', hint)
        elif rule.when and not rule.may_be_absent and not any(map(inventory.is_channel, named)):
            hint = "only what a channel has verified can be looked at; take `when` out"
            yield PointerProblem(f"{pointer}/when", f'no channel speaks for "{rule.from_}"', hint)
        elif (providers := [*map(inventory.agent_provider, named)]) and (
            field := _find_unverified_field(rule, providers)
        ):
            verified_fields = sorted(
                {f"verified.{item}" for provider in providers for item in VERIFIED.get(provider, ())}
            )
            hint = (
                did_you_mean(field, verified_fields) or f"there is {', '.join(verified_fields) or 'nothing'}"
            )
            yield PointerProblem(f"{pointer}/when", f'no channel of "{rule.from_}" verifies "{field}"', hint)
        elif earlier:
            hint = "the first rule that fits counts: move it up"
            yield PointerProblem(
                f"{pointer}/from", f'an earlier rule ("{earlier[0].from_}") is about all of these', hint
            )
    for pattern in () if trust.may_be_absent else trust.tools:
        if pattern not in TOOL_LABELS and (reason := inventory.missing_tool_reason(pattern)):
            yield PointerProblem(f"/trust/tools/{pattern}", reason[0], f"{reason[1]}; {_LATER}")


def validate_clean_turns(
    agent: Agent, trust: TrustSettings | None, config: Config
) -> Iterator[PointerProblem]:
    """Yield the reasons no turn of an agent can be clean, although the resume demands clean turns."""
    if not (minimum := get_minimum_label(agent)):
        return
    if trust is None:
        hint = 'say "trust": {} in config/org.json, or take this out'
        yield PointerProblem("/trust", "nobody keeps track of how far texts are trusted", hint)
    elif minimum not in trust.order:
        hint = did_you_mean(minimum, trust.order) or f"there is {', '.join(trust.order)}"
        yield PointerProblem("/trust/clean", f'"{minimum}" is none of the words of order', hint)
    if brain := provider_capability(agent, config):
        message = f"{brain} go by what they keep: where that is not shown they begin anew, each time"
        yield PointerProblem("/trust", message, "take this out, or another model key")
    if (strategy := agent.turn.strategy) in MEMORY_STRATEGIES:
        message = f"{strategy} goes by what it keeps: where that is not shown it begins anew, each time"
        yield PointerProblem("/turn/strategy", message, "take this out, or trust.clean")
    if agent.turn.take != "one":
        hint = 'say "take": "one" there'
        yield PointerProblem(
            "/turn", "only turns for one request can be clean, and this agent takes none", hint
        )


def _find_unverified_field(rule: TrustRule, providers: Sequence[str]) -> str:
    """Return the first field of a rule's condition not verified by any channel, or an empty text."""
    if not rule.when or not VERIFIED.keys() >= {*providers}:
        return ""
    verified_fields = {f"verified.{name}" for provider in providers for name in VERIFIED[provider]}
    return next((name for name in iter_fields(rule.when) if name not in verified_fields), "")
