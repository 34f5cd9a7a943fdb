"""`lemming init`: create an organisation from a template, after three questions on a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from lemming.commands.command_context import CommandContext, Quiet, argument, is_org, option
from lemming.commands.init_here import plan_first_org, print_first_org
from lemming.commands.terminal import has_person, print_data, print_json, print_notice
from lemming.import_export.apply_document import REPOSITORIES, TEMPLATES, append_keys, load_template
from lemming.import_export.resume_shorthand import ShorthandDefaults, expand_shorthand
from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError, UsageError
from lemming.kernel.base.integers import parse_int
from lemming.kernel.base.jsontext import dump_pretty, parse, to_line
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import NEWEST_FORMAT
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.libraries.atomic_folder import finish_staging, stage_org
from lemming.libraries.optional_packages import can_serve, install_command
from lemming.libraries.settings_edits import set_json_value
from lemming.operations.choose_model import set_default_model
from lemming.operations.model_detection import AvailableModel, detect_models, recommend_model
from lemming.operations.permission_grants import PermissionGrants
from lemming.queries.model_readiness import WITH_TOOLS, check_readiness, describe_limitations

PURPOSES = {
    "desk": "answer requests and tickets, with a reviewer",
    "research": "answer questions from files, with checked sources",
    "watch": "watch a log folder and alert a person",
    "review": "write texts that a person approves before they are published",
    "game": "let agents play against each other",
    "workers": "mend a repository by coding harnesses, with a person who approves each merge",
    "newsroom": "see an example: a newsroom on the embedded model",
    "empty": "something else",
}
FIRST_AGENT = "assistant"
"""The first agent of a new organisation, which does one described task."""

Ask = Callable[[str], str]
Tell = Callable[[str], None]


class InitAnswers(NamedTuple):
    """Answers to the setup questions: template, task of the first agent, model, and approval of sends."""

    template: str
    task: str = ""
    model: AvailableModel | None = None
    requires_approval: bool = False


def ask_setup_questions(ask: Ask, tell: Tell, models: Sequence[AvailableModel]) -> InitAnswers:
    """Ask the setup questions; a number out of range is asked again."""
    tell("What is the purpose?")
    template = list(PURPOSES)[_ask_number(ask, tell, list(PURPOSES.values()))]
    task = ""
    while template == "empty" and not task:
        task = ask("What should its first agent do, in one sentence?").strip()
    model = _ask_model(ask, tell, models)
    approval_answer = ask("Require a person's approval before agents send data or run commands? [Y/n]")
    return InitAnswers(template, task, model, not approval_answer.strip().lower().startswith("n"))


def _ask_model(ask: Ask, tell: Tell, models: Sequence[AvailableModel]) -> AvailableModel | None:
    if not any(candidate.provider != "local" for candidate in models):
        tell("No model key is set in the environment, and no model server answers on this machine.")
    if not models:
        tell("Later, `lemming models list` shows the available models, and `lemming models use KEY` selects one.")
        return None
    tell("Which model?")
    lines = [f"{candidate.provider} {candidate.model}".strip() + f" ({candidate.evidence})" for candidate in models]
    index = _ask_number(ask, tell, [*lines, "none for now"])
    if index == len(models):
        return None
    model = models[index]
    while not model.model:
        model = model._replace(model=ask(f"Which model of {model.provider}? Name:").strip())
    return model


def _ask_number(ask: Ask, tell: Tell, lines: Sequence[str]) -> int:
    for number, line in enumerate(lines, start=1):
        tell(f"  {number}  {line}")
    while True:
        answer = ask("Number [1]:").strip() or "1"
        if chosen := parse_int(answer, ge=1, le=len(lines)):
            return chosen - 1
        tell(f"enter a number from 1 to {len(lines)}")


def apply_answers(base: Path, answers: InitAnswers) -> list[str]:
    """Write the settings for the answers into the new organisation; return the new files."""
    new_files = []
    if answers.task:
        shorthand = {"does": answers.task, "read": ["human"], "wake": "addressed"}
        content = dump_pretty(expand_shorthand(FIRST_AGENT, shorthand, ShorthandDefaults()))
        decode_resume(FIRST_AGENT, content)
        fs.write_atomic(base, paths.resume_file(FIRST_AGENT), content)
        new_files.append(paths.resume_file(FIRST_AGENT))
    if answers.model:
        key = answers.model.key
        _update_settings_file(base, paths.MODELS_FILE, {key: answers.model.config_entry})
        set_default_model(base, key)
    if answers.requires_approval:
        gate = {"at": "call", "class": ["send", "execute"], "then": "ask", "because": "a person approves first"}
        _update_settings_file(base, paths.ORG_FILE, {"gates": [gate]}, is_kept=True)
    return new_files


def _update_settings_file(base: Path, file: str, values: dict[str, Any], *, is_kept: bool = False) -> None:
    """Update keys of a settings file; with `is_kept`, existing keys keep their values."""
    raw = fs.read_bytes(base / file, 1 << 20)
    document = parse(raw)
    if new_values := {key: value for key, value in values.items() if key not in document}:
        fs.write_atomic(base, file, append_keys(raw, document, new_values))
    elif not is_kept:
        fs.write_atomic(base, file, dump_pretty({**document, **values}))


_CURRENT_FOLDER_WORDS = ("existing", "here", "this", "current")


def init(
    context: CommandContext,
    folder: Annotated[
        Path, argument("DIR", "Folder to create; default: the current folder.", show_default=False)
    ] = Path("."),
    template: Annotated[
        Literal["newsroom", "recorded", "empty", "desk", "workers", "research", "watch", "review", "game"] | None,
        option("--template NAME", "Template to start from. Default: ask on a terminal, else newsroom."),
    ] = None,
    uses_repository: Annotated[
        bool, option("--here", "Create workers for the git repository around you. Default of DIR: ../NAME-agents.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Create an organisation in a folder. Existing files are never overwritten.

    Templates: newsroom, three agents on the embedded model; empty, only the human; and with recorded answers,
    so no model is needed: desk, a support desk with three tickets; workers, a patch for a repository that is
    merged with a person's approval; research, an answer with checked sources;
    watch, a log folder, alerts to a person and a daily digest; review, texts published only with a person's
    approval; game, two players and a referee; recorded, 20 ticks of the newsroom. The README.md of each
    template describes the next steps and the choice of a model.

    Without --template, on a terminal, three questions are asked: the purpose, the model (from keys in the
    environment, servers on this machine, and an embedded model that fits into memory), and approval of sends
    and commands. Without a terminal, the template is newsroom.

    With --here, the organisation is made beside the git repository around you, from what is there: a triager, a
    coder that runs an installed harness, a reviewer, and you, who approves each merge. See docs/workers.md.

    On a terminal, the output lists the available models, and the command that replaces the default by a
    better model. No key is sent. Local servers are queried for half a second, only on a terminal.

    \b
    Examples:
      lemming init
      lemming init news
      lemming init desk --template desk
      lemming init --template empty my-org
      lemming init --here
    """
    root = context.root_option
    # LEMMING_ROOT names the organisation of all commands, and DIR another one.
    if root is not None and not folder.is_absolute() and folder != Path(".") and root != os.environ.get("LEMMING_ROOT"):
        raise UsageError(f"-C {root} and {folder} both name the folder", hint=f"lemming init {Path(root) / folder}")
    folder = folder if root is None or folder != Path(".") else Path(root)
    if uses_repository:
        _init_here(folder, template)
        return
    base = folder.expanduser().absolute()
    if finish_staging(base):
        print_notice(f"completed the interrupted `lemming init` in {folder}; `lemming status` shows it")
        return
    _reject_ambiguous_folder(base, folder)
    answers = InitAnswers(template or "newsroom")
    # Servers of this machine are asked only where a person looks on: a script gets the same words everywhere.
    is_interactive = has_person() and sys.stderr.isatty()
    models = detect_models() if is_interactive else []
    if template is None and is_interactive and sys.stdin.isatty():
        _refuse_to_overwrite(base, folder, [])
        ask = partial(typer.prompt, default="", err=True, show_default=False, prompt_suffix=" ")
        answers = ask_setup_questions(ask, print_notice, models)
    files = load_template(answers.template)
    _refuse_to_overwrite(base, folder, list(files))
    with _create_org(base, files) as staged:
        if folder_name := REPOSITORIES.get(answers.template):
            require_fact("workers.make_repository")(staged / folder_name)
        new_files = [*files, *apply_answers(staged, answers)]
    print_json("org", {"org": str(base), "template": answers.template, "files": new_files})
    if not has_person():
        return
    for relative in new_files:
        print_data(str(folder / relative))
    _print_next_steps(base, folder, answers)
    if is_interactive and not answers.model:
        print_models(load_config(base).models["default"], models, print_notice)


