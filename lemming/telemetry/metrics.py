"""Metrics of an organisation, from ledgers and newest journals.

Counters are totals of the ledgers: they survive restarts and the removal of journals. Durations exist in journals only;
they cover the newest journals, and are not counters. Labels are agents, models, tools and closed lists of words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Literal, NamedTuple, get_args

from lemming.kernel.base.errors import error_code
from lemming.kernel.base.version import __version__
from lemming.kernel.journal.turn_report import STATUSES, ReasonCode, TurnReport
from lemming.kernel.org.organisation import Organisation
from lemming.queries.checks.health_checks import seconds_since_tick
from lemming.queries.org_status import OrgStatus, load_org_status
from lemming.queries.screens.status_screen import STATUS
from lemming.read_model.tick_facts import TurnFacts, corrupt_facts_error
from lemming.read_model.tick_queries import load_newest_ticks

RECENT_TICKS, RECENT_ANSWERS = 20, 200
"""Number of journals for durations, or fewer if they hold as many answers."""

QUANTILES = (0.5, 0.9, 1.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The form of `render_metrics`: prometheus.io, "Exposition formats"."""


def render_metrics(org: Organisation) -> str:
    """Return the metrics in the Prometheus text format. Raises as `load_org_status` does."""
    return render_text(iter_families(org))


def iter_families(org: Organisation) -> Iterator[MetricFamily]:
    """Yield the metrics. Raises as `load_org_status` does."""
    status = load_org_status(org)
    yield MetricFamily("lemming_info", "gauge", "Version of LeMMing.", [({"version": __version__}, 1)])
    yield from _iter_engine_metrics(org, status)
    yield from _iter_agent_metrics(status)
    yield from _iter_last_tick_metrics(status)
    yield from _iter_recent_metrics(org)


def _iter_engine_metrics(org: Organisation, status: OrgStatus) -> Iterator[MetricFamily]:
    age, is_up = seconds_since_tick(org), status.engine is not None
    for name, about, value in (
        ("tick", "Number of the next tick.", status.tick),
        ("engine_up", "1 while an engine runs.", int(is_up)),
        ("interrupted", "1 while a tick is interrupted and no engine runs.", int(status.is_interrupted and not is_up)),
        ("last_tick_age_seconds", "Seconds since the last tick.", None if age is None else round(age, 3)),
        ("troubles", "Problems that need a person.", len(status.issues)),
        ("waiting", "Items that wait for a person.", len(status.waiting)),
    ):
        yield MetricFamily(f"lemming_{name}", "gauge", about, [] if value is None else [({}, value)])


def _iter_agent_metrics(status: OrgStatus) -> Iterator[MetricFamily]:
    counts: list[Sample] = [
        ({"state": reason_code}, sum(line.reason_code == reason_code for line in status.agent_statuses))
        for reason_code in get_args(ReasonCode)
    ]
    about = "Agents by whether they take a turn in the next tick, or the reason why not."
    yield MetricFamily("lemming_agents", "gauge", about, counts)
    keys: list[Sample] = [({"agent": line.agent, "model_key": line.model}, 1) for line in status.agent_statuses]
    yield MetricFamily("lemming_agent_info", "gauge", "The model key of the agent's resume.", keys)
    troubled = status.issue_subjects
    trouble = _make_samples((line.agent, int(line.agent in troubled)) for line in status.agent_statuses)
    yield MetricFamily("lemming_agent_trouble", "gauge", "1 while the agent fails or its resume is broken.", trouble)
    limits = _make_samples((line.agent, line.max_credits) for line in status.agent_statuses)
    yield MetricFamily("lemming_credits_limit", "gauge", "Credit limit of the agent.", limits)
    for column in STATUS.columns:
        if column.metric:
            totals = ((line.agent, column.get(line)) for line in status.agent_statuses if line.has_ledger)
            yield MetricFamily(column.metric, "counter", column.about, _make_samples(totals))


def _make_samples(values: Iterable[tuple[str, float | int | None]]) -> list[Sample]:
    return [({"agent": agent}, amount) for agent, amount in values if amount is not None]


def _iter_last_tick_metrics(org_status: OrgStatus) -> Iterator[MetricFamily]:
    if org_status.last_commit is None:
        return
    totals, about = org_status.last_commit.totals, "of the last tick in which somebody took one"
    turns: list[Sample] = [({"status": status}, totals[status]) for status in STATUSES]
    yield MetricFamily("lemming_last_tick_turns", "gauge", f"Turns {about}.", turns)
    for key in ("calls", "entries", "credits"):
        yield MetricFamily(f"lemming_last_tick_{key}", "gauge", f"The {key} of those turns.", [({}, totals[key])])


