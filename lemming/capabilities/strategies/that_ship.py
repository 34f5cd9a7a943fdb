"""The strategies that ship, with their options and what they need beside the prompt."""

from __future__ import annotations

from lemming.capabilities.strategies import plan_execute, reflexion
from lemming.capabilities.strategies.registry import NamedStrategy
from lemming.kernel.turn.react import react

REACT = NamedStrategy("react", react)
PLAN_EXECUTE = NamedStrategy(
    "plan_execute", plan_execute.plan_execute, plan_execute.Options, plan_execute.given
)
REFLEXION = NamedStrategy("reflexion", reflexion.reflexion, reflexion.Options, reflexion.given)