def _init_here(folder: Path, template: str | None) -> None:
    if template:
        raise UsageError("--here and --template exclude each other", hint="leave one of them out")
    org = plan_first_org(None if folder == Path(".") else folder, Path.cwd())
    if finish_staging(org.base):
        print_notice(f"completed the interrupted `lemming init` in {org.base}; `lemming status` shows it")
        return
    _refuse_to_overwrite(org.base, org.base, list(org.files))
    with _create_org(org.base, org.files):
        pass
    print_json("org", org.as_json())
    if has_person():
        print_first_org(org)


@contextlib.contextmanager
def _create_org(base: Path, files: Mapping[str, bytes]) -> Iterator[Path]:
    """Create an organisation with these files; yield the staging folder for further files."""
    with stage_org(base, "init") as staged:
        for relative, content in files.items():
            is_settings = relative == paths.ORG_FILE
            new_content = set_json_value(content, ["format"], NEWEST_FORMAT) if is_settings else content
            fs.write_atomic(staged, relative, new_content)
        yield staged
    with contextlib.suppress(DiskError):  # no home, or a read-only one: then `run-once` asks
        PermissionGrants(base).mark_as_local()


def print_models(default: ModelEntry, models: Sequence[AvailableModel], tell: Tell) -> None:
    """Print the default model, other available models, and the command that selects the best model."""
    line = {"provider": default.provider, "model": default.model}
    tell(f'model, in {paths.MODELS_FILE}: "default": {to_line(line)}')
    for model in models:
        tell(f"found: {model.provider} {model.model}".rstrip() + f" ({model.evidence})")
    if (better := recommend_model(models)) and (better.provider, better.model) != (default.provider, default.model):
        tell(f"better: `{better.command}`")


