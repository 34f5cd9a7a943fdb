"""The command line: a table of contents. Each command is a module of `lemming.commands`."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import CompletionItem, TyperCommand, TyperGroup  # type: ignore[attr-defined]

from lemming.commands.command_table import (
    COMMANDS,
    DASHBOARD_VIEWS,
    GROUPS,
    MODULES,
    SECTIONS,
    SUBCOMMANDS,
    find_command,
    list_group,
    load_suggestions,
    suggestions_for_command,
)
from lemming.commands.error_reporting import CommandSession, run_guarded
from lemming.commands.terminal import print_data, print_notice, print_text
from lemming.kernel.access.workspace_trust import guard_code
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.version import __version__

if TYPE_CHECKING:
    from lemming.kernel.org.organisation import Organisation

_SHOWS_ALL = "lemming.shows_all"

ROOT_HELP = "Folder of the organisation. Default: the nearest one upwards."


class _HelpFlag:
    def get_help_option(self, ctx: Any) -> Any:
        """Return `--help` as a flag with default False."""
        if (option := super().get_help_option(ctx)) is not None:  # type: ignore[misc]
            option.default = False
        return option


class CommandTable(_HelpFlag, TyperGroup):
    """Command group of all commands, imported on use to keep `lemming --help` and completion fast."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all command names in the order of the table."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None for an unknown name."""
        name, _, _ = find_command([cmd_name])
        return load_command(name) if is_listed(name) or _find_plugin_command(name) else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and remaining arguments. Raises `UsageError` with the most similar name."""
        arguments = [DASHBOARD_VIEWS.get(args[0], args[0]), *args[1:]]
        name, remaining, renamed = find_command(arguments, lambda argument: _is_agent_name(ctx, argument))
        if not is_listed(name) and not ctx.resilient_parsing and not _find_plugin_command(name):
            from lemming.kernel.base.jsontext import did_you_mean

            hint = load_suggestions()["commands"].get(name) or did_you_mean(name, self.list_commands(ctx))
            raise UsageError(f'there is no command "{name}"', hint=hint or "lemming --help")
        # Scripts and logs, without a terminal, get no such line.
        for old, new in renamed.items() if sys.stderr.isatty() else ():
            if not ctx.resilient_parsing and "--json" not in remaining:
                print_notice(f"note: `lemming {old}` is now `lemming {new}`; the old name still works", style="dim")
        if ctx.obj:
            ctx.obj.command = f"lemming {name}"
        resolved = super().resolve_command(ctx, [name, *remaining])
        if ctx.obj and remaining:
            typed_word = remaining[0]
            suggest = partial(suggestions_for_command, name, resolved[1], list_group(name), typed_word)
            ctx.obj.typed_within = (typed_word, suggest)
        return resolved

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Extract `-C DIR` for shell completion, which passes the arguments as typed."""
        root, arguments = _split_root_option(args)
        if ctx.obj:
            ctx.obj.root = root or ctx.obj.root
        ctx.meta[_SHOWS_ALL] = "--all" in arguments  # before --help, which exits immediately
        remaining: list[str] = super().parse_args(ctx, arguments)
        return remaining

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options into the help, `-C` first."""
        option_records = [record for parameter in self.get_params(ctx) if (record := parameter.get_help_record(ctx))]
        with formatter.section("Options"):
            formatter.write_dl([("-C, --root <path>", f"{ROOT_HELP}  [env var: LEMMING_ROOT]"), *option_records])
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands, or its main commands, into the help."""
        shows_all = ctx.meta.get(_SHOWS_ALL, True)
        for title, names in SECTIONS.items():
            with formatter.section(title):
                for name, about in names.items():
                    inner = GROUPS.get(name, {}) if shows_all else {}
                    formatter.write_dl(
                        [(name.ljust(11), about), *((f"  {inner_name}", inner[inner_name]) for inner_name in inner)]
                    )
        if not shows_all:
            with formatter.section(f"{sum(map(len, GROUPS.values()))} more commands belong to these groups"):
                formatter.write_dl([("lemming --help --all", "List all commands, with those in groups.")])


def _is_agent_name(ctx: Any, name: str) -> bool:
    """Return True if an agent has this name, so the argument is no inner command."""
    from lemming.commands.command_context import CommandContext

    try:
        org = CommandContext(ctx, as_json=False).org_if_any
    except LemmingError:  # which the command itself says, if it needs one
        return False
    return org is not None and (org.base / "agents" / name).is_dir()


class Command(_HelpFlag, TyperCommand):
    """A command without validators for parameters that the user did not type.

    typer creates a validator for each parameter that is not a flag, typed or not, and `--help` counts as a
    parameter; the import alone costs as much as the rest of a short command (docs/decisions.md, decision 10).
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; parameters not typed keep their defaults."""
        if not ctx.resilient_parsing:
            self.params = _select_parameters(self.params, args)
        remaining: list[str] = super().parse_args(ctx, args)
        return remaining


def _select_parameters(parameters: Sequence[Any], arguments: Sequence[str]) -> list[Any]:
    """Return the flags and the parameters that the arguments may set; all parameters for unclear arguments."""
    if not arguments:
        return [parameter for parameter in parameters if parameter.required]
    options = {argument.partition("=")[0] for argument in arguments if argument.startswith("-") and argument != "-"}
    names = {parameter: {*parameter.opts, *parameter.secondary_opts} for parameter in parameters}
    if not options <= {name for option_names in names.values() for name in option_names}:  # --help, a slip, -n5
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


def _find_plugin_command(name: str) -> Any:
    """Return the command of an installed plugin, or None. The table's own commands are never looked up here."""
    from lemming.kernel.plugins.capability_loader import find_plugin_item

    return find_plugin_item("command", name)


