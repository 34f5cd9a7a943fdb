"""Names of the commands: sections of the help, groups, old names, and suggestions for wrong names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from lemming.kernel.base.errors import UsageError

SECTIONS = {
    "Start": {
        "init": "Create an organisation in a folder.",
        "run-once": "Run one tick.",
        "run-forever": "Run ticks continuously.",
    },
    "Talk with agents": {
        "ask": "Ask an agent a question and print the answer.",
        "chat": "Chat with an agent interactively.",
        "send": "Send a message as a person.",
        "requests": "List requests with their assignee, state and cost.",
    },
    "Decide": {
        "waiting": "List calls, questions and plans that wait for a person.",
        "approve": "Approve a waiting call or plan.",
    },
    "See what happens": {
        "status": "Show the status of the organisation and its agents.",
        "dash": "Open the live dashboard in the browser.",
        "schedule": "Show which agents run in the next ticks, and in what order.",
        "why": "Trace where an entry, a memory or a file came from.",
        "cost": "Show spending by agent, model, request, tick or day.",
        "logs": "Show the log of the engine or of an agent.",
    },
    "Configure": {
        "agents": "List, show, create, rename and remove agents.",
        "models": "List, choose, test and download models.",
        "tools": "List, show, call and create tools.",
        "gates": "List gates, and print the recommended ones.",
        "trust": "Show and grant the permissions this organisation needs.",
    },
    "Check and keep": {
        "check": "Run all checks: validate, doctor and verify.",
        "history": "Show the history of ticks, or turn it on or off.",
        "backup": "Back up the organisation to one file.",
    },
    "Exchange": {
        "import": "Import agents from other programs.",
        "export": "Export the organisation, traces, metrics, a report or a schema.",
    },
}
"""The main commands by purpose: the contents of `lemming --help`."""

GROUPS = {
    "run-forever": {"service": "Install this organisation as a system service."},
    "send": {"say": "Tell an agent something at once, even while it works."},
    "requests": {"cancel": "Cancel a request and its sub-requests."},
    "waiting": {"answer": "Answer a question that waits for a person."},
    "approve": {"deny": "Deny a waiting call or plan."},
    "schedule": {"calendar": "List scheduled jobs with their next and last run."},
    "logs": {"events": "Print events from the journals, one JSON object per line."},
    "agents": {
        "inbox": "Show the entries that an agent's next turn will see.",
        "outbox": "Show the newest entries of an agent's outbox.",
        "prompt": "Show the prompt that an agent's next turn would send.",
        "memory": "Show and change an agent's memory.",
        "credits": "Show spending limits and grant credits.",
        "plans": "List plans and the state of their runs.",
        "channels": "List channels with their traffic and errors.",
        "skills": "List, show and export skills.",
        "workers": "List running workers, and stop one.",
        "pause": "Pause an agent, or all agents.",
        "unpause": "Unpause an agent, or all agents.",
    },
    "tools": {"mcp": "Manage MCP servers, or serve this organisation over MCP."},
    "check": {
        "validate": "Validate resumes, settings, entries, memories and evals.",
        "doctor": "Check this machine and installation, and suggest fixes.",
        "verify": "Verify every file against the journals.",
        "repair": "Repair damage that needs a person's decision.",
        "findings": "Show problems of agents: loops, dropped requests, false claims.",
        "eval": "Run eval cases in throw-away copies.",
        "replay": "Replay recorded ticks and compare the results.",
    },
    "history": {
        "tick": "Show one tick in full: prompts, answers, calls, files, cost.",
        "diff": "Show differences between two ticks.",
        "fork": "Create a copy that continues from a tick.",
        "rehearse": "Rerun recorded ticks with a change and show what differs.",
        "rewind": "Rewind this organisation to an earlier tick.",
    },
    "backup": {
        "restore": "Restore an organisation from a backup.",
        "prune": "Remove old journals, logs and archived files.",
        "upgrade": "Upgrade files to the current format.",
    },
    "import": {"apply": "Create or update an organisation from one file."},
}
"""The commands in a group; each also works alone: `lemming history diff` is `lemming diff`."""

SUBCOMMANDS = {
    "agents": {"graph": "Draw the graph of who reads, asks and delegates to whom."},
    "channels": {"serve": "Serve http and mail channels."},
    "check": {"chaos": "Test crash recovery: kill the engine on a copy and compare."},
    "export": {
        "report": "Export the dashboard as static files.",
        "metrics": "Print metrics in Prometheus format.",
        "schema": "Print the JSON Schema of a file format.",
    },
    "history": {"show": "Show the files that a tick changed."},
    "trust": {"endorse": "Endorse outside content as trusted."},
}
"""The commands that are only typed after the command of their group. Each is a module or function of its own."""

COMMANDS = {
    title: {command: text for name in names for command, text in ((name, names[name]), *GROUPS.get(name, {}).items())}
    for title, names in SECTIONS.items()
}
"""All commands, each after the main command of the group."""

MODULES = {
    "answer": "requests:answer", "apply": "import_apply:apply", "cancel": "requests:cancel", "chat": "ask:chat",
    "credits": "cost:app", "deny": "approve:deny", "diff": "history:diff", "doctor": "check:doctor",
    "findings": "check:findings", "fork": "history:fork", "import": "import_apply:app", "inbox": "lists:inbox",
    "logs": "lists:logs", "metrics": "events:metrics", "outbox": "lemming.queries.screens.entries_screen:OUTBOX",
    "prune": "repair:prune",
    "replay": "rehearse:replay", "report": "dash:report", "restore": "backup:restore", "rewind": "history:rewind",
    "run-forever": "run:run_forever", "run-once": "run:run_once", "say": "send:say", "schema": "export:schema",
    "show": "history:show_tick", "unpause": "pause:unpause", "upgrade": "repair:upgrade", "validate": "check:validate",
    "verify": "check:verify",
}  # fmt: skip
"""Module and name of each command without a module of its own."""

OLD_COMMANDS = {
    "approvals": "waiting", "plan": "schedule", "resume": "unpause", "vouch": "trust endorse", "compare": "diff",
    "watch": "status --watch",
    **{name: f"{group} {name}" for group, names in SUBCOMMANDS.items() for name in names},
}  # fmt: skip
"""Old names of commands, each with the words to type now."""

OLD_GROUPS = {
    "repair": ("prune", "upgrade"), "waiting": ("approvals",), "trust": ("vouch",), "run-forever": ("serve",),
    "status": ("watch",), "dash": ("report",), "logs": ("metrics",), "history": ("compare",),
}  # fmt: skip
"""Commands that were in another group."""

OLD_SUBCOMMANDS = {
    "gates": {"standard": "defaults"},
    "models": {"adopt": "add-weights"},
    "export schema": {"shown": "output", "turn": "reply"},
}
"""Old names of subcommands, and of arguments that name one of several things."""

OLD_OPTIONS = {
    "agents new": {"--from": "--copy-from", "--steps": "--max-steps"},
    "approve": {"--ahead": "--in-advance"},
    "ask": {"--watch": "--stream"},
    "check chaos": {"--here": "--in-place"},
    "chat": {"--watch": "--stream"},
    "eval": {
        "--arm": "--variant", "--keep": "--keep-failed", "--out": "--output", "--tools": "--allow-side-effects",
    },
    "export report": {"--html": "--output"},
    "export otel": {"--content": "--include-content", "--post": "--endpoint"},
    "inbox": {"--all-read": "--mark-all-read"},
    "models use": {"--agents": "--agent"},
    "pause": {"--why": "--reason"},
    "prune": {"--journals": "--keep-ticks"},
    "rehearse": {"--tools": "--allow-side-effects"},
    "requests": {"--of": "--from", "--to": "--held-by"},
    "run-forever": {"--eager": "--burst"},
    "run-once": {"--until-quiet": "--until-idle", "--watch": "--stream"},
}  # fmt: skip
"""Old names of options, by command."""


REMOVED_OPTIONS = {
    "prompt": dict.fromkeys(("--count", "--no-count"), "leave it out: tokens are always estimated"),
    "eval": {"--junit": "--output FILE has a line of JSON for each run"},
}
"""Options of earlier versions, by command, each with what to do instead."""


def list_group(name: str) -> Iterable[str]:
    """Return the commands that a command accepts as the next word, with their old names."""
    inner = (*GROUPS.get(name, ()), *SUBCOMMANDS.get(name, ()), *OLD_GROUPS.get(name, ()))
    return (*inner, *(old for old, new in OLD_COMMANDS.items() if new in inner))


def find_command(
    typed: Sequence[str], is_agent: Callable[[str], bool] = lambda name: False
) -> tuple[str, list[str], dict[str, str]]:
    """Return the command that the typed words name, the remaining words, and the new name of each old name.

    The name of a command of `SUBCOMMANDS` has two words. A word that `is_agent` stays an argument.

    >>> find_command(["history", "diff", "1", "now"])
    ('diff', ['1', 'now'], {})
    >>> find_command(["watch", "--json"])
    ('status', ['--watch', '--json'], {'watch': 'status --watch'})
    """
    (name, *arguments), renamed = typed, dict[str, str]()
    while True:
        if new := OLD_COMMANDS.get(name):
            renamed[name] = new
            name, *inserted = new.split()
            if inserted and inserted[0] in SUBCOMMANDS.get(name, ()):
                name = f"{name} {inserted.pop(0)}"
            arguments = [*inserted, *arguments]
        if not (arguments and arguments[0] in list_group(name)) or is_agent(arguments[0]):
            break
        inner = arguments.pop(0)
        name = f"{name} {inner}" if inner in SUBCOMMANDS.get(name, ()) else inner
    arguments, renamed_arguments = replace_old_names(name, arguments)
    return name, arguments, renamed | renamed_arguments


def replace_old_names(name: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return a command's arguments with new subcommands and options, and the new name of each old name in them."""
    new_arguments, renamed = list(arguments), {}
    if new_arguments and (subcommand := OLD_SUBCOMMANDS.get(name, {}).get(new_arguments[0])):
        renamed[f"{name} {new_arguments[0]}"] = f"{name} {subcommand}"
        new_arguments[0] = subcommand
    key = " ".join([name, *new_arguments[:1]])
    key = key if key in OLD_OPTIONS.keys() | REMOVED_OPTIONS.keys() else name
    options = OLD_OPTIONS.get(key, {})
    end = new_arguments.index("--") if "--" in new_arguments else len(new_arguments)
    for index, argument in enumerate(new_arguments[:end]):
        option, equals, value = argument.partition("=")
        if hint := REMOVED_OPTIONS.get(key, {}).get(option):
            raise UsageError(f"{key} has no {option} any more", hint=hint)
        if option in options:
            new_arguments[index] = f"{options[option]}{equals}{value}"
            renamed[f"{key} {option}"] = f"{key} {options[option]}"
    return new_arguments, renamed


