"""`lemming init`: make an organisation from a template; on a terminal three questions are asked."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from lemming.commands.dash import INSTALL, is_installed
from lemming.commands.options import Here, Quiet, argument, is_org, option
from lemming.commands.screen import show, tell
from lemming.exchange.putting import with_keys
from lemming.exchange.shorthand import WordDefaults, resume_of
from lemming.exchange.template import TEMPLATES, template_files
from lemming.facts.readiness import readiness_of, what_it_cannot
from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError, UsageError
from lemming.kernel.base.integers import read_int
from lemming.kernel.base.jsontext import parse, pretty, to_line
from lemming.kernel.files import fs
from lemming.kernel.files.whole_folder import finish_put, put_whole
from lemming.kernel.org.config import MODELS_FILE, ORG_FILE, load_config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.tick.firing_plan import WITH_TOOLS
from lemming.service.agreement import Agreement
from lemming.service.choose_model import use_by_default
from lemming.service.models_here import ModelHere, models_here, recommended

PURPOSES = {
    "desk": "answer requests and tickets, with a reviewer",
    "research": "answer questions from files, with sources that are checked",
    "watch": "read what machines drop, and tell a person what is urgent",
    "review": "write texts that nobody publishes without a person",
    "game": "let agents play against each other",
    "newsroom": "look at one that runs: a newsroom on the embedded model",
    "empty": "something of your own",
}
FIRST = "assistant"
"""The agent that does what somebody says it is to do."""

Ask = Callable[[str], str]
Tell = Callable[[str], None]


class Beginning(NamedTuple):
    """What somebody wants: a template, what its first agent does, a model, whether a person is asked."""

    template: str
    does: str = ""
    model: ModelHere | None = None
    asks_first: bool = False


def ask_what_for(ask: Ask, tell: Tell, found: Sequence[ModelHere]) -> Beginning:
    """Ask the three questions; a number out of range is asked again."""
    tell("What is it for?")
    template = list(PURPOSES)[_number(ask, tell, list(PURPOSES.values()))]
    does = ""
    while template == "empty" and not does:
        does = ask("What is its first agent to do, in a sentence?").strip()
    model = _model(ask, tell, found)
    answer = ask("Is a person asked before anything is sent, or a command run? [Y/n]")
    return Beginning(template, does, model, not answer.strip().lower().startswith("n"))


def _model(ask: Ask, tell: Tell, found: Sequence[ModelHere]) -> ModelHere | None:
    if not any(it.provider != "local" for it in found):
        tell("No key of a model is in the environment, and no server of models answers on this machine.")
    if not found:
        tell("`lemming models list` shows what can be used later, and `lemming models use KEY` takes it.")
        return None
    tell("Which model?")
    lines = [f"{it.provider} {it.model}".strip() + f" ({it.because})" for it in found]
    chosen = _number(ask, tell, [*lines, "none of these yet"])
    if chosen == len(found):
        return None
    model = found[chosen]
    while not model.model:
        model = model._replace(model=ask(f"Which model of {model.provider}? Its name there:").strip())
    return model


def _number(ask: Ask, tell: Tell, lines: Sequence[str]) -> int:
    for number, line in enumerate(lines, start=1):
        tell(f"  {number}  {line}")
    while True:
        answer = ask("A number [1]:").strip() or "1"
        if chosen := read_int(answer, ge=1, le=len(lines)):
            return chosen - 1
        tell(f"a number from 1 to {len(lines)}, please")


def make_so(base: Path, wish: Beginning) -> list[str]:
    """Write what the answers want, beside the template that is there already; return the new files."""
    made = []
    if wish.does:
        words = {"does": wish.does, "read": ["human"], "wake": "addressed"}
        content = pretty(resume_of(FIRST, words, WordDefaults()))
        decode_resume(FIRST, content)
        fs.publish(base, paths.resume_file(FIRST), content)
        made.append(paths.resume_file(FIRST))
    if wish.model:
        key = wish.model.key
        _put(base, MODELS_FILE, {key: wish.model.line})
        use_by_default(base, key)
    if wish.asks_first:
        classes = ["send", "execute"]
        gate = {"at": "call", "class": classes, "then": "ask", "because": "a person is asked first"}
        _put(base, ORG_FILE, {"gates": [gate]}, is_kept=True)
    return made


def _put(base: Path, file: str, said: dict[str, Any], *, is_kept: bool = False) -> None:
    """Put keys into a file of settings; `is_kept`: not in the place of what it says."""
    raw = fs.read_bytes(base / file, 1 << 20)
    plain = parse(raw)
    if new := {key: value for key, value in said.items() if key not in plain}:
        fs.publish(base, file, with_keys(raw, plain, new))
    elif not is_kept:
        fs.publish(base, file, pretty({**plain, **said}))


_WORDS_FOR_HERE = ("existing", "here", "this", "current")


def init(
    here: Here,
    folder: Annotated[
        Path, argument("DIR", "Made if need be; none: the current folder.", show_default=False)
    ] = Path("."),
    template: Annotated[
        Literal["newsroom", "recorded", "empty", "desk", "research", "watch", "review", "game"] | None,
        option("--template NAME", "What to begin with; see above. Default: asks, or newsroom."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Make an organisation in a folder. Nothing that is there is overwritten.

    Templates: newsroom, three agents at work on the embedded model; empty, only the human; and with recorded
    answers, so that no model is needed: desk, a support desk with three tickets; research, an answer with
    sources that a checker has passed; watch, a folder of logs, a person who is told, a digest a day; review,
    nothing is published without a person's approval; game, two players and a referee; recorded, 20 ticks of
    the newsroom. The README.md of each says how it goes on, and how it gets a model.

    Without --template, on a terminal, three questions are asked: what for, with which of the models that are
    here (keys in the environment, servers on this machine, an embedded model that fits its memory), and
    whether a person is asked before things are sent or run. Elsewhere it is the newsroom.

    On a terminal it says which models were found, and the command that replaces the default by a better one.
    No key is sent. Servers are asked for half a second, and only on a terminal.

    \b
    Examples:
      lemming init
      lemming init news
      lemming init desk --template desk
      lemming init --template empty my-org
    """
    base = folder.expanduser().absolute()
    if finish_put(base):
        tell(f"finished what was begun in {folder}; `lemming status` shows it")
        return
    _refuse_what_is_not_meant(base, folder)
    wish = Beginning(template or "newsroom")
    # Servers of this machine are asked only where a person looks on: a script gets the same words everywhere.
    is_seen = not (here.as_json or quiet) and sys.stderr.isatty()
    found = models_here() if is_seen else []
    if template is None and is_seen and sys.stdin.isatty():
        _refuse_to_overwrite(base, folder, [])
        wish = ask_what_for(lambda words: str(typer.prompt(words, "", err=True, show_default=False,
                            prompt_suffix=" ")), tell, found)  # fmt: skip
    files = template_files(wish.template)
    _refuse_to_overwrite(base, folder, list(files))
    with put_whole(base, "init") as staged:
        for relative, content in files.items():
            fs.publish(staged, relative, content)
        made = [*files, *make_so(staged, wish)]
    with contextlib.suppress(DiskError):  # no home, or a read-only one: then `run-once` asks
        Agreement(base).note_maker()
    if here.shows("org", {"org": str(base), "template": wish.template, "files": made}):
        return
    if quiet:
        return
    for relative in made:
        show(str(folder / relative))
    _tell_next(base, folder, wish)
    if is_seen and not wish.model:
        tell_models(load_config(base).models["default"], found, tell)