def is_listed(name: str) -> bool:
    """Return True for a command of the table. A command of `SUBCOMMANDS` has its group in its name."""
    group, _, inner = name.partition(" ")
    return any(group in section for section in COMMANDS.values()) and (not inner or inner in SUBCOMMANDS[group])


def load_command(name: str) -> Any:
    """Return a command of the table: a group is the `app` of its module, a single command a function."""
    name, _, _ = find_command([name])
    last_word = name.rpartition(" ")[2]
    from lemming.commands.command_context import make_screen_command, to_typer_command  # not needed by `--help`
    from lemming.kernel.plugins.capability_loader import missing_owner
    from lemming.kernel.plugins.capability_table import provided

    if missing := missing_owner(provided("screens", "commands"), last_word):
        raise UsageError(missing, hint="install lemming-engine again")
    if is_listed(name):
        function_name = last_word.replace("-", "_")
        _, path = provided("screens", "commands").get(last_word, ("", ""))
        path = path or MODULES.get(last_word, function_name)
        path = path if path.startswith("lemming.") else f"lemming.commands.{path}"
        module_name, _, attribute = path.partition(":")
        module = import_module(module_name)
        command_object = getattr(module, attribute or function_name, None) or module.app
    else:
        command_object = _find_plugin_command(name)
    if not callable(command_object):  # a declared screen
        command_object = make_screen_command(command_object)
    if not isinstance(command_object, typer.Typer):
        wrapper = typer.Typer(rich_markup_mode=None, add_completion=False)
        wrapper.command(name, cls=Command)(to_typer_command(command_object))
        command_object = wrapper
    command = typer.main.get_command(command_object)
    if inner := GROUPS.get(name, {}) | SUBCOMMANDS.get(name, {}):
        width = max(map(len, inner))
        lines = (f"  lemming {name} {inner_name:<{width}}  {about}" for inner_name, about in inner.items())
        command.epilog = "\n".join(("\b", "Commands in this group:", *lines))
        _complete_words(command, inner)
    return command


def _complete_words(command: Any, names: Mapping[str, str]) -> None:
    """Let the shell complete the first word after a command to one of these, besides its own subcommands or values."""
    own_arguments = (parameter for parameter in command.params if parameter.param_type_name == "argument")
    part = next(own_arguments, command)
    complete_own = part.shell_complete

    def shell_complete(ctx: Any, incomplete: str) -> list[Any]:
        items = [CompletionItem(name, help=about) for name, about in names.items() if name.startswith(incomplete)]
        return [*complete_own(ctx, incomplete), *items]

    part.shell_complete = shell_complete


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
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all", callback=_print_full_help, is_eager=True, help="List all commands, with those in groups."
        ),
    ] = False,
) -> None:
    """LeMMing: an organisation of AI agents in a folder.

    Start with `lemming init desk --template desk`. Data goes to standard output, messages go to standard
    error. Every command accepts --json.
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
    from lemming.commands.trust import require_code_trust  # only imported if code could be loaded

    require_code_trust(org)


def _split_root_option(args: list[str]) -> tuple[str | None, list[str]]:
    """Return the folder of a `-C DIR` anywhere in the arguments, and the remaining arguments.

    After `--` every argument is a value. Raises `UsageError` for `-C` without a folder.
    """
    end = args.index("--") if "--" in args else len(args)
    for index, argument in enumerate(args[:end]):
        if argument in ("-C", "--root"):
            if index + 1 == len(args):
                raise UsageError(f"option {argument} requires a folder", hint=f"lemming {argument} DIR status")
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
