"""The built-in strategies, with their options and inputs."""

from __future__ import annotations

from lemming.capabilities.strategies import plan_execute, reflexion
from lemming.kernel.turn.strategy import react
from lemming.libraries.strategy_registry import RegisteredStrategy

REACT = RegisteredStrategy("react", react)
PLAN_EXECUTE = RegisteredStrategy(
    "plan_execute",
    plan_execute.plan_execute,
    plan_execute.PlanExecuteOptions,
    plan_execute.load_inputs,
    has_memory=True,
)
REFLEXION = RegisteredStrategy("reflexion", reflexion.reflexion, reflexion.ReflexionOptions, reflexion.load_inputs)
