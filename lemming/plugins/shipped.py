"""The table of capabilities: where each lives, and which keys of people's files are its own.

A capability is a folder, and the folder can be deleted: nothing imports one by name but this table, and it is
loaded where an organisation uses it: `lemming.plugins.capabilities`. What it may take part in:
`lemming.turn.seams`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lemming.base.patterns import is_among

JUDGES, REQUESTS, STRATEGIES = "judges", "requests", "strategies"
NO_KEYS: Mapping[str, str] = {}


class TableLine(NamedTuple):
    """A line of the table. `resume`: the keys of a resume that it reads, each with the class that has it as a
    field; `org`: likewise of `config/org.json`. `members`: those of one of a team, each with a function that
    reads its value, and is told where that stands.

    `place`, and each class, are a module and a name in it. `gates`: the words of a gate's `then` that it
    answers, `turn` the keys of a resume's `turn` that are its own, `commands` those that need it.
    `requests`: a path in the payload of a request; who writes there makes a request of its. `needs`: others
    that have to be here too. `begins`: it may ask, or show, before a turn's own first question. `awaits`:
    it says of entries past their retention that somebody waits for them. `after`:
    those that are asked before it, at every moment at which both take part. `used` says of an agent and all
    settings whether it takes part, beside what keys and words say; `is_asked_for` of who asked, and the
    payload of the request; `takes_part` of what a turn starts from, where it gives nothing of its own.

    `backends` are providers that ask models as those of the engine do: they have no part in a turn.
    `providers` are those that a model key may name, an agent with one uses it; `asks_no_model`: they work out
    their answers themselves. `model`: the keys of a line of `config/models.json` that are its own; `records`:
    the kinds of records that it writes; `executors`: values of `executor` in `config/org.json`, each with
    what has others make the model calls; `pricing`: what says what a call costs in dollars, of lines that say
    a price, and of providers that are `priced`. `tick` is its part in ticks (`lemming.tick.seams`). `files`:
    those of the organisation that it alone reads; `formats`: classes that files are read as; `removes`:
    patterns of files that it removes. `strategies`: those that it brings; `by_memory`: those of them that go
    by what they keep in memories.

    `tools` are those that it brings, `source` is where further ones come from (a `ToolSource`), and
    `of_functions` what makes one of a function. `granted`: tools that a key of the resume grants; `writers`:
    those whose calls have the turn write entries. `brings` says of the settings and the resumes whether there
    may be any of the source's; names of a server's begin with `prefix`. `carrier` carries messages in and out
    between ticks. `reaches` says of all settings and the agents whether it may do something outside the
    organisation's folder.
    """

    name: str
    place: str
    resume: Mapping[str, str] = NO_KEYS
    org: Mapping[str, str] = NO_KEYS
    members: Mapping[str, str] = NO_KEYS
    gates: frozenset[str] = frozenset()
    turn: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    begins: bool = False
    awaits: bool = False
    after: tuple[str, ...] = ()
    used: Callable[[Any, Any], Any] | None = None
    is_asked_for: Callable[[Any, Mapping[str, Any]], Any] | None = None
    takes_part: Callable[[Any], Any] | None = None
    backends: Mapping[str, str] = NO_KEYS
    providers: Mapping[str, str] = NO_KEYS
    asks_no_model: bool = False
    by_memory: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    records: Mapping[str, str] = NO_KEYS
    executors: Mapping[str, str] = NO_KEYS
    pricing: str = ""
    priced: tuple[str, ...] = ()
    tick: str = ""
    files: tuple[str, ...] = ()
    formats: Mapping[str, str] = NO_KEYS
    removes: tuple[str, ...] = ()
    strategies: Mapping[str, str] = NO_KEYS
    tools: Mapping[str, str] = NO_KEYS
    granted: Mapping[str, str] = NO_KEYS
    writers: tuple[str, ...] = ()
    source: str = ""
    prefix: str = ""
    brings: Callable[[Any, Any], Any] | None = None
    of_functions: str = ""
    carrier: str = ""
    reaches: Callable[[Any, Any], Any] | None = None

    @property
    def folder(self) -> str:
        """The package that holds all of it."""
        return self.place.rpartition(":")[0].rpartition(".")[0]


def _asks_persons(agent: Any, config: Any) -> bool:
    rules = (rule for it in (config.org, agent) for rule in it.further.get("gates", ()))
    return any(rule.then == "ask" for rule in rules)


def _attaches(agent: Any, config: Any) -> bool:
    line = config.models.get(agent.model.key)
    return (line is not None and line.images) or is_among("attach", agent.permissions.tools)


def names_servers(agent: Any) -> bool:
    """Return whether an agent's resume names tools that servers have."""
    return any(tool.startswith(PREFIXES) for tool in agent.permissions.tools)


