"""The three questions of `lemming init` on a terminal: what for, which model, whether a person is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lemming.agents import decode_resume
from lemming.base import paths
from lemming.base.jsontext import parse, pretty
from lemming.exchange.putting import with_keys
from lemming.exchange.shorthand import WordDefaults, resume_of
from lemming.files import fs
from lemming.org.config import MODELS_FILE, ORG_FILE
from lemming.service.choose_model import use_by_default
from lemming.service.models_here import ModelHere

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
    template = list(PURPOSES)[_number(ask, tell, list(PURPOSES.values()), usual=1)]
    does = ""
    while template == "empty" and not does:
        does = ask("What is its first agent to do, in a sentence?").strip()
    model = _model(ask, tell, found)
    answer = ask("Is a person asked before anything is sent, or a command run? [Y/n]")
    return Beginning(template, does, model, not answer.strip().lower().startswith("n"))


def _model(ask: Ask, tell: Tell, found: Sequence[ModelHere]) -> ModelHere | None:
    if not found:
        tell("No key of a model is in the environment, and no server of models answers on this machine.")
        tell("`lemming models list` shows what can be used later, and `lemming models use KEY` takes it.")
        return None
    tell("Which model?")
    lines = [f"{it.provider} {it.model}".strip() + f" ({it.because})" for it in found]
    chosen = _number(ask, tell, [*lines, "none of these yet"], usual=1)
    if chosen == len(found):
        return None
    model = found[chosen]
    while not model.model:
        model = model._replace(model=ask(f"Which model of {model.provider}? Its name there:").strip())
    return model


def _number(ask: Ask, tell: Tell, lines: Sequence[str], *, usual: int) -> int:
    for number, line in enumerate(lines, start=1):
        tell(f"  {number}  {line}")
    while True:
        answer = ask(f"A number [{usual}]:").strip() or str(usual)
        if answer.isdecimal() and 1 <= int(answer) <= len(lines):
            return int(answer) - 1
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
        key = wish.model.provider
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
