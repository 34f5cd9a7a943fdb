"""The command line: a table of contents. Each command is a module of `lemming.commands`."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from lemming.commands.command_session import CommandSession
from lemming.commands.command_suggestions import COMMAND_SUGGESTIONS, DASHBOARD_VIEWS, suggestions_for_command
from lemming.commands.error_reporting import run_guarded
from lemming.commands.terminal import print_data, print_text
from lemming.kernel.access.code_guard import guard_code
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.version import __version__

if TYPE_CHECKING:
    from lemming.kernel.org.organisation import Organisation

SECTIONS = {
    "Begin": {
        "init": "Make an organisation in a folder.",
        "run-once": "Run one tick.",
        "run-forever": "Run tick after tick.",
    },
    "Talk with agents": {
        "ask": "Ask an agent something and print the answer.",
        "chat": "Talk with an agent: one question after another.",
        "send": "Write a message into a person's outbox.",
        "requests": "Show who waits for what, and who holds it.",
    },
    "Decide": {
        "waiting": "Show what waits for a person.",
        "answer": "Answer what was asked of a person.",
        "approve": "Approve a call that waits for it.",
        "deny": "Say no to one.",
    },
    "See what happens": {
        "status": "Show where the organisation stands.",
        "dash": "Show it all on a page in the browser, live.",
        "plan": "Show who fires in the coming ticks.",
        "tick": "Show one tick whole.",
        "why": "Show where an entry, a memory or a file came from.",
        "cost": "Show what was spent, by agent, model, request, tick or day.",
        "logs": "Show the engine's log, or an agent's.",
    },
    "Change": {
        "agents": "List, show, make, rename and remove agents.",
        "models": "See which models can be used; choose, try out and fetch one.",
        "tools": "See the tools there are; call one; write a new one.",
        "gates": "See the rules of what may pass; ask what they say of a call.",
        "trust": "See what running it does outside its folder; agree to it.",
        "pause": "Let an agent, or all of them, take no turns for a while.",
        "resume": "Let it take turns again.",
    },
    "Check and keep": {
        "check": "Check everything: validate, doctor and verify in one.",
        "repair": "Mend what needs a person.",
        "history": "Show what has been kept, tick by tick; turn it on and off.",
        "backup": "Write the whole organisation into one file.",
    },
    "Exchange": {
        "import": "Take over agents of other programs.",
        "export": "Tell of agents in the form of other programs.",
    },
}
"""What people use, by what they want to do: what `lemming --help` shows."""

WITHIN = {
    "run-forever": {
        "service": "Make it a service that the machine starts and watches.",
        "serve": "Listen for http and mail channels.",
    },
    "requests": {"cancel": "End a request that nobody needs any more."},
    "waiting": {"approvals": "Show what waits for a person; one whole."},
    "status": {"watch": "Show the organisation in one terminal screen, live."},
    "dash": {"report": "Write that page as files that open from disk."},
    "plan": {"calendar": "Show the jobs that come up by the clock."},
    "logs": {
        "events": "Show what happened, one JSON object a line.",
        "metrics": "Print what ledgers and journals say, for Prometheus.",
    },
    "agents": {
        "inbox": "Show what an agent's next turn would see.",
        "outbox": "Show what an agent has written.",
        "prompt": "Show what an agent's model would be sent now.",
        "memory": "See and change what an agent remembers.",
        "credits": "See and raise what agents may spend.",
        "graph": "Draw who reads, asks and hands on to whom.",
        "plans": "Show the plans that agents follow, and where each run stands.",
        "channels": "Show what came and went through channels.",
        "skills": "See the skills that agents may look up.",
    },
    "tools": {"mcp": "See and try MCP servers, accept what they have, be one."},
    "trust": {"vouch": "Say that something from outside may be trusted."},
    "check": {
        "validate": "Say all that is wrong with the files people write.",
        "doctor": "Check the machine and the organisation.",
        "verify": "Check every file against the journals.",
        "findings": "Show what goes wrong in what agents do: circles, dropped requests.",
        "eval": "Try the organisation with cases, in copies of it.",
        "replay": "Run recorded ticks again and compare.",
        "chaos": "Kill the engine on a copy of the organisation, and compare.",
    },
    "repair": {
        "prune": "Take away what is kept beyond the settings.",
        "upgrade": "Write files as this version does.",
    },
    "history": {
        "show": "Show what a tick changed.",
        "diff": "Show how the files differ between two ticks.",
        "fork": "Make an organisation that goes on from a tick of this one.",
        "rehearse": "Run recorded ticks again with a change: what would be different.",
        "compare": "Show what differs between two organisations.",
        "rewind": "Bring this organisation back to a tick.",
        "bisect": "Find the first tick whose files make a command fail.",
    },
    "backup": {"restore": "Make an organisation of a backup."},
    "import": {"apply": "Make or change an organisation as one file says."},
    "export": {"schema": "Print the JSON Schema of a file format."},
}
"""The commands that stand within another, and also alone: `lemming history diff` is `lemming diff`."""

COMMANDS = {
    title: {
        command_name: text
        for name in names
        for command_name, text in ((name, names[name]), *WITHIN.get(name, {}).items())
    }
    for title, names in SECTIONS.items()
}
"""All commands, each behind the one that it stands within."""

PLACES = {
    "apply": "import_apply:apply", "approvals": "waiting:waiting", "answer": "requests:answer",
    "bisect": "history:bisect", "cancel": "requests:cancel", "chat": "ask:chat", "compare": "rehearse:compare",
    "credits": "cost:app", "deny": "approve:deny", "diff": "history:diff",
    "doctor": "check:doctor", "fork": "history:fork",
    "import": "import_apply:app", "inbox": "mailboxes:inbox",
    "metrics": "events:metrics", "outbox": "mailboxes:outbox", "prune": "repair:prune",
    "report": "dash:report", "restore": "backup:restore", "resume": "pause:resume", "rewind": "history:rewind",
    "run-forever": "run:run_forever", "run-once": "run:run_once", "show": "history:show_tick",
    "upgrade": "repair:upgrade", "vouch": "endorse:vouch", "validate": "check:validate", "verify": "check:verify",
}  # fmt: skip
"""Where a command stands that is no module of its name: the module, and the name in it."""

_SHOWS_ALL = "lemming.shows_all"

ROOT_HELP = "The organisation's folder. Default: the nearest."


class CommandTable(TyperGroup):
    """Command group of all commands, imported on use to keep `lemming --help` and completion fast."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all command names in the order of the table."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None for an unknown name."""
        return load_command(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and remaining arguments. Raises `UsageError` with the most similar name."""
        name, names = DASHBOARD_VIEWS.get(args[0], args[0]), self.list_commands(ctx)
        if name not in names and not ctx.resilient_parsing:
            from lemming.kernel.base.jsontext import did_you_mean

            hint = COMMAND_SUGGESTIONS.get(name) or did_you_mean(name, names) or "lemming --help"
            raise UsageError(f'there is no command "{name}"', hint=hint)
        remaining = args[1:]
        if remaining and remaining[0] in WITHIN.get(name, ()) and not _is_agent_name(ctx, remaining[0]):
            name, *remaining = remaining
        if ctx.obj:
            ctx.obj.command = f"lemming {name}"
        resolved = super().resolve_command(ctx, [name, *remaining])
        if ctx.obj and remaining:
            ctx.obj.typed_within = (
                remaining[0],
                suggestions_for_command(name, resolved[1], WITHIN.get(name, ()), remaining[0]),
            )
        return resolved

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Extract `-C DIR` for shell completion, which passes the arguments as typed."""
        root, arguments = _split_root_option(args)
        if ctx.obj:
            ctx.obj.root = root or ctx.obj.root
        ctx.meta[_SHOWS_ALL] = "--all" in arguments  # before --help, which is told at once
        remaining: list[str] = super().parse_args(ctx, arguments)
        return remaining

    def get_help_option(self, ctx: Any) -> Any:
        """Return `--help` as a flag with default False."""
        return _default_to_false(super().get_help_option(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options into the help, `-C` first."""
        option_records = [
            record for parameter in self.get_params(ctx) if (record := parameter.get_help_record(ctx))
        ]
        with formatter.section("Options"):
            formatter.write_dl(
                [("-C, --root <path>", f"{ROOT_HELP}  [env var: LEMMING_ROOT]"), *option_records]
            )
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands, or its main commands, into the help."""
        shows_all = ctx.meta.get(_SHOWS_ALL, True)
        for title, names in SECTIONS.items():
            with formatter.section(title):
                for name, about in names.items():
                    inner = WITHIN.get(name, {}) if shows_all else {}
                    formatter.write_dl(
                        [
                            (name.ljust(11), about),
                            *((f"  {inner_name}", inner[inner_name]) for inner_name in inner),
                        ]
                    )
        if not shows_all:
            with formatter.section(f"{sum(map(len, WITHIN.values()))} more stand within these"):
                formatter.write_dl([("lemming --help --all", "Show every command.")])


def _is_agent_name(ctx: Any, name: str) -> bool:
    """Return True if an agent has this name, so the argument is no inner command."""
    from lemming.commands.command_context import CommandContext

    try:
        org = CommandContext(ctx, as_json=False).org_if_any
    except LemmingError:  # which the command itself says, if it needs one
        return False
    return org is not None and (org.base / "agents" / name).is_dir()


class Command(TyperCommand):
    """A command without validators for parameters that the user did not type.

    typer creates a validator for each parameter that is not a flag, typed or not, and `--help` counts as a
    parameter; the import alone costs as much as the rest of a short command (docs/decisions/0010).
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; parameters not typed keep their defaults."""
        if not ctx.resilient_parsing:
            self.params = _select_parameters(self.params, args)
        remaining: list[str] = super().parse_args(ctx, args)
        return remaining

    def get_help_option(self, ctx: Any) -> Any:
        """Return `--help` as a flag with default False."""
        return _default_to_false(super().get_help_option(ctx))


def _select_parameters(parameters: Sequence[Any], arguments: Sequence[str]) -> list[Any]:
    """Return the flags and the parameters that the arguments may set; all parameters for unclear arguments."""
    if not arguments:
        return [parameter for parameter in parameters if parameter.required]
    options = {
        argument.partition("=")[0] for argument in arguments if argument.startswith("-") and argument != "-"
    }
    names = {parameter: {*parameter.opts, *parameter.secondary_opts} for parameter in parameters}
    if not options <= {
        name for option_names in names.values() for name in option_names
    }:  # --help, a slip, -n5
        return list(parameters)
    has_words = any(not argument.startswith("-") or argument == "-" for argument in arguments)
    return [
        candidate
        for candidate in parameters
        if candidate.required
        or getattr(candidate, "is_flag", False)
        or options & names[candidate]
        or (has_words and candidate.param_type_name == "argument")
    ]


def _default_to_false(option: Any) -> Any:
    if option is not None:
        option.default = False
    return option


def load_command(name: str) -> Any:
    """Return a command of the table: a group is the `app` of its module, a single command a function."""
    from lemming.commands.command_context import (
        to_typer_command,  # what a command needs, and `--help` does not
    )
    from lemming.kernel.plugins.capability_loader import missing_for_command

    if missing := missing_for_command(name):
        raise UsageError(missing, hint="install lemming-engine again")
    function_name = name.replace("-", "_")
    module_name, _, attribute = PLACES.get(name, function_name).partition(":")
    module = import_module(f"lemming.commands.{module_name}")
    command_object = getattr(module, attribute or function_name, None) or module.app
    if not isinstance(command_object, typer.Typer):
        wrapper = typer.Typer(rich_markup_mode=None, add_completion=False)
        wrapper.command(name, cls=Command)(to_typer_command(command_object))
        command_object = wrapper
    command = typer.main.get_command(command_object)
    if inner := WITHIN.get(name):
        width = max(map(len, inner))
        lines = (f"  lemming {name} {inner_name:<{width}}  {about}" for inner_name, about in inner.items())
        command.epilog = "\n".join(("\b", "Within it:", *lines))
    return command


def make_app(*, completion: bool = True) -> typer.Typer:
    """Return the typer application. `completion`: add the options that install shell completion.

    Each completion option, and any option with a value, needs a validator: see `Command`.
    """
    app = typer.Typer(
        cls=CommandTable,
        rich_markup_mode=None,
        add_completion=completion,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    return app


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print_data(f"lemming {__version__}")
        raise typer.Exit


def _print_full_help(ctx: typer.Context, is_requested: bool) -> None:
    if is_requested:
        print_text(ctx.get_help())
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all", callback=_print_full_help, is_eager=True, help="Show every command in this help."
        ),
    ] = False,
) -> None:
    """LeMMing: an organisation of AI agents in a folder.

    Start with `lemming init desk --template desk`. Data goes to standard output, everything else to standard
    error, and every command takes --json.
    """


def run(args: list[str]) -> int:
    """Run a command and return the exit status; docs/cli.md lists the exit statuses."""
    session = CommandSession(root=os.environ.get("LEMMING_ROOT") or None)

    def run_command() -> int:
        root, arguments = _split_root_option(args)
        session.root = root or session.root
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:], "--help"]
        app = make_app(completion=not arguments or arguments[0].startswith("-"))
        status = typer.main.get_command(app).main(
            arguments or ["--help"], "lemming", standalone_mode=False, obj=session
        )
        return status if isinstance(status, int) else 0

    with guard_code(_require_trusted_code):
        return run_guarded(run_command, session, as_json="--json" in args)


def _require_trusted_code(org: Organisation) -> None:
    from lemming.commands.trust import require_code_trust  # where there is code

    require_code_trust(org)


def _split_root_option(args: list[str]) -> tuple[str | None, list[str]]:
    """Return the folder of a `-C DIR` anywhere in the arguments, and the remaining arguments.

    After `--` every argument is a value, and arguments after `bisect` are a command of their own. Raises
    `UsageError` for `-C` without a folder.
    """
    end = next((index for index, argument in enumerate(args) if argument in ("--", "bisect")), len(args))
    for index, argument in enumerate(args[:end]):
        if argument in ("-C", "--root"):
            if index + 1 == len(args):
                raise UsageError(f"option {argument} needs a folder", hint=f"lemming {argument} DIR status")
            return args[index + 1], [*args[:index], *args[index + 2 :]]
        if argument.startswith("--root="):
            return argument.removeprefix("--root="), [*args[:index], *args[index + 1 :]]
    return None, args


def main() -> None:
    """Run the command line in this process, and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # text from models may not fit an old terminal's encoding
            stream.reconfigure(errors="backslashreplace")
    status = run(sys.argv[1:])
    gc.freeze()  # as the interpreter ends it would look through all there is for cycles: 25 ms
    sys.exit(status)