def _has_schema(asker: Any, payload: Mapping[str, Any]) -> bool:
    asked = payload.get("asked") if "hands_on" in payload else payload
    return isinstance(asked, dict) and "schema" in asked


def _has_judges(asker: Any, payload: Mapping[str, Any]) -> bool:
    return "verify" in payload or has_judged_members(asker)


def has_judged_members(agent: Any) -> bool:
    """Return whether an agent has answers of one of its team judged."""
    return "team" in agent.further and any("verify" in it.further for it in agent.further["team"].members)


def _may_ask(inputs: Any) -> Any:
    """Return whether a turn is asked for something, was, or may ask: its team, or persons for a part."""
    is_begun = inputs.task or inputs.open_requests or inputs.state.requests or "team" in inputs.agent.further
    return is_begun or any(name not in LISTED or LISTED[name].requests for name in inputs.given)


def _judged_by_gates(settings: Any, agents: Any) -> bool:
    return any(gate.by for said in (settings.org, *agents) for gate in said.further.get("gates", ()))


SHIPPED: Mapping[str, TableLine] = {
    it.name: it
    for it in (
        TableLine(
            "answers",
            "lemming.capabilities.answers.capability:Answers",
            resume={"output": "lemming.capabilities.answers.settings:OfResume"},
            is_asked_for=_has_schema,
            takes_part=lambda inputs: "output" in inputs.agent.further,
        ),
        TableLine(
            "approvals",
            "lemming.capabilities.approvals.capability:Approvals",
            gates=frozenset({"ask"}),
            turn=("max_approvals",),
            commands=("approvals", "approve", "deny"),
            requests=("call", "gate"),
            needs=("gates", REQUESTS),
            begins=True,
            used=_asks_persons,
        ),
        TableLine(
            "attachments",
            "lemming.capabilities.attachments.capability:Attachments",
            tools={"attach": "lemming.capabilities.attachments.tool:Attach"},
            model=("images",),
            tick="lemming.capabilities.attachments.capability:AttachmentsInTicks",
            needs=("toolbox",),
            used=_attaches,
        ),
        TableLine(
            "batches",
            "lemming.capabilities.batches.capability:BatchesInUse",
            model=("batch_deadline_s", "batch_price_factor", "options.batches"),
            records={
                "batch_announced": "lemming.capabilities.batches.records:BatchAnnounced",
                "batch_sent": "lemming.capabilities.batches.records:BatchSent",
                "batch_awaited": "lemming.capabilities.batches.records:BatchAwaited",
                "batch_ended": "lemming.capabilities.batches.records:BatchEnded",
            },
        ),
        TableLine(
            "channels",
            "lemming.capabilities.channels.capability:ChannelsInUse",
            providers={
                "folder": "lemming.capabilities.channels.folder:FolderChannel",
                "http": "lemming.capabilities.channels.http:HttpChannel",
                "mail": "lemming.capabilities.channels.mail:MailChannel",
                "command": "lemming.capabilities.channels.command:CommandChannel",
            },
            commands=("channels", "serve"),
            needs=("programs",),
            carrier="lemming.capabilities.channels.between:Channels",
            reaches=lambda config, _: config.has_channels,
        ),
        TableLine(
            "cluster",
            "lemming.capabilities.cluster.capability:Cluster",
            executors={"dask": "lemming.capabilities.cluster.calls:DaskCalls"},
            reaches=lambda config, _: config.org.executor == "dask",
        ),
        TableLine(
            "embedded",
            "lemming.capabilities.embedded.capability:EmbeddedModels",
            backends={"local": "lemming.capabilities.embedded.local:LocalProvider"},
        ),
        TableLine(
            "gates",
            "lemming.capabilities.gates.capability:Gates",
            resume={"gates": "lemming.capabilities.gates.keys:OfResume"},
            org={"gates": "lemming.capabilities.gates.keys:OfOrg"},
            needs=("money",),
            commands=("gates",),
            reaches=_judged_by_gates,
        ),
        TableLine(
            JUDGES,
            "lemming.capabilities.judges.capability:Judges",
            resume={"verify": "lemming.capabilities.judges.settings:OfResume"},
            members={"verify": "lemming.capabilities.judges.settings:judged_by_in"},
            needs=(REQUESTS,),
            is_asked_for=_has_judges,
            reaches=lambda _, agents: any("verify" in it.further or has_judged_members(it) for it in agents),
        ),
        TableLine(
            "mcp",
            "lemming.capabilities.mcp.capability:Mcp",
            formats={
                "mcp": "lemming.capabilities.mcp.settings:McpSettings",
                "mcp_lock": "lemming.capabilities.mcp.lock:McpLock",
            },
            commands=("mcp",),
            source="lemming.capabilities.mcp.tools:McpTools",
            prefix="mcp.",
            brings=lambda _, survey: survey.names_servers,
            reaches=lambda _, agents: any(map(names_servers, agents)),
        ),
        TableLine(
            "calendars",
            "lemming.capabilities.calendars.capability:Calendars",
            providers={"clock": "lemming.capabilities.calendars.backend:ClockProvider"},
            asks_no_model=True,
            tools={"keep_job": "lemming.capabilities.calendars.keeping:KeepJob"},
            tick="lemming.capabilities.calendars.tick:CalendarInTicks",
            files=("config/calendar.json",),
            formats={"calendar": "lemming.capabilities.calendars.calendar:Calendar"},
            commands=("calendar",),
            needs=(REQUESTS,),
        ),
        TableLine(
            "money",
            "lemming.capabilities.money.capability:Money",
            model=("usd_per_million_input_tokens", "usd_per_million_output_tokens"),
            pricing="lemming.capabilities.money.prices:dollars_of",
            priced=("openai", "anthropic"),
        ),
        TableLine(
            "plans",
            "lemming.capabilities.plans.capability:Plans",
            providers={"plan": "lemming.capabilities.plans.backend:PlanProvider"},
            asks_no_model=True,
            tools={"plan_propose": "lemming.capabilities.plans.propose:PlanPropose"},
            writers=("plan_propose",),
            tick="lemming.capabilities.plans.tick:PlansInTicks",
            formats={"plan": "lemming.capabilities.plans.format:AgentPlan"},
            removes=("agents/*/memory/run-*.json",),
            commands=("plans",),
            needs=("answers", "judges", REQUESTS),
            takes_part=lambda inputs: inputs.model.provider == "plan",
            reaches=lambda config, _: any(it.provider == "plan" for it in config.models.values()),
        ),
        TableLine(
            "programs",
            "lemming.capabilities.programs.capability:Programs",
            backends={"cli": "lemming.capabilities.programs.cli:CliProvider"},
            reaches=lambda config, _: any(it.provider == "cli" for it in config.models.values()),
        ),
        TableLine(
            REQUESTS,
            "lemming.capabilities.requests.capability:Requests",
            resume={"team": "lemming.capabilities.requests.settings:OfResume"},
            turn=("take",),
            commands=("answer", "ask", "cancel", "chat", "requests", "waiting"),
            awaits=True,
            takes_part=_may_ask,
        ),
        TableLine(
            "skills",
            "lemming.capabilities.skills.capability:Skills",
            resume=dict.fromkeys(("guides", "skills"), "lemming.capabilities.skills.settings:OfResume"),
            tools={"skill_read": "lemming.capabilities.skills.reading:SkillRead"},
            granted={"skill_read": "skills"},
            tick="lemming.capabilities.skills.tick:SkillsInTicks",
            commands=("skills",),
        ),
        TableLine(
            STRATEGIES,
            "lemming.capabilities.strategies.capability:Strategies",
            turn=("strategy", "options"),
            used=lambda agent, _: agent.turn.strategy,
            strategies={
                "react": "lemming.capabilities.strategies.that_ship:REACT",
                "plan_execute": "lemming.capabilities.strategies.that_ship:PLAN_EXECUTE",
                "reflexion": "lemming.capabilities.strategies.that_ship:REFLEXION",
            },
            by_memory=("plan_execute",),
        ),
        TableLine(
            "trust",
            "lemming.capabilities.trust.capability:TrustOfTurns",
            resume={"trust": "lemming.capabilities.trust.settings:OfResume"},
            org={"trust": "lemming.capabilities.trust.settings:OfOrg"},
            commands=("vouch",),
        ),
        TableLine(
            "windows",
            "lemming.capabilities.windows.capability:Windows",
            resume={"memory": "lemming.capabilities.windows.settings:OfResume"},
            begins=True,
            # a turn that only makes calls sums up nothing; a strategy may look at what is not shown
            after=("approvals", "strategies"),
        ),
    )
}
"""Those that are a folder each, which may be absent."""


