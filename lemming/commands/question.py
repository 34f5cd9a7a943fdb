"""What `ask` and `chat` share: a question put, who is at work on it, and what is said of its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lemming.asking import AskOutcome, AtWork, ask
from lemming.base.errors import is_of_a_provider
from lemming.commands.narration import NO_CREDITS, NO_PROVIDER, NOBODY_USABLE
from lemming.commands.screen import one_line, show_pretty, show_text, tell
from lemming.commands.stopping import stop_on_signals
from lemming.commands.trust import require_agreement
from lemming.journal.events import Event, ProblemFound
from lemming.journal.records import TurnEnded
from lemming.org.organisation import OrgPath
from lemming.tick.under_way import running_engine

NOT_ANSWERED, NO_ANSWER_YET = 1, 9


@dataclass
class Watcher:
    """Tells who is at work on a question, and which of their turns fail."""

    quiet: bool = False
    holders: tuple[str, ...] = ()
    id: str = ""
    _failed: set[str] = field(default_factory=set)

    def asked(self, id_: str) -> None:
        """Note the id of the question, once it is written."""
        self.id = id_

    def at_work(self, work: AtWork) -> None:
        """Say who has to do something before the next tick."""
        self.holders = work.holders
        if not self.quiet and work.waits:
            tell(f"  tick {work.tick}: {one_line(work.waits, 400)}", style="dim")
        elif not self.quiet and work.holders:
            verb = "is" if len(work.holders) == 1 else "are"
            tell(f"  tick {work.tick}: {', '.join(work.holders)} {verb} at work", style="dim")

    def hear(self, event: Event) -> None:
        """Take an event of the engine."""
        if isinstance(event, TurnEnded) and event.report.status == "failed":
            text = f"  {event.report.agent} failed: {one_line(event.report.reason, 400)}"
        elif isinstance(event, ProblemFound) and not self.quiet:
            text = f"  {one_line(str(event.problem), 400)}"
        else:
            return
        if text not in self._failed:
            self._failed.add(text)
            tell(text, style="yellow")


def agree_to_run(base: OrgPath, *, can_ask: bool) -> None:
    """Ask for what running reaches outside, unless another engine does the running."""
    if running_engine(base) is None:
        require_agreement(base, can_ask=can_ask)


def put(base: OrgPath, agent: str, text: str, *, quiet: bool, **options: Any) -> tuple[AskOutcome[Any], int]:
    """Ask something and wait for the answer; return what came of it and the exit status that says so."""
    watcher = Watcher(quiet)
    with stop_on_signals(quiet=quiet) as switch:
        outcome = ask(
            base,
            agent,
            text,
            stop=switch.stop,
            notify=watcher.hear,
            at_work=watcher.at_work,
            asked=watcher.asked,
            **options,
        )
    return outcome, switch.exit_status if outcome.why == "stopped" else status_of(outcome)


def status_of(outcome: AskOutcome[Any]) -> int:
    """Return the exit status for what came of a question. See docs/cli.md."""
    if outcome.has_answer:
        return 0
    if outcome.end not in (None, "failed"):
        return NOT_ANSWERED
    if outcome.error in ("OutOfCredits", "LimitReached"):
        return NO_CREDITS
    is_out_of_reach = is_of_a_provider(outcome.error) and outcome.error in NOBODY_USABLE
    return NO_PROVIDER if is_out_of_reach else NOT_ANSWERED if outcome.end else NO_ANSWER_YET


def show_answer(outcome: AskOutcome[Any]) -> None:
    """Print the answer to standard output; where there is none, say why, and how to come back."""
    request = outcome.request
    if outcome.has_answer:
        if outcome.end == "expired":
            tell(f"{' and '.join(request.targets)} did not answer in time; this was laid down for then:")
        show_text(outcome.answer) if isinstance(outcome.answer, str) else show_pretty(outcome.answer)
        return
    tell(one_line(outcome.why_unanswered, 1000), style="yellow")
    if outcome.end is None:
        tell(
            f"it stays open: `lemming requests {request.id}` shows it, `lemming cancel {request.id}` ends it"
        )
