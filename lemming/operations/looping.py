"""Pause agents after a broken loop: at the end of the tick, in their resumes."""

from __future__ import annotations

from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.tick.runtime import Runtime

BY_LOOP_BREAKER = "by the loop breaker"
"""The author of a pause, as the resume names it."""


def pause_looping_agents(runtime: Runtime, report: TickReport) -> None:
    """Pause the agents named by a tick's turn reports, and report each pause.

    The turn's record already contains the pause, so after a crash the rest of the tick repeats the call.
    """
    for turn in report.turns:
        if not turn.stopped:
            continue
        from lemming.operations.agent_pause import pause_agent  # rarely needed

        reason = f"since tick {report.tick} {BY_LOOP_BREAKER}: {turn.stopped}"
        message = f"{turn.agent} is paused: {turn.stopped}"
        try:
            pause_agent(runtime.base, turn.agent, reason)
        except LemmingError as error:  # the resume is missing or not writable
            message = f"{turn.agent} could not be paused ({error}): {turn.stopped}"
        hint = f"see the last turn with `lemming tick {report.tick}`, then run `lemming unpause {turn.agent}`"
        file = paths.resume_file(turn.agent)
        runtime.report_problem(Problem(message, file, hint=hint, severity="warning", code="LMG-405"), turn.agent)
