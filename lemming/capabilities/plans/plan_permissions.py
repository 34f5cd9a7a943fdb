"""Validation of a plan against the organisation: agents asked, tools called, and effects of a default answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lemming.capabilities.judges.judges_capability import validate_judge
from lemming.capabilities.plans.plan_format import (
    AgentPlan,
    StepAction,
    StepDefinition,
    is_planner,
    iter_explicit_transitions,
    load_plan,
    plan_file,
    successors,
)
from lemming.capabilities.plans.plan_rules import locate_problems, validate_plan
from lemming.capabilities.plans.reference_validation import iter_condition_fields, iter_references
from lemming.capabilities.plans.value_paths import find_references, split_reference
from lemming.ext import AgentSubject, ConfigError, Problem, make_warning
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.base.json_schema.schema_violations import describe_violations
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.kernel.tools import get_toolset
from lemming.libraries.conditions.predicates import MISSING, compile_condition, get_field, validate_condition


def find_plan_problems(subject: AgentSubject) -> Iterator[Problem]:
    """Yield problems of an agent's plan: of the file, the plan, and its permissions."""
    org, agent, config = subject.org, subject.agent, subject.config
    file = plan_file(agent.name)
    if not is_planner(agent, config):
        if path_exists(f"{org.base}/{file}"):
            message = f'the plan has no effect: the model key of {agent.name} is "{agent.model.key}"'
            hint = f'set "model": {{"key": "plan"}} in agents/{agent.name}/resume.json, or remove the file'
            yield make_warning(message, hint=hint, file=file)
        return
    try:
        document = load_plan(org, agent.name)
    except ConfigError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            hint = "write it; see its format with `lemming export schema plan`"
            yield Problem(f"the plan of {agent.name} does not exist", file, hint=hint)
        else:
            yield from error.problems
        return
    yield from document.warnings
    context = PlanValidationContext(agent, config, org)
    problems = [*validate_plan(document.value), *validate_permissions(document.value, agent, context)]
    yield from locate_problems(problems, file, document.raw)
    for author, judge_settings, pointer in document.value.iter_judges():
        yield from validate_judge(org, agent, author, judge_settings, file, pointer, config, is_new=True)


DANGEROUS_CLASSES = ("send", "execute", "administer")
"""Tool classes (`lemming.tools.ToolClass`) that no unanswered approval may allow."""