DASHBOARD_VIEWS = {"money": "cost", "map": "agents graph", "ticks": "tick"}
"""Names of dashboard views, each with the command that shows the same."""

READ_ONLY_COMMANDS = frozenset((
    "agents graph", "calendar", "channels", "cost", "events", "export metrics", "findings", "history", "logs",
    "requests", "schedule", "status", "tick", "trust", "waiting",
))  # fmt: skip
"""Commands that change nothing when run without arguments; "list" and "show" after them lead to them."""


def load_suggestions() -> dict[str, Any]:
    """Return words typed in place of a command or a subcommand, each with the suggestion. Read after an error only."""
    import tomllib

    return tomllib.loads(Path(__file__).with_name("suggestions.toml").read_text("utf-8"))


def suggestions_for_command(name: str, command: Any, within: Iterable[str], typed: str) -> dict[str, str]:
    """Return words that users may type after a command, each with a suggestion. `within`: names of the subcommands."""
    if typed in getattr(command, "commands", ()):
        return {}
    suggestions = {subcommand: f'did you mean "{subcommand}"?' for subcommand in within}
    if name in READ_ONLY_COMMANDS:
        arguments = (parameter for parameter in command.params if parameter.param_type_name == "argument")
        first_argument = next(arguments, None)
        metavar = first_argument.metavar or "" if first_argument else ""
        suggestions = {"list": f"lemming {name}", "show": f"lemming {name} {metavar}".strip(), **suggestions}
    return {**suggestions, **load_suggestions()["subcommands"].get(name, {})}
