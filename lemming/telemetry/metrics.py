"""What an organisation's ledgers and newest journals say, as metrics.

Counters are the ledgers' totals, so they survive restarts and go on when journals are removed. What only
journals tell (how long things take) is told of the newest ones, and is no counter. Labels are agents, models,
tools and closed lists of words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

from lemming.facts.checklist.standing import seconds_since_tick
from lemming.facts.standing import Standing, StatusLine, standing_of
from lemming.kernel.base.errors import code_of
from lemming.kernel.base.version import __version__
from lemming.kernel.journal.file import begun_journals, is_committed, read_journal
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.records import ModelReplied, ToolFinished, TurnEnded
from lemming.kernel.journal.report import STATUSES, Why
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.shipped import JUDGES

RECENT_TICKS, RECENT_ANSWERS = 20, 200
"""How long things take is told of so many journals, or of fewer that have so many answers."""

QUANTILES = (0.5, 0.9, 1.0)

_COUNTERS: Mapping[str, tuple[str, Callable[[AgentState], float | int | None]]] = {
    "lemming_turns_total": ("Turns of the agent that were done.", lambda it: it.turns),
    "lemming_failed_turns_total": ("Turns of the agent that failed.", lambda it: it.failed),
    "lemming_credits_total": ("Credits the agent has spent.", lambda it: it.credits),
    "lemming_judging_credits_total": (
        "Of the credits, those of judges.",
        lambda it: it.aside.get(JUDGES, 0.0),
    ),
    "lemming_credits_passed_on_total": (
        "Credits that agents it created got out of its own.",
        lambda it: it.passed_on,
    ),
    "lemming_cost_dollars_total": (
        "What the agent's calls cost, as far as prices are known.",
        lambda it: it.cost_usd,
    ),
    "lemming_unpriced_calls_total": (
        "Calls of models whose price is not known.",
        lambda it: it.unpriced_calls,
    ),
    "lemming_input_tokens_total": ("Tokens sent to models.", lambda it: it.input_tokens),
    "lemming_output_tokens_total": ("Tokens that models wrote.", lambda it: it.output_tokens),
}


def metrics_of(org: Organisation) -> str:
    """Return the metrics as Prometheus reads them. Raises as `standing_of`."""
    return text_of(families_of(org))


def families_of(org: Organisation) -> Iterator[Family]:
    """Yield the metrics. Raises as `standing_of`."""
    found = standing_of(org)
    yield Family("lemming_info", "gauge", "The version that looks.", [({"version": __version__}, 1)])
    yield from _of_engine(org, found)
    yield from _of_agents(found)
    yield from _of_last_tick(found)
    yield from org.own(_Recent).families()


def _of_engine(org: Organisation, found: Standing) -> Iterator[Family]:
    age, is_up = seconds_since_tick(org), found.engine is not None
    yield _gauge("lemming_tick", "The tick that runs next.", found.tick)
    yield _gauge("lemming_engine_up", "Whether an engine runs here.", int(is_up))
    about = "Whether a tick was interrupted and nobody goes on with it."
    yield _gauge("lemming_interrupted", about, int(found.is_interrupted and not is_up))
    about = "How long ago the tick counter moved."
    yield _gauge("lemming_last_tick_age_seconds", about, None if age is None else round(age, 3))
    yield _gauge("lemming_troubles", "Things that a person should see to.", len(found.troubles))
    yield _gauge("lemming_waiting", "What waits for a person.", len(found.waiting))


def _gauge(name: str, about: str, value: float | int | None) -> Family:
    return Family(name, "gauge", about, [] if value is None else [({}, value)])


def _of_agents(found: Standing) -> Iterator[Family]:
    counts: list[Sample] = [
        ({"state": why}, sum(line.why == why for line in found.lines)) for why in get_args(Why)
    ]
    about = "Agents by whether they take a turn in the next tick, and why not."
    yield Family("lemming_agents", "gauge", about, counts)
    keys: list[Sample] = [({"agent": line.agent, "model_key": line.model}, 1) for line in found.lines]
    yield Family("lemming_agent_info", "gauge", "The model key of the agent's resume.", keys)
    troubled = found.in_trouble
    trouble = _samples((line.agent, int(line.agent in troubled)) for line in found.lines)
    yield Family("lemming_agent_trouble", "gauge", "Whether it fails or is out of service.", trouble)
    limits = _samples((line.agent, line.max_credits) for line in found.lines)
    yield Family("lemming_credits_limit", "gauge", "Credits the agent may spend in all.", limits)
    for name, (about, total) in _COUNTERS.items():
        totals = ((line.agent, total(line.state)) for line in found.lines if _is_known(line))
        yield Family(name, "counter", about, _samples(totals))


def _is_known(line: StatusLine) -> bool:
    """Return whether the agent's ledger was read: totals of nothing would count as a new beginning."""
    return not line.problem or line.state.tick >= 0


def _samples(values: Iterable[tuple[str, float | int | None]]) -> list[Sample]:
    return [({"agent": agent}, amount) for agent, amount in values if amount is not None]


def _of_last_tick(found: Standing) -> Iterator[Family]:
    if found.last is None:
        return
    totals, about = found.last.totals, "of the last tick in which somebody took one"
    turns: list[Sample] = [({"status": status}, totals[status]) for status in STATUSES]
    yield Family("lemming_last_tick_turns", "gauge", f"Turns {about}.", turns)
    for key in ("calls", "entries", "credits"):
        yield _gauge(f"lemming_last_tick_{key}", f"The {key} of those turns.", totals[key])