class PlanValidationContext:
    """Agents, people and tools of the organisation, and the permissions of the plan's agent.

    `broken_agents` have a resume that cannot be read: they exist, so a plan may name them, and its step waits.

    `tool_classes` maps known tools to their classes. An unknown tool may belong to a plugin, which is not imported for
    validation, unless `knows_all_tools`.
    """

    def __init__(self, agent: Agent, config: Config, org: Organisation) -> None:
        self._agent, self._org, self._settings = agent, org, config.org
        survey = survey_agents(org)
        self.agents, self.people, self.broken_agents = survey.agents, survey.find_people(config), survey.broken
        self.planners = {name for name, candidate in self.agents.items() if is_planner(candidate, config)}
        self._tools = get_toolset(config.org, org).for_agent(agent.name)
        self.tool_classes = {name: self._tools[name].tool_class for name in self._tools}
        self.hint_for_tool = self._tools.suggest_tools
        self.knows_all_tools = not find_unimported(config.org.plugins)

    def refusal_reason(self, name: str) -> str:
        """Return the reason that the agent may not call a tool, or an empty text."""
        try:
            return self._tools.find(name).refusal_reason(self._agent, self._settings)
        except ToolError as error:
            return error.message

    def unreadable_reason(self, file: str) -> str:
        """Return the reason that the agent may not read a file, or an empty text."""
        try:
            resolve_path(self._agent, Path(self._org.base), file, "read", caller="plan")
        except PermissionDenied as error:
            return error.message
        return ""

    def find_plan(self, name: str) -> AgentPlan | None:
        """Return the plan of another agent, or None without a readable one."""
        with suppress(ConfigError):
            return load_plan(self._org, name).value if name in self.agents else None
        return None

    def find_parameters(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON Schema of a tool's arguments, if known."""
        with suppress(ToolError):
            return self._tools.find(name).parameters
        return None


def validate_permissions(plan: AgentPlan, agent: Agent, context: PlanValidationContext) -> Iterator[Problem]:
    """Yield problems of a plan in its organisation: unknown names and missing permissions."""
    for action, step, base_pointer in plan.iter_actions():
        for name, pointer in _iter_agent_names(action, base_pointer):
            yield from _asking_problems(name, pointer, agent, context)
        if action.plan:
            yield from _planner_problems(action.plan, f"{base_pointer}/plan", agent, context)
        for tool, _, pointer in _iter_calls(action, base_pointer):
            yield from _tool_problems(tool, f"{pointer}/tool", context)
        if action.wait and action.wait.time and not agent.clock:
            hint = f'set "clock": true in agents/{agent.name}/resume.json'
            message = 'a wait until a time requires "clock": true'
            yield Problem(message, pointer=f"{base_pointer}/wait/time", hint=hint)
        if action.wait and action.wait.file and (reason := context.unreadable_reason(action.wait.file)):
            hint = "grant it in permissions.file_access.allow_read"
            message = f"{agent.name} may not read {action.wait.file}: {reason}"
            yield Problem(message, pointer=f"{base_pointer}/wait/file", hint=hint)
        for tool, arguments, pointer in _iter_calls(action, base_pointer):
            yield from _argument_problems(tool, arguments, pointer, context)
        max_per_reply = min(agent.turn.max_entries, agent.turn.max_tool_calls)
        if action is step and len(step.parallel) > max_per_reply:
            message = (
                f'"parallel" must have at most {max_per_reply} members (turn.max_entries), got {len(step.parallel)}'
            )
            hint = "split it into two steps, or raise turn.max_entries in the resume"
            yield Problem(message, pointer=f"{base_pointer}/parallel", hint=hint)
        if action is step and step.each and step.target_agent and step.at_once > agent.turn.max_entries:
            message = f'"at_once" must be at most {agent.turn.max_entries} (turn.max_entries), got {step.at_once}'
            hint = f'write "at_once": {agent.turn.max_entries}, or raise turn.max_entries in the resume'
            yield Problem(message, pointer=f"{base_pointer}/at_once", hint=hint)
        if action.plan and (target_plan := context.find_plan(action.plan)) and target_plan.input:
            yield from _input_problems(action, target_plan.input, base_pointer)
        if action.default is not None and action.target_agent in context.people:
            yield from _default_problems(plan, action, step, base_pointer, context)
    for path, pointer in iter_references(plan):
        root, name = split_reference(path)
        if root == "last" and name:
            yield from _reading_problems(name, pointer, agent, context)


def _iter_agent_names(action: StepAction, base_pointer: str) -> Iterator[tuple[str, str]]:
    for key in ("ask", "plan"):
        if getattr(action, key):
            yield getattr(action, key), f"{base_pointer}/{key}"
    if action.verify and action.verify.ask:
        yield action.verify.ask, f"{base_pointer}/verify/ask"


def _iter_calls(action: StepAction, base_pointer: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    if action.tool:
        yield action.tool, action.args, base_pointer
    if action.verify and action.verify.tool:
        yield action.verify.tool, action.verify.args, f"{base_pointer}/verify"


def _asking_problems(name: str, pointer: str, agent: Agent, context: PlanValidationContext) -> Iterator[Problem]:
    if name == agent.name:
        hint = "ask another agent"
        yield Problem(f"the plan of {name} must not ask {name}", pointer=pointer, hint=hint)
        return
    if name not in context.agents:
        yield _missing_agent_problem(name, pointer, {*context.agents, *context.broken_agents} - {agent.name}, context)
        return
    if not agent.may_read(name):
        hint = f'add "{name}" to permissions.read_outboxes in agents/{agent.name}/resume.json'
        yield Problem(f"{agent.name} may not read {name}: the answer would not arrive", pointer=pointer, hint=hint)
    if name not in context.people and not context.agents[name].may_read(agent.name):
        hint = f'add "{agent.name}" to permissions.read_outboxes in agents/{name}/resume.json'
        yield Problem(f"{name} may not read {agent.name}: the request would not arrive", pointer=pointer, hint=hint)


def _missing_agent_problem(name: str, pointer: str, names: set[str], context: PlanValidationContext) -> Problem:
    """Return the problem of an agent that cannot be asked: its resume is broken, or there is none."""
    if name in context.broken_agents:
        hint = f"correct {paths.resume_file(name)}; until then the step waits for its answer"
        return make_warning(f"{name} takes no turns: its resume is broken", pointer=pointer, hint=hint)
    hint = did_you_mean(name, sorted(names)) or f"agents: {', '.join(sorted(names)) or 'none'}"
    return Problem(f'there is no agent "{name}"', pointer=pointer, hint=hint)


def _planner_problems(name: str, pointer: str, agent: Agent, context: PlanValidationContext) -> Iterator[Problem]:
    if name not in context.agents:
        return
    if name not in context.planners:
        hint = f'write "ask": "{name}", or name one of: {", ".join(sorted(context.planners - {agent.name})) or "none"}'
        yield Problem(f'"plan" must name an agent that follows a plan, got {name}', pointer=pointer, hint=hint)
        return
    chain = _find_cycle(name, agent.name, context, (agent.name,))
    if chain:
        hint = "remove one of these steps"
        yield Problem(f"plans must not ask each other in a circle: {' -> '.join(chain)}", pointer=pointer, hint=hint)


def _find_cycle(name: str, start: str, context: PlanValidationContext, chain: tuple[str, ...]) -> tuple[str, ...]:
    if name == start:
        return (*chain, name)
    if name in chain or (plan := context.find_plan(name)) is None:
        return ()
    longer_chains = (
        _find_cycle(action.target_agent, start, context, (*chain, name))
        for action, _, _ in plan.iter_actions()
        if action.target_agent
    )
    return next(filter(None, longer_chains), ())


def _tool_problems(name: str, pointer: str, context: PlanValidationContext) -> Iterator[Problem]:
    if name not in context.tool_classes:
        if not context.knows_all_tools:
            return
        yield Problem(f'there is no tool "{name}"', pointer=pointer, hint=context.hint_for_tool(name))
    elif reason := context.refusal_reason(name):
        hint = f'add "{name}" to permissions.tools in the resume'
        yield Problem(f"tool {name} may not be called: {reason}", pointer=pointer, hint=hint)


def _argument_problems(
    name: str, arguments: Mapping[str, Any], base_pointer: str, context: PlanValidationContext
) -> Iterator[Problem]:
    """Yield unknown arguments of a tool call, and missing required arguments."""
    schema = context.find_parameters(name)
    properties = schema.get("properties", {}) if schema else {}
    if schema is None or schema.get("additionalProperties") or not isinstance(properties, dict):
        return
    for key in arguments:
        if key not in properties:
            hint = did_you_mean(key, list(properties)) or f"arguments of the tool: {', '.join(properties) or 'none'}"
            yield Problem(f'tool {name} has no argument "{key}"', pointer=f"{base_pointer}/args/{key}", hint=hint)
    if missing := [key for key in schema.get("required", ()) if key not in arguments]:
        hint = f'add "args": {{"{missing[0]}": ...}}'
        yield Problem(f'tool {name} requires the argument "{missing[0]}"', pointer=f"{base_pointer}/args", hint=hint)


def _input_problems(action: StepAction, input_schema: Mapping[str, Any], base_pointer: str) -> Iterator[Problem]:
    """Yield arguments that do not fit the `input` schema of a called plan, and missing required fields."""
    properties = input_schema.get("properties", {})
    for key, value in action.args.items():
        if key in properties:
            if not any(find_references(value)) and (errors := describe_violations(properties[key], value)):
                message = f'argument "{key}" does not match the input of {action.plan}: {"; ".join(errors)}'
                yield Problem(message, pointer=f"{base_pointer}/args/{key}", hint="see input in the agent's plan.json")
        elif input_schema.get("additionalProperties") is False:
            hint = did_you_mean(key, list(properties)) or f"fields of its input: {', '.join(properties) or 'none'}"
            yield Problem(
                f'the plan of {action.plan} has no argument "{key}"', pointer=f"{base_pointer}/args/{key}", hint=hint
            )
    if missing := [key for key in input_schema.get("required", ()) if key not in (*action.args, "text")]:
        hint = f'add "args": {{"{missing[0]}": ...}}'
        yield Problem(
            f'the plan of {action.plan} requires the argument "{missing[0]}"', pointer=f"{base_pointer}/args", hint=hint
        )


def _reading_problems(name: str, pointer: str, agent: Agent, context: PlanValidationContext) -> Iterator[Problem]:
    if name not in context.agents:
        yield _missing_agent_problem(name, pointer, {*context.agents, *context.broken_agents}, context)
    elif not agent.may_read(name):
        hint = f'add "{name}" to permissions.read_outboxes in agents/{agent.name}/resume.json'
        yield Problem(f"{agent.name} may not read {name}", pointer=pointer, hint=hint)


def _default_problems(
    plan: AgentPlan, action: StepAction, step: StepDefinition, base_pointer: str, context: PlanValidationContext
) -> Iterator[Problem]:
    """Yield a problem if a person's silence leads to a tool with effects beyond files."""
    next_steps = successors(plan)
    pending, visited = [*(_transitions_on_default(plan, action, step) & next_steps.keys())], set[str]()
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        next_step = plan.get_step(name)
        if next_step is None or (next_step.target_agent in context.people and next_step.default is None):
            continue  # from there on a person has decided
        tools = [call[0] for member in (next_step, *next_step.parallel) for call in _iter_calls(member, "")]
        if tool := next((tool for tool in tools if context.tool_classes.get(tool) in DANGEROUS_CLASSES), ""):
            message = (
                f'if {action.target_agent} does not answer, the default leads to "{name}", which calls {tool} '
                f"({context.tool_classes[tool]})"
            )
            hint = "choose a default that ends the run, or remove it to let the request wait"
            yield Problem(message, pointer=f"{base_pointer}/default", hint=hint)
            return
        pending.extend(next_steps[name])


def _transitions_on_default(plan: AgentPlan, action: StepAction, step: StepDefinition) -> set[str]:
    if action is not step or step.each:
        return successors(plan)[step.name]
    answer: dict[str, Any] = {"text": action.default} if isinstance(action.default, str) else action.default
    if step.choose:
        choice = get_field(answer, step.choose.field_)
        return {step.choose.to.get(str(choice), step.else_)} if choice is not MISSING else {step.else_}
    if step.routes:
        return _possible_routes(plan, step, answer)
    return successors(plan)[step.name]


def _possible_routes(plan: AgentPlan, step: StepDefinition, answer: dict[str, Any]) -> set[str]:
    """Return the possible targets, given only the answer."""
    possible = set[str]()
    for route in step.routes:
        if any(validate_condition(route.when)):  # the target cannot be known in advance
            return {transition.to for transition in iter_explicit_transitions(plan, plan.steps.index(step))}
        if all(field.partition(".")[0] == "answer" for field, _ in iter_condition_fields(route.when, "")):
            if compile_condition(route.when)({"answer": answer}):
                return {*possible, route.to}
        else:
            possible.add(route.to)
    return {*possible, step.else_}
