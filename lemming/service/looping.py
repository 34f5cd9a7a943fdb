"""Agents whose loops were broken are paused at the end of the tick, in their resumes, as a person would."""

from __future__ import annotations

from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.journal.report import TickReport
from lemming.kernel.tick.runtime import Runtime

BY_LOOP_BREAKER = "by the loop breaker"
"""Who paused an agent, as its resume says."""


def pause_looping_agents(runtime: Runtime, report: TickReport) -> None:
    """Pause the agents that a tick's reports say are to be paused, and tell of it.

    The turn's record says so before: after a crash it is done with the rest of the tick.
    """
    for turn in report.turns:
        if not turn.stopped:
            continue
        from lemming.service.pause import pause  # hardly any tick needs it

        why = f"since tick {report.tick} {BY_LOOP_BREAKER}: {turn.stopped}"
        message = f"{turn.agent} is paused: {turn.stopped}"
        try:
            pause(runtime.base, turn.agent, why)
        except LemmingError as error:  # its resume cannot be written, or is gone
            message = f"{turn.agent} could not be paused ({error}): {turn.stopped}"
        hint = f"`lemming tick {report.tick}` shows the last of them; `lemming resume {turn.agent}` ends it"
        file = paths.resume_file(turn.agent)
        runtime.tell(Problem(message, file, hint=hint, severity="warning", code="LMG-405"), turn.agent)
