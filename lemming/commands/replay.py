"""`lemming replay`: run recorded ticks again, with recorded answers, and compare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from lemming.commands.options import Here, Quiet, argument, option
from lemming.commands.screen import counted, show, show_json, show_text, tell
from lemming.commands.trust import load_settings
from lemming.kernel.agents import survey_agents
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.shipped import STRATEGIES_SHIPPED
from lemming.timeline.replay.recording import Difference
from lemming.timeline.replay.replay import Replayed, replay_into, ticks_to_rerun
from lemming.timeline.replay.replay import replay as replay_in_place
from lemming.timeline.tick_spans import journals_of
from lemming.timeline.verify.root import file_digests, root_of

FILES_NAMED = 5


def replay(
    here: Here,
    ticks: Annotated[
        str | None, argument("TICKS", "7, or 3..9; all without. With --into: up to there.")
    ] = None,
    into: Annotated[Path | None, option("--into DIR", "Run the whole engine again, in a new folder.")] = None,
    quiet: Quiet = False,
) -> None:
    """Run recorded ticks again with their recorded answers, and stop at the first difference, with a diff.

    No model is called and no tool runs: an answer that is not in the journals is an error. Without --into
    every turn is worked out again from its record, and nothing is written. With --into, an organisation that
    starts as this one did runs from the first journal on in an empty folder, and every plan, prompt and file
    is compared; what has been edited since then shows. At the end its state root is printed.

    Exit status 1 says that something came out otherwise.

    \b
    Examples:
      lemming replay
      lemming replay 3..9
      lemming replay --into /tmp/again
    """
    base = here.org
    chosen = journals_of(base, ticks)
    try:
        if into is None:
            _import_plugins(base)
            _follow(replay_in_place(base, chosen), as_json=here.as_json, quiet=quiet)
        else:
            again = ticks_to_rerun(base, chosen[-1] if chosen else None)
            _follow(replay_into(base, into, again), as_json=here.as_json, quiet=quiet)
            _tell_root(base, into, as_json=here.as_json, quiet=quiet)
    except Difference as difference:
        if difference.diff and not here.as_json:
            show_text(difference.diff)
        raise


def _import_plugins(base: OrgPath) -> None:
    """Import the plugins where an agent takes its turns by a strategy of theirs, or with a capability."""
    survey = survey_agents(base)
    named = {agent.turn.strategy for agent in survey.agents.values()}
    if (
        not named <= {None, *STRATEGIES_SHIPPED}
        or survey.names_capabilities
        or load_config(base).org.capabilities
    ):
        load_settings(base)


def _follow(replayed: Iterator[Replayed], *, as_json: bool, quiet: bool) -> None:
    ticks = turns = 0
    for each in replayed:
        ticks, turns = ticks + 1, turns + each.turns
        if as_json:
            show_json("tick_replayed", vars(each))
        elif each.not_repeatable and not quiet:
            names = ", ".join(each.not_repeatable)
            tell(f"tick {each.tick}: not compared: {names} (the engine or the disk ended that turn)")
    if not as_json and not quiet:
        tell(f"{counted(ticks, 'tick')}, {counted(turns, 'turn')}: everything came out the same")


def _tell_root(base: OrgPath, into: Path, *, as_json: bool, quiet: bool) -> None:
    mine, original = file_digests(into), file_digests(base)
    root, other = root_of(mine), root_of(original)
    differing = sorted(file for file in {*mine, *original} if mine.get(file) != original.get(file))
    if as_json:
        show_json("state_root", {"root": root, "original": other, "differing": differing})
        return
    show(root)
    if differing and not quiet:
        more = f" and {len(differing) - FILES_NAMED} more" if len(differing) > FILES_NAMED else ""
        named = ", ".join(differing[:FILES_NAMED])
        tell(f"the organisation itself has the state root {other}; other in: {named}{more}", style="yellow")
