"""Suggestions for words typed in place of a command's real name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

DASHBOARD_VIEWS = {"money": "cost", "map": "graph", "ticks": "tick"}
"""What the page calls what commands show."""


COMMAND_SUGGESTIONS = {
    "run": "lemming run-once runs one tick, lemming run-forever tick after tick",
    "unpause": "lemming resume [AGENT]",
    "disable": "lemming pause AGENT",
    "start": "lemming run-forever runs tick after tick, until Ctrl-C",
    "stop": "Ctrl-C, or `kill PID`, ends run-forever after the turns under way; lemming status names the PID",
    "dashboard": "lemming dash",
    "ui": "lemming dash",
    "web": "lemming dash",
    "page": "lemming dash",
    "daemon": "lemming service",
    "install": "lemming service",
    "systemd": "lemming service",
    "ls": "lemming agents list, or lemming outbox",
    "list": "lemming agents list",
    "new": "lemming agents new NAME, or lemming init DIR",
    "rm": "lemming agents rm NAME",
    "remove": "lemming agents rm NAME",
    "version": "lemming --version",
    "delete": "lemming agents rm NAME",
    "create": "lemming agents new NAME, or lemming init DIR",
    "add": "lemming agents new NAME",
    "grant": "lemming credits grant NAME N",
    "undo": "lemming rewind --to TICK, with lemming history on",
    "reset": "lemming rewind --to TICK, with lemming history on",
    "kill": "`kill PID` ends run-forever; lemming status names the PID",
    "message": "lemming send TEXT",
    "tail": "lemming logs",
    "turn": "lemming tick TICK",
    "feed": "lemming agents outbox NAME, or lemming status watch",
    "settings": "config/org.json, models.json and credits.json: edit them, then lemming check",
    "jobs": "lemming plan calendar",
    "cron": "lemming calendar; a resume's schedule has cron too",
    "schedule": "lemming plan --until fri, or lemming calendar",
    "remind": 'lemming send --at "tomorrow 9:00" --to AGENT TEXT',
    "edit": "an editor: agents/NAME/resume.json and config/*.json; then lemming validate",
    "config": "config/org.json, models.json and credits.json: edit them, then lemming validate",
}
"""What people type who look for a command that has another name."""

SUBCOMMAND_SUGGESTIONS = {
    "agents": {
        **dict.fromkeys(("remove", "delete"), "lemming agents rm NAME"),
        **dict.fromkeys(("add", "create"), "lemming agents new NAME"),
        "edit": "an editor: agents/NAME/resume.json; then lemming validate",
    },
    "check": {"list": "lemming check --list"},
    "calendar": dict.fromkeys(("add", "new"), 'lemming send --every "0 9 * * mon" --to AGENT TEXT'),
    "credits": {"add": "lemming credits grant NAME N"},
    "memory": dict.fromkeys(("remove", "delete"), "lemming memory rm AGENT KEY"),
    "trust": dict.fromkeys(("agree", "accept"), "lemming trust"),
}
"""The same behind a command."""

READ_ONLY_COMMANDS = frozenset((
    "approvals", "calendar", "channels", "cost", "events", "findings", "graph", "history", "logs", "metrics",
    "plan", "requests", "status", "tick", "trust", "waiting",
))  # fmt: skip
"""The commands that alone list, or show one, and change nothing: whoever is led to them loses nothing."""


def suggestions_for_command(name: str, command: Any, within: Iterable[str], typed: str) -> dict[str, str]:
    """Return words that users may type after a command, each with a suggestion.

    `within`: names of the subcommands.
    """
    if typed in getattr(command, "commands", ()):
        return {}
    suggestions = {subcommand: f'did you mean "{subcommand}"?' for subcommand in within}
    if name in READ_ONLY_COMMANDS:
        first_argument = next(
            (subcommand for subcommand in command.params if subcommand.param_type_name == "argument"), None
        )
        metavar = first_argument.metavar or "" if first_argument else ""
        suggestions = {"list": f"lemming {name}", "show": f"lemming {name} {metavar}".strip(), **suggestions}
    return suggestions | SUBCOMMAND_SUGGESTIONS.get(name, {})