def tell_models(default: ModelEntry, found: Sequence[ModelHere], tell: Tell) -> None:
    """Say what the line "default" is, what else was found, and the command that takes the best of it."""
    line = {"provider": default.provider, "model": default.model}
    tell(f'its model, in {MODELS_FILE}: "default": {to_line(line)}')
    for model in found:
        tell(f"found: {model.provider} {model.model}".rstrip() + f" ({model.because})")
    if (best := recommended(found)) and (best.provider, best.model) != (default.provider, default.model):
        tell(f"better: `{best.command}`")


def _refuse_what_is_not_meant(base: Path, folder: Path) -> None:
    """`init existing`, and `init news` in an empty folder news, mean the folder that one is in."""
    here = base.parent
    is_here = base.name in _WORDS_FOR_HERE or (base.name == here.name and not any(here.iterdir()))
    if is_here and not base.exists() and here == Path.cwd() and not folder.is_absolute():
        hint = f"`lemming init` alone makes it in the current folder; {base} names a new one in it"
        raise UsageError(f'is "{folder}" the current folder?', where=str(here), hint=hint)
    if here.name == "agents" and is_org(here.parent):
        hint = f"`lemming agents new {base.name}` makes an agent"
        raise UsageError("this folder holds the agents of an organisation", where=str(here), hint=hint)


def _refuse_to_overwrite(base: Path, folder: Path, files: list[str]) -> None:
    present = [file for file in files if (base / file).exists() or (base / file).is_symlink()]
    if (base / "agents").exists():
        present.insert(0, "agents")
    if is_org(base):
        raise UsageError(
            "there is an organisation already", where=str(base), hint="`lemming status` shows it"
        )
    if present:
        names = ", ".join(present[:4]) + (", ..." if len(present) > 4 else "")
        raise UsageError(
            f"{names} already there; nothing was written",
            where=str(base),
            hint="choose another folder, or move these away",
        )


def _tell_next(base: Path, folder: Path, wish: Beginning) -> None:
    """Say which three commands come next: into the folder, what is missing, run."""
    steps = [] if base == Path.cwd() else [f"cd {folder}"]
    template, entry = wish.template, load_config(base).models["default"]
    missing = readiness_of(entry, base)
    if wish.does:
        steps.append(f'lemming ask {FIRST} "..."')
    elif template == "empty":
        steps.append('lemming agents new planner --read human --instructions "Plan what the human asks for."')
    if missing.is_ready is False:
        steps.append(missing.fix)
    steps += ["lemming run-once", "lemming inbox human", "lemming status"]
    tell("next:")
    for step in steps[:3]:
        tell(f"  {step}")
    tell(f"on a page in the browser, live: `lemming dash`{'' if is_installed() else f', after: {INSTALL}'}")
    if folder.name and folder.name != template and (TEMPLATES / folder.name).is_dir():
        tell(
            f"this is the {template}; `lemming init DIR --template {folder.name}` makes the other",
            style="yellow",
        )
    if entry.provider == "scripted":
        tell("its answers are recorded: README.md says more; `lemming models use gpt` gives it a model")
    elif template == "empty" and (limits := what_it_cannot(entry)):
        tell(f"its model is {entry.model}, which {limits}: {WITH_TOOLS}")
