"""Commands that are run when something begins to fail, or to wait for a person: once for each thing.

What has been told of stands in `logs/told.json` for as long as it lasts, so that a restart tells nothing
twice. A thread of its own does all of this: no tick waits for it. Format: docs/formats.md, "Told".
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from lemming.capabilities.background.threads import keep_alive
from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import DiskError, LemmingError
from lemming.kernel.base.jsontext import JsonProblem, compact, parse, pretty
from lemming.kernel.base.redaction.secrets import redact, redact_json
from lemming.kernel.files import fs
from lemming.kernel.journal.events import Event, TickEnds
from lemming.kernel.journal.report import TickReport, TurnReport
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import Org
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.runtime import Runtime
from lemming.service.run_program import run_command

FAILURE, WAITING = "failure", "waiting"
ALL = "organisation"
LIMIT_S = 30.0
_TEXT_CHARS, _FILE_LIMIT_BYTES = 4000, 8 << 20
_OVER_UNSAID = (
    "ConfigError",
    "LimitReached",
    "OutOfCredits",
)  # over, too, when the agent takes no turn for another reason

Things = Mapping[str, dict[str, Any]]
"""What fails or waits, by what names it: an agent, "organisation", a request. Each has `about` and `text`."""
Waiting = Callable[[Organisation], Iterable[tuple[str, dict[str, Any]]]]


class _News(NamedTuple):
    """What has begun, and everything that is told of once that is; a command is run if anything has."""

    kind: str
    command: list[str]
    tick: int
    begun: list[dict[str, Any]]
    told: Mapping[str, Things]


class Alerts:
    """Those of one organisation."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._told = org, _read(org)
        self._news: queue.SimpleQueue[_News | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._settings, self._at = Org(), ""
        self._waiting: Waiting = lambda _: ()

    def under(self, runtime: Runtime, settings: Org, waiting: Waiting) -> Alerts:
        """Return itself, for the tick that begins; `waiting` returns what waits for a person."""
        self._settings, self._waiting, self._at = settings, waiting, timestamp(runtime.clock.now())
        runtime.at_end = self.wait
        return self

    def hear(self, event: Event) -> None:
        """Look at the end of a tick at what has begun and what is over."""
        if not isinstance(event, TickEnds):
            return
        report, settings = event.report, self._settings
        if settings.on_failure:
            over = _over(report, self._told.get(FAILURE, {}))
            self._look(FAILURE, settings.on_failure, report.tick, self._failing(report), over)
        if settings.on_waiting:
            now = dict(self._waiting(self._org))
            over = self._told.get(WAITING, {}).keys() - now.keys()
            self._look(WAITING, settings.on_waiting, report.tick, now, over)

    def stopped_by(self, error: LemmingError, tick: int) -> None:
        """Tell that the engine ends in this tick with an error."""
        if self._settings.on_failure:
            thing = {"about": ALL, "text": str(error), "since_tick": tick, "since": self._at}
            self._look(FAILURE, self._settings.on_failure, tick, {ALL: thing}, set())

    def wait(self) -> None:
        """Wait until all has been told, or for as long as a command may take."""
        if self._thread is not None:
            self._news.put(None)
            self._thread.join(LIMIT_S + 5)
            self._thread = None

    def _failing(self, report: TickReport) -> Things:
        since = {"since_tick": report.tick, "since": self._at}
        paused = {
            f"{turn.agent}/paused": {
                "about": turn.agent,
                "text": f"{turn.agent} is paused: {turn.stopped}",
                "error": "",
                **since,
            }
            for turn in report.turns
            if turn.stopped
        }
        return paused | {
            turn.agent: {
                "about": turn.agent,
                "text": f"{turn.agent}: {turn.reason}",
                "error": turn.error,
                **since,
            }
            for turn in report.turns
            if _is_failing(turn)
        }

    def _look(self, kind: str, command: list[str], tick: int, now: Things, over: set[str]) -> None:
        before = self._told.get(kind, {})
        if now.keys() <= before.keys() and not over:
            return
        gone = before.keys() - {ALL, *agent_folders(self._org)} if kind == FAILURE else set()
        still = {name: thing for name, thing in before.items() if name not in over | gone}
        begun = {name: thing for name, thing in now.items() if name not in still}
        self._told = {**self._told, kind: {**still, **begun}}
        if self._thread is None:
            never = threading.Event()  # what is in the queue is told; `wait` has its own end
            self._thread = keep_alive(self._work, name="lemming-alerts", base=self._org, over=never)
        self._news.put(_News(kind, command, tick, list(begun.values()), self._told))

    def _work(self) -> None:
        while news := self._news.get():
            try:
                if news.begun:
                    self._run(news)
                else:
                    self._write(news)
            except LemmingError as error:  # a full disk, say, of which the tick says more
                self._complain(news.kind, str(error))

    def _write(self, news: _News) -> None:
        fs.publish(self._org.base, paths.TOLD, pretty(redact_json(news.told)))

    def _run(self, news: _News) -> None:
        facts = {"event": news.kind, "org": str(self._org), "tick": news.tick, "things": news.begun}
        facts = redact_json(facts)
        if why := run_command(
            news.command,
            given=compact(facts) + b"\n",
            variables=variables_of(facts),
            cwd=self._org.base,
            limit_s=LIMIT_S,
            once_started=lambda: self._write(news),  # a crash before tells it twice, one after never
        ):
            self._complain(news.kind, redact(why))

    def _complain(self, kind: str, reason: str) -> None:
        with contextlib.suppress(DiskError):
            EngineLog(self._org).warning("command_failed", setting=f"on_{kind}", reason=reason)


def variables_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts as variables of the environment, for commands that read no JSON.

    >>> things = [{"about": "ada", "text": "ada: no key"}, {"about": "bob", "text": "bob: no key"}]
    >>> variables_of({"event": "failure", "org": "/org", "tick": 7, "things": things})["LEMMING_ABOUT"]
    'ada, bob'
    """
    things = facts["things"]
    values = {
        "EVENT": facts["event"],
        "ORG": facts["org"],
        "TICK": str(facts["tick"]),
        "COUNT": str(len(things)),
        "ABOUT": ", ".join(thing["about"] for thing in things)[:_TEXT_CHARS],
        "TEXT": "\n".join(" ".join(thing["text"].split()) for thing in things)[:_TEXT_CHARS],
    }
    return {f"LEMMING_{name}": value.replace("\0", "") for name, value in values.items()}


def _is_failing(turn: TurnReport) -> bool:
    return turn.status == "failed" or bool(turn.status == "skipped" and turn.error)


def _over(report: TickReport, told: Things) -> set[str]:
    """Return which of the failures told of are over with this tick."""
    well = {ALL}
    for turn in report.turns:
        error = told.get(turn.agent, {}).get("error")
        if not _is_failing(turn) and (turn.status != "skipped" or error in _OVER_UNSAID):
            well.add(turn.agent)
    return told.keys() & well


def _read(org: Organisation) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what has been told of; nothing where the file is not the engine's."""
    try:
        plain = parse(fs.read_bytes(org / paths.TOLD, _FILE_LIMIT_BYTES))
    except (OSError, JsonProblem):
        return {}
    kinds = plain.items() if isinstance(plain, dict) else ()
    return {
        kind: {name: thing for name, thing in things.items() if isinstance(thing, dict)}
        for kind, things in kinds
        if kind in (FAILURE, WAITING) and isinstance(things, dict)
    }
