"""`lemming bisect`: the first tick whose files make a command fail."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.options import AsJson, argument, option
from lemming.commands.org import find_org
from lemming.commands.screen import counted, painted, show, show_json, tell
from lemming.history.bisect import CommitTrial
from lemming.history.bisect import bisect as find_first_bad
from lemming.history.read import History


def bisect(
    ctx: typer.Context,
    command: Annotated[str, argument("COMMAND", "A shell command; exit status 0 means good.")],
    good: Annotated[str, option("--good A", "A tick after which it succeeds.")],
    bad: Annotated[str, option("--bad B", "A later tick after which it fails.")],
    as_json: AsJson = False,
) -> None:
    """Find the first tick whose files make a command fail. No model is asked.

    The command runs in a temporary folder that holds the organisation's files as they were; half of what is
    left is ruled out each time.

    \b
    Example:
      lemming bisect --good 1 --bad 500 'grep -q Paris agents/editor/memory/capital.json'
    """
    past = History(Path(find_org(ctx)))
    trials: list[CommitTrial] = []

    def hear(trial: CommitTrial) -> None:
        trials.append(trial)
        if not as_json:
            verdict = painted("good", "green") if trial.is_good else painted("bad ", "red")
            tell(f"  {verdict}  {trial.commit.short}  {trial.commit.subject}")

    first_bad = find_first_bad(past, past.state(good), past.state(bad), command, hear)
    if as_json:
        tried = [
            {"commit": trial.commit.id, "tick": trial.commit.tick, "is_good": trial.is_good}
            for trial in trials
        ]
        facts = {"first_bad": first_bad.as_json(), "is_by_hand": first_bad.is_by_hand, "tried": tried}
        show_json("bisect", facts)
        return
    show(f"first bad: {first_bad.subject}  {first_bad.short}")
    name = first_bad.short if first_bad.is_by_hand else str(first_bad.tick)
    tell(f"found with {counted(len(trials), 'run')}; `lemming show {name}` shows what it changed")