class _Recent:
    """How long answers and calls of tools took in the newest ticks. A tick that is over is read once."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._read: dict[int, _Durations] = {}

    def families(self) -> Iterator[Family]:
        """Return the quantiles by model and by tool."""
        answers: dict[str, list[int]] = defaultdict(list)
        calls: dict[str, list[int]] = defaultdict(list)
        used, errors, ends = Counter[tuple[str, str]](), Counter[str](), Counter[tuple[str, str]]()
        for durations in self._newest():
            used.update(durations.used)
            errors.update(durations.errors)
            ends.update(durations.ends)
            for kept, found in ((answers, durations.answers), (calls, durations.calls)):
                for name, took in found:
                    kept[name].append(took)
        span = "in the newest ticks"
        yield _summary(
            "lemming_model_call_duration_seconds", f"How long answers took {span}.", "model", answers
        )
        yield _summary("lemming_tool_call_duration_seconds", f"How long calls took {span}.", "tool", calls)
        yield Family(
            "lemming_recent_tool_calls",
            "gauge",
            f"Calls of tools and of the team {span}, by how they ended.",
            [({"tool": tool, "outcome": end}, count) for (tool, end), count in sorted(used.items())],
        )
        yield Family(
            "lemming_recent_turns",
            "gauge",
            f"Turns that were taken {span}, by status and by how they ended (docs/strategies.md).",
            [({"status": status, "end": end}, count) for (status, end), count in sorted(ends.items())],
        )
        yield Family(
            "lemming_recent_errors",
            "gauge",
            f"Turns that an error ended {span}, by its code (docs/TROUBLESHOOTING.md).",
            [({"code": code}, count) for code, count in sorted(errors.items())],
        )

    def _newest(self) -> Iterator[_Durations]:
        ticks = begun_journals(self._org, RECENT_TICKS)
        self._read = {tick: read for tick, read in self._read.items() if tick in ticks}
        answers = 0
        for tick in reversed(ticks):
            if answers >= RECENT_ANSWERS:
                return
            durations = self._read.get(tick) or _Durations(self._org, tick)
            if is_committed(self._org, tick):
                self._read[tick] = durations
            answers += len(durations.answers)
            yield durations


class _Durations:
    """How long the answers of one tick took, by model, and its calls of tools, by tool; in milliseconds.

    `used`: how calls of tools and of the team ended; `errors`: the codes of what ended turns; `ends`: the
    status of each turn that was taken, and how it ended.
    """

    def __init__(self, org: Organisation, tick: int) -> None:
        self.answers: list[tuple[str, int]] = []
        self.calls: list[tuple[str, int]] = []
        self.used: list[tuple[str, str]] = []
        self.errors: list[str] = []
        self.ends: list[tuple[str, str]] = []
        for record in read_journal(org, tick):
            match record:
                case ModelReplied():
                    self.answers.append((record.model, record.duration_ms))
                case ToolFinished():
                    self.calls.append((record.tool, record.duration_ms))
                case TurnEnded():
                    self.used += [(it["tool"], it.get("outcome") or "") for it in record.report.tools]
                    if record.report.status != "skipped":
                        self.ends.append((record.report.status, record.report.end or record.report.status))
                    self.errors += [code_of(record.report.error)] if record.report.error else []


def _summary(name: str, about: str, label: str, found: Mapping[str, list[int]]) -> Family:
    samples: list[Sample] = [
        ({label: key, "quantile": str(quantile)}, _quantile(sorted(found[key]), quantile) / 1000)
        for key in sorted(found)
        for quantile in QUANTILES
    ]
    return Family(name, "summary", about, samples)


def _quantile(ascending: list[int], quantile: float) -> int:
    """Return the smallest value that so large a part of them is not larger than.

    >>> [_quantile([1, 2, 3, 4], part) for part in (0.5, 0.9, 1.0)]
    [2, 4, 4]
    """
    place = -(-len(ascending) * quantile // 1) - 1  # rounded up
    return ascending[max(0, int(place))]


# --- Prometheus's text format --------------------------------------------------------------------
# prometheus.io, "Exposition formats", version 0.0.4.


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_IN_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_IN_LABEL = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})

Sample = tuple[Mapping[str, str], float | int]


class Family(NamedTuple):
    """Samples of one name, each with its labels; `help` is a sentence."""

    name: str
    type: Literal["counter", "gauge", "summary"]
    help: str
    samples: Iterable[Sample]


def text_of(families: Iterable[Family]) -> str:
    r"""Return families as the text that Prometheus reads; one without samples is left out.

    >>> print(text_of([Family("a_total", "counter", "How many.", [({"b": 'x"y'}, 3)])]), end="")
    # HELP a_total How many.
    # TYPE a_total counter
    a_total{b="x\"y"} 3
    """
    lines = []
    for family in families:
        samples = [_line(family.name, *sample) for sample in family.samples]
        if samples:
            lines.append(f"# HELP {family.name} {family.help.translate(_IN_HELP)}")
            lines += [f"# TYPE {family.name} {family.type}", *samples]
    return "".join(f"{line}\n" for line in lines)


def _line(name: str, labels: Mapping[str, str], value: float | int) -> str:
    shown = ",".join(f'{key}="{text.translate(_IN_LABEL)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value!r}" if shown else f"{name} {value!r}"
