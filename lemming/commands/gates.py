"""`lemming gates`: the rules there are, what they would say of a call, and what an agent could cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from lemming.capabilities.gates.foresee import Foreseen, outcomes
from lemming.capabilities.gates.format import Gate, Rule
from lemming.capabilities.gates.keys import gates_in, rules_in
from lemming.capabilities.gates.standard import standard
from lemming.commands.options import Here, Limit, argument, noun, option
from lemming.commands.screen import one_line, painted, show, show_columns, show_pretty, tell
from lemming.commands.tools import arguments_from
from lemming.commands.trust import load_settings
from lemming.kernel.agents import Survey, survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import parse, pretty, to_line
from lemming.kernel.journal.verdicts import Then
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import ORG_FILE, Config, Org, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.registry import load_installed_plugins
from lemming.kernel.tools import toolset_of

if TYPE_CHECKING:
    from lemming.capabilities.gates.explained import AskedGate, Explained
    from lemming.capabilities.gates.reach import AgentReach, ToolReach


DOES: dict[Then, str] = {
    "pass": "lets it pass",
    "warn": "warns",
    "rewrite": "rewrites it",
    "block": "blocks it",
    "ask": "asks a person",
    "stop": "ends the turn",
}
"""What a gate does, as a sentence whose subject is its line."""

ENDS: dict[Then, str] = {
    "pass": "it is made",
    "block": "it is not made; the model reads why",
    "ask": "it waits for a person's approval",
    "stop": "it is not made, and the turn ends",
}
SENTENCE = 300
AgentName = Annotated[str, argument("AGENT", "Whose.", of_agents=True)]


def list_gates(
    here: Here,
    agent: Annotated[str | None, option("--agent AGENT", "Only those it passes.", of_agents=True)] = None,
    limit: Limit = None,
) -> None:
    """List the gates in the order in which they are asked, each with its line.

    Those of config/org.json come first, for all agents; then those of each resume, for its agent.

    \b
    Examples:
      lemming gates list
      lemming gates list --agent ada
    """
    base = here.org
    settings, survey = load_config(base).org, survey_agents(base)
    rows = []
    for rule, whose in here.few([*_listed(settings, survey, agent)], limit):
        if not here.shows("gate", {**rule.as_json(), "agent": whose}):
            rows.append([rule.line, rule.gate.at, _concerns(rule.gate), rule.gate.then, rule.gate.because])
    if here.as_json:
        return
    show_columns(rows)
    if not rows:
        tell("no gates: everything passes. `lemming gates standard` prints a table to begin with")


app = noun(
    "See the gates there are, what they would say of a call, and what an agent could cause.", alone=list_gates
)
app.verb("list")(list_gates)


@app.verb("explain")
def explain(
    here: Here,
    agent: AgentName,
    tool: Annotated[str, argument("TOOL", "The tool that it would call.")],
    given: Annotated[
        list[str] | None, argument("[ARGS]", "A JSON object, or KEY=VALUE... Values: JSON, else text.")
    ] = None,
    trust: Annotated[
        str | None, option("--trust WORD", "How far its turn is trusted. Default: as the agent is.")
    ] = None,
) -> None:
    """Say what would become of a call, which line says so, and which lines were asked before it.

    Nothing is called. A gate that asks a function or a judge is told of as such: nobody is asked.

    \b
    Examples:
      lemming gates explain ada shell command="git push"
      lemming gates explain ada file_write '{"path": "shared/x", "content": "y"}' --trust outside
    """
    from lemming.capabilities.gates.explained import context_of, explain_call, find_in

    base, config, survey = _opened(here)
    whose = find_in(survey, agent)
    now = timestamp(SystemClock().now())
    context = context_of(base, config, whose, now)
    explained = explain_call(context, config, survey, tool, _arguments(given or []), trust)
    if not here.shows("call_explained", _explained_as_json(explained)):
        _show_explained(explained)


@app.verb("reach")
def reach(here: Here, agent: AgentName) -> None:
    """Show everything that an agent could cause, itself and through others, and what gates say of it.

    This is what permissions and gates allow, whatever a model is likely to do: its tools, at every word of
    trust that its turns can have, the files, hosts and servers it reaches, who reads its entries, and what
    these could do because of it. And which strangers' words come to it, by which way.

    \b
    Examples:
      lemming gates reach ada
      lemming gates reach ada --json | jq '.through[].agent'
    """
    from lemming.capabilities.gates.explained import find_in
    from lemming.capabilities.gates.reach import Reaching

    base, config, survey = _opened(here)
    find_in(survey, agent)
    found = Reaching(base, config, survey, toolset_of(config.org, base)).of(agent)
    if not here.shows("reach_of_agent", found.as_json()):
        _show_reach(found)


@app.verb("standard")
def show_standard(
    here: Here, write: Annotated[bool, option("--write", "Put it into config/org.json.")] = False
) -> None:
    """Print the table of gates that ships: what turns that were shown strangers' words may not do unasked.

    \b
    Examples:
      lemming gates standard
      lemming gates standard --write
    """
    if write:
        base = here.org
        _write_standard(base)
        tell(f"{ORG_FILE} has it now: `lemming gates list`, then `lemming validate`")
    if not here.shows("standard_gates", standard()):
        show_pretty(standard())


def _write_standard(base: Organisation) -> None:
    """Put the table into the settings; what else they say stays. Raises `UsageError` if there are gates."""
    if gates_in(load_config(base).org):
        hint = "`lemming gates standard` prints the table: take from it what you miss"
        raise UsageError(f"{ORG_FILE} has gates already", hint=hint)
    with changing_file(base, ORG_FILE) as opened:
        plain: dict[str, Any] = parse(opened.raw, allow_bom=True)
        table = standard()
        trust = plain.get("trust")
        plain["trust"] = table["trust"] if trust is None else trust
        plain["gates"] = table["gates"]
        opened.publish(pretty(plain))


def _opened(here: Here) -> tuple[Organisation, Config, Survey]:
    base = here.org
    config = load_settings(base)
    load_installed_plugins()
    return base, config, survey_agents(base)


def _listed(settings: Org, survey: Survey, agent: str | None) -> Iterator[tuple[Rule, str | None]]:
    """Yield gates in their order, each with the agent whose resume has it, if one has."""
    from lemming.capabilities.gates.explained import find_in

    agents = [find_in(survey, agent)] if agent else survey.agents.values()
    for rule in rules_in(settings):
        yield rule, None
    for it in agents:
        for rule in rules_in(it):
            yield rule, it.name


def _concerns(gate: Gate) -> str:
    """Return what a gate concerns and looks for, as its file says it."""
    told = {key: value for key, value in gate.plain.items() if key not in ("at", "then", "because")}
    return to_line(told) if told else "all"


def _arguments(given: list[str]) -> dict[str, Any]:
    """Return the arguments of a call as they were typed."""
    if len(given) == 1 and given[0].lstrip().startswith("{"):
        return arguments_from([], given[0])
    return arguments_from(given, None)


def _explained_as_json(told: Explained) -> dict[str, Any]:
    steps = [
        {"line": it.line, "then": it.then, "why": it.why, "asks": it.asks, "gate": it.gate.plain}
        for it in told.steps
    ]
    return {
        "agent": told.agent,
        "tool": told.tool,
        "class": told.tool_class,
        "granted": not told.granted,
        "why_not_granted": told.granted,
        "trust": told.trust or None,
        "then": None if told.granted else told.then,
        "line": told.line,
        "why": told.why,
        "args": told.args,
        "args_after": told.args_after,
        "wrong": told.wrong,
        "persons": [*told.persons],
        "expires": told.expires[0] if len(told.expires) == 1 else [*told.expires] or None,
        "steps": steps,
        "results": [*told.results],
        "elsewhere": [{"trust": word, "then": then, "line": line} for word, then, line in told.elsewhere],
    }


def _show_explained(told: Explained) -> None:
    at = f" at trust {told.trust}" if told.trust else ""
    show(painted(f"{told.agent} calls {told.tool} ({told.tool_class or 'not known'}){at}", "bold"))
    if told.granted:
        show(f"no gate is asked: {told.granted}")
        return
    for step in told.steps:
        show(f"  {step.line}  {_step_in_words(step)}")
    if told.is_rewritten:
        show(f"  arguments then: {one_line(to_line(told.args_after))}")
    is_wrong = told.wrong and told.then in ("pass", "ask")  # nobody is asked about a call that fails
    show(f"it would fail: {one_line(told.wrong, SENTENCE)}" if is_wrong else _ending(told))
    for step in told.unless:
        show(f"unless {step.asks} says otherwise: {step.line} then {DOES[step.gate.then]}")
    for line in told.results if told.then in ("pass", "ask") else ():
        show(f"its result is looked at by {line}")
    for word, then, line in told.elsewhere:
        show(f"at trust {word}: {ENDS[then]}{f' ({line})' if line else ''}")


def _step_in_words(step: AskedGate) -> str:
    if step.asks:
        return f"asks {step.asks}"
    if step.then is None:
        return "says nothing of it"
    return f"{DOES[step.then]}{f': {one_line(step.why, SENTENCE)}' if step.why else ''}"


def _ending(told: Explained) -> str:
    by = f" ({told.line})" if told.line else " (no gate stops it)"
    if told.then != "ask":
        return f"{ENDS[told.then]}{by}"
    if not told.persons:
        return f"it is refused: it needs approval, and nobody can be asked for it{by}"
    times = (f"{it} ticks" if isinstance(it, int) else it for it in told.expires)
    until = f", for {' or '.join(times)}" if told.expires else ""
    return f"it waits for the approval of {' or '.join(told.persons)}{until}{by}"


def _show_reach(found: AgentReach) -> None:
    show(painted(f"What {found.agent} could cause", "bold"))
    _show_strangers(found)
    _show_tools(found.tools)
    for title, places in (
        ("may write below", found.writes),
        ("may write nobody knows where, as they do not say it (docs/tools.md)", found.writes_unsaid),
        ("reaches the hosts", found.hosts),
        ("reaches the MCP servers", found.servers),
        ("may ask", found.asks),
        ("may hand on to", found.hands_to),
    ):
        if places:
            show(f"{title}: {', '.join(places)}")
    if found.creates:
        show("may create agents, with no more than it may do itself")
    for it in found.readers:
        said = _may(it.gates)
        show(f"its entries reach {it.name} ({it.what}){f': {said}' if it.gates else ''}")
    for other in found.through:
        show(painted(f"through {other.agent}, who {other.how} (of {other.by})", "bold"))
        _show_tools(other.tools)
        if other.channels:
            show(f"  whose entries go out by {', '.join(other.channels)}")


def _show_strangers(found: AgentReach) -> None:
    for way in found.strangers:
        said = f": {_may(way.gates)}" if way.gates else ""
        show(f"words from {way.word} come to it: {way.source} ({way.how}){said}")
    if not found.strangers:
        show("no words come to it that are trusted less than its own")
    if found.strangers and not found.tracks_trust:
        show('nobody tracks that: gates cannot look at it without "trust" in config/org.json')


def _show_tools(tools: Sequence[ToolReach]) -> None:
    if not tools:
        show("  no tools")
        return
    show("tools:")
    rows = []
    for tool in tools:
        said = "; ".join(f"{f'{word}: ' if word else ''}{_may(it)}" for word, it in tool.said.items())
        rows.append([f"  {tool.tool_class}", tool.name, said])
    show_columns(rows)


def _may(said: Sequence[Foreseen]) -> str:
    """Return what may become of something in words, with the lines that say so."""
    lines: dict[str, list[str]] = {}
    for it in said:
        lines.setdefault(it.then, []).append(it.line)
    told = [f"{word} ({', '.join(lines[word])})" if word in lines else word for word in outcomes(said)]
    return " or ".join(told)
