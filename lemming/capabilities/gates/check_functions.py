"""Functions that gates call by name (`"check": "no_prices"`). A plugin registers each with `@check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lemming.capabilities.gates.gate_evaluation import CheckRunner, Json
from lemming.kernel.base.blocking_deadline import Deadline, WorkAbandoned, run_on_thread
from lemming.kernel.base.jsontext import did_you_mean, dump_compact, parse
from lemming.kernel.plugins.plugin_registry import collect_items, register
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.turn.guards import CheckFinding as CheckFinding
from lemming.kernel.turn.guards import CheckFunctionError

DEADLINE_S = 10.0
NO_SHIPPED_CHECKS: Mapping[str, str] = {}
CheckFunction = Callable[[Json], Any]
F = TypeVar("F", bound=CheckFunction)


def check(function: F) -> F:
    """Register a function for gates under its own name. For modules that are plugins.

    The function receives the fields seen by the gate (docs/gates.md). The function returns None without
    objection, a text with the finding, or `CheckFinding(reason, content)` with the replacement for a rewrite.
    """
    name = function.__name__
    register("check", name, function, defined_by=function, shipped=NO_SHIPPED_CHECKS)
    return function


def load_checks(plugins: tuple[str, ...]) -> Mapping[str, CheckFunction]:
    """Return the check functions of these plugins by name."""
    return collect_items("check", plugins, dict)


def make_check_runner(plugins: tuple[str, ...]) -> CheckRunner:
    """Return the callable for running check functions of gates. Each function has ten seconds."""

    def run_check(name: str, fields: Json) -> CheckFinding | None:
        functions = load_checks(plugins)
        if name not in functions:
            hint = did_you_mean(name, [*functions]) or "@check in a plugin registers one"
            raise CheckFunctionError(f'there is no function "{name}": {hint}')
        fields_copy = parse(dump_compact(fields))  # a copy that the function may change
        try:
            # Code of a plugin may hang: its thread is abandoned, and the gate blocks.
            deadline = Deadline(DEADLINE_S)
            answer = run_on_thread(lambda: functions[name](fields_copy), deadline, name=f"lemming-gate-{name}")
        except WorkAbandoned:
            raise CheckFunctionError(f"{name} took longer than {DEADLINE_S:g} s") from None
        except (Exception, SystemExit) as error:
            raise CheckFunctionError(describe_exception(error)) from error
        return _to_finding(name, answer)

    return run_check


def _to_finding(name: str, answer: Any) -> CheckFinding | None:
    if answer is None or isinstance(answer, CheckFinding):
        return answer
    if isinstance(answer, str):
        return CheckFinding(answer)
    raise CheckFunctionError(f"{name} returned {type(answer).__name__}, not None, a text or CheckFinding")