WITHIN: Mapping[str, TableLine] = {
    it.name: it
    for it in (
        TableLine(
            "toolbox",
            "lemming.capabilities.toolbox.capability:Toolbox",
            tools={
                "file_read": "lemming.capabilities.toolbox.files:FileRead",
                "file_write": "lemming.capabilities.toolbox.files:FileWrite",
                "file_list": "lemming.capabilities.toolbox.files:FileList",
                "file_edit": "lemming.capabilities.toolbox.edits:FileEdit",
                "file_append": "lemming.capabilities.toolbox.edits:FileAppend",
                "file_move": "lemming.capabilities.toolbox.edits:FileMove",
                "file_search": "lemming.capabilities.toolbox.file_search:FileSearch",
                "search": "lemming.capabilities.toolbox.search:Search",
                "shell": "lemming.capabilities.toolbox.shell:Shell",
                "memory_read": "lemming.capabilities.toolbox.memories:MemoryRead",
                "memory_write": "lemming.capabilities.toolbox.memories:MemoryWrite",
                "store_read": "lemming.capabilities.toolbox.store:StoreRead",
                "store_write": "lemming.capabilities.toolbox.store:StoreWrite",
                "read_document": "lemming.capabilities.toolbox.documents:ReadDocument",
                "http_get": "lemming.capabilities.toolbox.web:HttpGet",
                "http_post": "lemming.capabilities.toolbox.web:HttpPost",
                "remind_me": "lemming.capabilities.toolbox.reminders:RemindMe",
                "create_agent": "lemming.capabilities.toolbox.staff:CreateAgent",
                "list_agents": "lemming.capabilities.toolbox.staff:ListAgents",
            },
            source="lemming.capabilities.toolbox.functions.files:ToolFiles",
            brings=lambda settings, _: settings.tool_files,
            reaches=lambda config, _: config.org.tool_files,
            of_functions="lemming.capabilities.toolbox.functions.tool:FunctionTool",
        ),
    )
}
"""Those that take part in turns as the others do, and whose files and keys are still the engine's own."""
LISTED = {**SHIPPED, **WITHIN}
SOURCES = {name: it for name, it in LISTED.items() if it.source}
"""Those from which an organisation may have further tools."""
PREFIXES = tuple(it.prefix for it in SOURCES.values() if it.prefix)
"""How the names of those tools begin of which only a server knows which there are."""
TAKING_PART = {name: it.takes_part for name, it in LISTED.items() if it.takes_part}
ASKED_FOR = {name: it.is_asked_for for name, it in LISTED.items() if it.is_asked_for}
AWAITING = [name for name, it in LISTED.items() if it.awaits]
ASKING = frozenset(name for name, it in LISTED.items() if REQUESTS in it.needs)
USED = {name: it.used for name, it in LISTED.items() if it.used}
IN_TICKS = frozenset(name for name, it in LISTED.items() if it.tick)
PROVIDERS = {name: place for it in LISTED.values() for name, place in {**it.providers, **it.backends}.items()}
STRATEGIES_SHIPPED = {name: place for it in LISTED.values() for name, place in it.strategies.items()}
CHANNELS = frozenset(name for it in LISTED.values() if it.carrier for name in it.providers)
"""The providers that ship which are channels."""
OF_PROVIDER = {provider: it.name for it in LISTED.values() for provider in it.providers}
OF_BACKEND = {backend: it.name for it in LISTED.values() for backend in it.backends}
NO_MODELS = frozenset(provider for it in LISTED.values() if it.asks_no_model for provider in it.providers)
"""Providers whose answers cost nothing, and are no calls of a model."""
WRITERS = {tool: it.name for it in LISTED.values() for tool in it.writers}
BY_MEMORY = frozenset(name for it in LISTED.values() for name in it.by_memory)
GRANTED = {tool: key for it in LISTED.values() for tool, key in it.granted.items()}
FORMATS = {form: (it.name, place) for it in LISTED.values() for form, place in it.formats.items()}
RECORDED = {kind: (it.name, place) for it in LISTED.values() for kind, place in it.records.items()}
"""The kinds of records that capabilities write, each with whose it is, and its class."""
EXECUTORS = {executor: (it.name, place) for it in LISTED.values() for executor, place in it.executors.items()}
"""The values of `executor` by which others make the model calls."""
PRICED = frozenset(provider for it in LISTED.values() for provider in it.priced)
"""The providers whose models have prices without a line's saying so."""
REMOVED = [pattern for it in LISTED.values() for pattern in it.removes]
