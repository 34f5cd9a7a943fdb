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

from lemming.commands.failures import guarded
from lemming.commands.meant import MEANT, OF_THE_PAGE, words_behind
from lemming.commands.screen import show, show_text
from lemming.commands.session import CommandSession
from lemming.kernel.access.code_guard import code_guarded
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
        each: text for name in names for each, text in ((name, names[name]), *WITHIN.get(name, {}).items())
    }
    for title, names in SECTIONS.items()
}
"""All commands, each behind the one that it stands within."""

PLACES = {
    "apply": "exchange:apply", "approvals": "waiting:waiting", "answer": "requests:answer",
    "bisect": "past:bisect", "cancel": "requests:cancel", "chat": "ask:chat", "compare": "rehearse:compare",
    "credits": "cost:app", "deny": "approve:deny", "diff": "past:diff",
    "doctor": "check:doctor", "fork": "past:fork",
    "history": "past:history", "import": "exchange:app", "inbox": "messages:inbox",
    "metrics": "events:metrics", "outbox": "messages:outbox", "prune": "repair:prune",
    "report": "dash:report", "restore": "backup:restore", "resume": "pause:resume", "rewind": "past:rewind",
    "run-forever": "run:run_forever", "run-once": "run:run_once", "show": "past:show_tick",
    "upgrade": "repair:upgrade", "validate": "check:validate", "verify": "check:verify",
}  # fmt: skip
"""Where a command stands that is no module of its name: the module, and the name in it."""

_SHOWS_ALL = "lemming.shows_all"

ROOT_HELP = "The organisation's folder. Default: the nearest."


