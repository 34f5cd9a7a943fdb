"""Rules of trust that are about nobody and nothing here. Only what is sure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lemming.capabilities.conditions.when import fields_in
from lemming.capabilities.trust.settings import OF_TOOLS, Trust, TrustRule, least_shown
from lemming.kernel.agents import Agent, nearest_agent
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.patterns import is_named
from lemming.kernel.org.config import Config
from lemming.kernel.org.uses import brain_of
from lemming.kernel.plugins.shipped import BY_MEMORY
from lemming.kernel.tick.soundness.inventory import Fault, Inventory

VERIFIED = {"http": ("secret", "token"), "folder": ("owner",), "mail": (), "command": ()}
"""What the channels that ship make sure of (docs/trust.md); one of a plugin may make sure of anything."""
_LATER = '"may_be_absent": true says that it is for later'


def wrong_with_trust(trust: Trust, known: Inventory) -> Iterator[Fault]:
    """Yield rules that are about nobody here, or are never reached, and patterns that fit no tool."""
    for number, rule in enumerate(trust.rules):
        at = f"/trust/rules/{number}"
        named = [name for name in known.names if is_named(name, rule.from_)]
        earlier = [it for it in trust.rules[:number] if not it.when and is_named(rule.from_, it.from_)]
        if not named and not rule.may_be_absent:
            hint = f"{nearest_agent(rule.from_, known.names)}; {_LATER}"
            yield Fault(f"{at}/from", f'"{rule.from_}" is the name of no agent', hint)
        elif rule.when and not rule.may_be_absent and not any(map(known.is_channel, named)):
            hint = "only what a channel has verified can be looked at; take `when` out"
            yield Fault(f"{at}/when", f'no channel speaks for "{rule.from_}"', hint)
        elif (of := [*map(known.provider_of, named)]) and (field := _never_verified(rule, of)):
            known_here = sorted({f"verified.{it}" for each in of for it in VERIFIED.get(each, ())})
            hint = nearest(field, known_here) or f"there is {', '.join(known_here) or 'nothing'}"
            yield Fault(f"{at}/when", f'no channel of "{rule.from_}" verifies "{field}"', hint)
        elif earlier:
            hint = "the first rule that fits counts: move it up"
            yield Fault(f"{at}/from", f'an earlier rule ("{earlier[0].from_}") is about all of these', hint)
    for pattern in () if trust.may_be_absent else trust.tools:
        if pattern not in OF_TOOLS and (why := known.why_no_tool(pattern)):
            yield Fault(f"/trust/tools/{pattern}", why[0], f"{why[1]}; {_LATER}")


def wrong_with_clean(agent: Agent, trust: Trust | None, config: Config) -> Iterator[Fault]:
    """Yield why no turn of an agent could be clean that is to have such."""
    if not (least := least_shown(agent)):
        return
    if trust is None:
        hint = 'say "trust": {} in config/org.json, or take this out'
        yield Fault("/trust", "nobody keeps track of how far texts are trusted", hint)
    elif least not in trust.order:
        hint = nearest(least, trust.order) or f"there is {', '.join(trust.order)}"
        yield Fault("/trust/clean", f'"{least}" is none of the words of order', hint)
    if brain := brain_of(agent, config):
        words = f"{brain} go by what they keep: where that is not shown they begin anew, each time"
        yield Fault("/trust", words, "take this out, or another model key")
    if (strategy := agent.turn.strategy) in BY_MEMORY:
        words = f"{strategy} goes by what it keeps: where that is not shown it begins anew, each time"
        yield Fault("/turn/strategy", words, "take this out, or trust.clean")
    if agent.turn.take != "one":
        hint = 'say "take": "one" there'
        yield Fault("/turn", "only turns for one request can be clean, and this agent takes none", hint)


def _never_verified(rule: TrustRule, providers: Sequence[str]) -> str:
    """Return the first field of a rule's condition that no channel makes sure of; empty for none."""
    if not rule.when or not VERIFIED.keys() >= {*providers}:
        return ""
    known = {f"verified.{it}" for each in providers for it in VERIFIED[each]}
    return next((it for it in fields_in(rule.when) if it not in known), "")
