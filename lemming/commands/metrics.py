"""`lemming metrics`: what ledgers and journals say, for Prometheus."""

from __future__ import annotations

import typer

from lemming.commands.options import AsJson
from lemming.commands.org import find_org
from lemming.commands.screen import show_json, show_text
from lemming.telemetry.metrics import families_of, text_of


def metrics(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Print metrics as Prometheus reads them: totals of ledgers, where agents stand, how long things take.

    Totals survive restarts and the removal of journals. For a file that node_exporter's textfile collector
    reads, or served with `lemming serve --metrics`.

    \b
    Examples:
      lemming metrics
      lemming metrics > /var/lib/prometheus/node-exporter/news.prom
      lemming metrics --json | jq 'select(.name == "lemming_credits_total")'
    """
    families = families_of(find_org(ctx))
    if not as_json:
        show_text(text_of(families).rstrip("\n"))
        return
    for family in families:
        for labels, value in family.samples:
            facts = {"name": family.name, "kind": family.type, "labels": dict(labels), "value": value}
            show_json("metric", facts)