def _iter_recent_metrics(org: Organisation) -> Iterator[MetricFamily]:
    """Yield quantiles by model and by tool, and counts of outcomes, of the newest ticks."""
    answers: dict[str, list[int]] = defaultdict(list)
    calls: dict[str, list[int]] = defaultdict(list)
    used, errors, ends = Counter[tuple[str, ...]](), Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for turn in _load_recent_turns(org):
        for durations_by_name, samples in ((answers, turn.answer_times), (calls, turn.tool_times)):
            for name, duration_ms in samples:
                durations_by_name[name].append(duration_ms)
        if turn.report:
            report = TurnReport.from_json(turn.report)
            used.update((use["tool"], use.get("outcome") or "") for use in report.tools)
            errors.update([(error_code(report.error),)] if report.error else [])
            ends.update([(report.status, report.end or report.status)] if report.status != "skipped" else [])
    span = "in the newest ticks"
    yield _make_summary("lemming_model_call_duration_seconds", f"How long answers took {span}.", "model", answers)
    yield _make_summary("lemming_tool_call_duration_seconds", f"How long calls took {span}.", "tool", calls)
    for name, about, labels, counts in (
        ("tool_calls", f"Calls of tools and of the team {span}, by how they ended.", ("tool", "outcome"), used),
        (
            "turns",
            f"Turns that were taken {span}, by status and by how they ended (docs/plans.md).",
            ("status", "end"),
            ends,
        ),
        ("errors", f"Turns that an error ended {span}, by its code (docs/TROUBLESHOOTING.md).", ("code",), errors),
    ):
        totals: list[Sample] = [(dict(zip(labels, key, strict=True)), counts[key]) for key in sorted(counts)]
        yield MetricFamily(f"lemming_recent_{name}", "gauge", about, totals)


def _load_recent_turns(org: Organisation) -> Iterator[TurnFacts]:
    """Yield the turns of the newest ticks, newest first, until there are enough answers."""
    answers = 0
    for tick in reversed(load_newest_ticks(org, RECENT_TICKS)):
        if tick.problem:
            raise corrupt_facts_error(tick)
        if answers >= RECENT_ANSWERS:
            return
        answers += sum(len(turn.answer_times) for turn in tick.turns.values())
        yield from tick.turns.values()


def _make_summary(name: str, about: str, label: str, durations_by_label: Mapping[str, list[int]]) -> MetricFamily:
    samples: list[Sample] = [
        ({label: key, "quantile": str(quantile)}, _compute_quantile(sorted(durations_by_label[key]), quantile) / 1000)
        for key in sorted(durations_by_label)
        for quantile in QUANTILES
    ]
    return MetricFamily(name, "summary", about, samples)


def _compute_quantile(ascending: list[int], quantile: float) -> int:
    """Return the smallest value with at least the given share of values not above it.

    >>> [_compute_quantile([1, 2, 3, 4], part) for part in (0.5, 0.9, 1.0)]
    [2, 4, 4]
    """
    position = -(-len(ascending) * quantile // 1) - 1  # rounded up
    return ascending[max(0, int(position))]


Sample = tuple[Mapping[str, str], float | int]


class MetricFamily(NamedTuple):
    """Samples of a metric name, each with labels; `help` is a sentence."""

    name: str
    type: Literal["counter", "gauge", "summary"]
    help: str
    samples: Iterable[Sample]


def render_text(families: Iterable[MetricFamily]) -> str:
    """Return metric families with samples in the Prometheus text format.

    >>> print(render_text([MetricFamily("a_total", "counter", "How many.", [({"b": "x"}, 3)])]), end="")
    # HELP a_total How many.
    # TYPE a_total counter
    a_total{b="x"} 3.0
    """
    from prometheus_client import Metric, generate_latest  # as slow as the rest of the command

    metrics = []
    for family in families:
        metric = Metric(family.name.removesuffix("_total"), family.help, family.type)
        for labels, value in family.samples:
            metric.add_sample(family.name, dict(labels), value)
        if metric.samples:
            metrics.append(metric)
    return str(generate_latest(SimpleNamespace(collect=lambda: metrics)).decode())