class Contents(TyperGroup):
    """The commands above, imported when used, so that `lemming --help` and completion are quick."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names in the order of the table."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; None for a name that is none."""
        return load_command(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and the other words; raise `UsageError` with the nearest name."""
        name, names = OF_THE_PAGE.get(args[0], args[0]), self.list_commands(ctx)
        if name not in names and not ctx.resilient_parsing:
            from lemming.kernel.base.jsontext import nearest

            hint = MEANT.get(name) or nearest(name, names) or "lemming --help"
            raise UsageError(f'there is no command "{name}"', hint=hint)
        rest = args[1:]
        if rest and rest[0] in WITHIN.get(name, ()) and not _is_an_agent(ctx, rest[0]):
            name, *rest = rest
        if ctx.obj:
            ctx.obj.command = f"lemming {name}"
        found = super().resolve_command(ctx, [name, *rest])
        if ctx.obj and rest:
            ctx.obj.typed_within = rest[0], words_behind(name, found[1], WITHIN.get(name, ()), rest[0])
        return found

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `-C DIR` out for the shell's completion, which has the words as they were typed."""
        root, words = _root_and_rest(args)
        if ctx.obj:
            ctx.obj.root = root or ctx.obj.root
        ctx.meta[_SHOWS_ALL] = "--all" in words  # before --help, which is told at once
        rest: list[str] = super().parse_args(ctx, words)
        return rest

    def get_help_option(self, ctx: Any) -> Any:
        """Return `--help` as a flag that is off unless given."""
        return _off_unless_given(super().get_help_option(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options into the help, `-C` first."""
        own = [record for one in self.get_params(ctx) if (record := one.get_help_record(ctx))]
        with formatter.section("Options"):
            formatter.write_dl([("-C, --root <path>", f"{ROOT_HELP}  [env var: LEMMING_ROOT]"), *own])
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table into the help, or those of it that people use."""
        shows_all = ctx.meta.get(_SHOWS_ALL, True)
        for title, names in SECTIONS.items():
            with formatter.section(title):
                for name, about in names.items():
                    inner = WITHIN.get(name, {}) if shows_all else {}
                    formatter.write_dl([(name.ljust(11), about), *((f"  {it}", inner[it]) for it in inner)])
        if not shows_all:
            with formatter.section(f"{sum(map(len, WITHIN.values()))} more stand within these"):
                formatter.write_dl([("lemming --help --all", "Show every command.")])


def _is_an_agent(ctx: Any, word: str) -> bool:
    """Return whether an agent has the name of a command, and so is what stands behind another."""
    from lemming.commands.options import Here

    try:
        org = Here(ctx, as_json=False).org_if_any
    except LemmingError:  # which the command itself says, if it needs one
        return False
    return org is not None and (org.base / "agents" / word).is_dir()


class Verb(TyperCommand):
    """A command for which no validator is made where nothing was typed that needs one.

    typer makes one for each parameter that is no flag, given or not, and `--help` counts as none; the import
    alone costs as much as all the rest of a short command (docs/decisions/0010).
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed; what was not has its defaults."""
        if not ctx.resilient_parsing:
            self.params = _parameters_typed(self.params, args)
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def get_help_option(self, ctx: Any) -> Any:
        """Return `--help` as a flag that is off unless given."""
        return _off_unless_given(super().get_help_option(ctx))


def _parameters_typed(parameters: Sequence[Any], words: Sequence[str]) -> list[Any]:
    """Return the parameters that the words of a command may set, and its flags; all where one is unclear."""
    if not words:
        return [parameter for parameter in parameters if parameter.required]
    options = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
    names = {parameter: {*parameter.opts, *parameter.secondary_opts} for parameter in parameters}
    if not options <= {name for known in names.values() for name in known}:  # --help, a slip, -n5
        return list(parameters)
    has_words = any(not word.startswith("-") or word == "-" for word in words)
    return [
        it
        for it in parameters
        if it.required
        or getattr(it, "is_flag", False)
        or options & names[it]
        or (has_words and it.param_type_name == "argument")
    ]


def _off_unless_given(option: Any) -> Any:
    if option is not None:
        option.default = False
    return option


def load_command(name: str) -> Any:
    """Return a command of the table: a noun is the `app` of its module, a verb a function."""
    from lemming.commands.options import verb  # what a command needs, and `--help` does not
    from lemming.kernel.plugins.capabilities import missing_for_command

    if why := missing_for_command(name):
        raise UsageError(why, hint="install lemming-engine again")
    own = name.replace("-", "_")
    place, _, attribute = PLACES.get(name, own).partition(":")
    module = import_module(f"lemming.commands.{place}")
    found = getattr(module, attribute or own, None) or module.app
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(rich_markup_mode=None, add_completion=False)
        alone.command(name, cls=Verb)(verb(found))
        found = alone
    command = typer.main.get_command(found)
    if inner := WITHIN.get(name):
        width = max(map(len, inner))
        lines = (f"  lemming {name} {it:<{width}}  {about}" for it, about in inner.items())
        command.epilog = "\n".join(("\b", "Within it:", *lines))
    return command


def make_app(*, completion: bool = True) -> typer.Typer:
    """Return the program; `completion`: with the options that install it in a shell.

    A validator is made for each of them, given or not, and for any option that takes a value: see `Verb`.
    """
    app = typer.Typer(
        cls=Contents,
        rich_markup_mode=None,
        add_completion=completion,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    return app


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        show(f"lemming {__version__}")
        raise typer.Exit


def _tell_all(ctx: typer.Context, is_asked: bool) -> None:
    if is_asked:
        show_text(ctx.get_help())
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_tell_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    every: Annotated[
        bool,
        typer.Option("--all", callback=_tell_all, is_eager=True, help="Show every command in this help."),
    ] = False,
) -> None:
    """LeMMing: an organisation of AI agents in a folder.

    Start with `lemming init desk --template desk`. Data goes to standard output, everything else to standard
    error, and every command takes --json.
    """


def run(args: list[str]) -> int:
    """Run one command and return the exit status; docs/cli.md says what each means."""
    session = CommandSession(root=os.environ.get("LEMMING_ROOT") or None)

    def work() -> int:
        root, words = _root_and_rest(args)
        session.root = root or session.root
        if words[:1] == ["help"]:
            words = [*words[1:], "--help"]
        app = make_app(completion=not words or words[0].startswith("-"))
        status = typer.main.get_command(app).main(
            words or ["--help"], "lemming", standalone_mode=False, obj=session
        )
        return status if isinstance(status, int) else 0

    with code_guarded(_require_code_agreed):
        return guarded(work, session, as_json="--json" in args)


def _require_code_agreed(org: Organisation) -> None:
    from lemming.commands.trust import require_code_agreed  # where there is code

    require_code_agreed(org)


def _root_and_rest(args: list[str]) -> tuple[str | None, list[str]]:
    """Return the folder given with `-C DIR`, wherever it was typed, and the other words; raise `UsageError`.

    After `--` every word is a value, and those after `bisect` are a command of its own.
    """
    end = next((place for place, word in enumerate(args) if word in ("--", "bisect")), len(args))
    for place, word in enumerate(args[:end]):
        if word in ("-C", "--root"):
            if place + 1 == len(args):
                raise UsageError(f"option {word} needs a folder", hint=f"lemming {word} DIR status")
            return args[place + 1], [*args[:place], *args[place + 2 :]]
        if word.startswith("--root="):
            return word.removeprefix("--root="), [*args[:place], *args[place + 1 :]]
    return None, args


def main() -> None:
    """Run the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # text from models may not fit an old terminal's encoding
            stream.reconfigure(errors="backslashreplace")
    status = run(sys.argv[1:])
    gc.freeze()  # as the interpreter ends it would look through all there is for cycles: 25 ms
    sys.exit(status)