def _reject_ambiguous_folder(base: Path, folder: Path) -> None:
    """Raise `UsageError` if the folder argument probably means the current folder or a new agent.

    Such arguments are `init existing`, and `init news` in an empty folder named news.
    """
    parent = base.parent
    is_same_name = base.name == parent.name and not any(parent.iterdir())
    means_current_folder = is_same_name or base.name in _CURRENT_FOLDER_WORDS
    if means_current_folder and not base.exists() and parent == Path.cwd() and not folder.is_absolute():
        hint = f"run `lemming init` alone to use the current folder; {base} would be a new folder in it"
        raise UsageError(f'is "{folder}" the current folder?', where=str(parent), hint=hint)
    if parent.name == "agents" and is_org(parent.parent):
        hint = f"create an agent with `lemming agents new {base.name}`"
        raise UsageError("the folder is the agents/ folder of an organisation", where=str(parent), hint=hint)


def _refuse_to_overwrite(base: Path, folder: Path, files: list[str]) -> None:
    """Raise `UsageError` if the folder holds an organisation or files of the template."""
    present = [file for file in files if (base / file).exists() or (base / file).is_symlink()]
    if (base / "agents").exists():
        present.insert(0, "agents")
    if is_org(base):
        raise UsageError("the folder is already an organisation", where=str(base), hint="see it with `lemming status`")
    if present:
        names = ", ".join(present[:4]) + (", ..." if len(present) > 4 else "")
        problem, hint = f"{names} already present; nothing was written", "choose another folder, or move these away"
        raise UsageError(problem, where=str(base), hint=hint)


def _print_next_steps(base: Path, folder: Path, answers: InitAnswers) -> None:
    """Print the next three commands: enter the folder, install missing parts, run."""
    steps = [] if base == Path.cwd() else [f"cd {folder}"]
    template, entry = answers.template, load_config(base).models["default"]
    readiness = check_readiness(entry, base)
    if answers.task:
        steps.append(f'lemming ask {FIRST_AGENT} "..."')
    elif template == "empty":
        steps.append('lemming agents new planner --read human --instructions "Plan what the human asks for."')
    if readiness.is_ready is False:
        steps.append(readiness.fix)
    look = "lemming waiting" if template in REPOSITORIES else "lemming inbox human"
    steps += ["lemming run-once", look, "lemming status"]
    print_notice("next:")
    for step in steps[:3]:
        print_notice(f"  {step}")
    needed = "" if can_serve() else f", after: {install_command('serve')}"
    print_notice(f"live in the browser: `lemming dash`{needed}")
    if folder.name and folder.name != template and (TEMPLATES / folder.name).is_dir():
        other = f"lemming init DIR --template {folder.name}"
        print_notice(f"this is the {template}; `{other}` creates the other", style="yellow")
    if entry.provider == "scripted":
        print_notice("this template replays answers (see README.md); `lemming models use gpt` takes a real model")
    elif entry.provider == "recorded":
        print_notice("this template replays a run (see README.md); `lemming models use claude-code` runs a harness")
    elif template == "empty" and (limits := describe_limitations(entry)):
        print_notice(f"the model is {entry.model}, which {limits}: {WITH_TOOLS}")
