"""`lemming export`: agents, traces and schemas in the formats of other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lemming.commands.command_context import CommandContext, argument, make_command_group, option
from lemming.commands.events import Follow, Ticks, select_journals
from lemming.commands.terminal import (
    format_count,
    one_line,
    print_json,
    print_notice,
    print_pretty_json,
    print_raw_json,
    print_text,
    print_warning,
)
from lemming.import_export.apply_document import load_template
from lemming.import_export.org_export import export_org
from lemming.kernel.base.errors import NotSent, UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redact_json, strip_userinfo
from lemming.libraries.output_files import create_output
from lemming.queries.format_schemas import get_schema

if TYPE_CHECKING:
    from lemming.telemetry.otlp import Collector

app = make_command_group("Export agents and traces for other programs.")


@app.subcommand("org")
def export_org_command(
    context: CommandContext,
    output: Annotated[
        Path | None, option("--output FILE", "Write to this new file instead of standard output.")
    ] = None,
) -> None:
    """Print the organisation as one YAML document for `lemming apply`.

    The document contains agents, models, settings, skills, tools, cases and the texts in shared/, but no
    messages, memories or costs; `lemming backup` keeps everything. Files of an organisation contain no keys.

    \b
    Examples:
      lemming export org > changelog.yaml
    """
    from lemming.import_export.org_export import to_yaml

    document, omitted_paths = export_org(context.org, load_template("empty"))
    document = redact_json(document)  # before it is spelled: a secret may have a quote in it
    text = f"{dump_compact(document).decode()}\n" if context.as_json else to_yaml(document)
    if output is None and context.as_json:
        print_raw_json(document)
    elif output is None:
        print_text(text.rstrip("\n"))
    elif not create_output(output.expanduser().absolute(), text.encode()):
        raise UsageError("the file already exists", where=str(output), hint="name another file")
    for path in omitted_paths:
        print_warning(f"left out, no text or too long: {path}")


@app.subcommand("otel")
def export_otel(
    context: CommandContext,
    ticks: Ticks = None,
    follow: Follow = False,
    post: Annotated[str, option("--endpoint URL", "Send the traces to this collector by OTLP over HTTP.")] = "",
    content: Annotated[bool, option("--include-content", "Include prompts, answers, arguments and results.")] = False,
) -> None:
    """Export ticks as OpenTelemetry traces. They go to standard output or a collector.

    A trace contains the tick, the turns, and their model and tool calls. The output is lines of OTLP/JSON.
    Ids are derived from the content, so sending a tick twice changes nothing. With --follow, each tick is
    sent when it ends; sending is retried while the collector is down. Texts are omitted unless --include-content is
    given. The service name is the folder's name or OTEL_SERVICE_NAME; headers for the collector come from
    OTEL_EXPORTER_OTLP_HEADERS.

    \b
    Examples:
      lemming export otel --ticks 3..9 > traces.jsonl
      lemming export otel --ticks 3..9 --endpoint http://127.0.0.1:4318
      lemming export otel --follow --endpoint http://127.0.0.1:4318
    """
    from lemming.journal_tools.recorded_tick import to_recorded_tick
    from lemming.telemetry.journal_follower import is_finished
    from lemming.telemetry.otlp import Collector, build_requests, get_service_name
    from lemming.telemetry.spans import SpanBuilder

    base = context.org
    service = get_service_name(base.base.name)
    build_spans = SpanBuilder(workflow=service, content=content).build
    with select_journals(base, ticks, follow=follow) as (journals, stop):
        collector = Collector(post, stop=stop, tell=_print_warning, is_patient=follow) if post else None
        totals = _ExportTotals()
        for tick, reading in journals:
            if stop.is_set():
                break
            if not is_finished(reading):
                totals.unfinished = tick
                continue
            spans = build_spans(to_recorded_tick(tick, reading))
            for request in build_requests(spans, service):
                if collector is None:
                    print_raw_json(request)
                else:
                    _send(collector, request, tick, post)
            totals.add_tick(tick, len(spans), as_json=context.as_json and collector is not None)
    totals.print_summary(collector.address if collector else "", follow=follow)


@dataclass
class _ExportTotals:
    """Totals of an export. `unfinished` is the running tick, omitted until the end."""

    spans: int = 0
    ticks: int = 0
    latest: int = -1
    unfinished: int = -1

    def add_tick(self, tick: int, spans: int, *, as_json: bool) -> None:
        self.spans, self.ticks, self.latest = self.spans + spans, self.ticks + 1, tick
        if as_json:
            print_json("traces_sent", {"tick": tick, "spans": spans})

    def print_summary(self, address: str, *, follow: bool) -> None:
        if address and self.ticks:
            print_notice(f"{self.spans} spans of {format_count(self.ticks, 'tick')} sent to {strip_userinfo(address)}")
        if self.unfinished > self.latest:
            print_warning(f"tick {self.unfinished} is unfinished and left out")
        elif not self.ticks and not follow:
            print_notice("no tick has run yet")


def _send(collector: Collector, request: dict[str, Any], tick: int, url: str) -> None:
    """Send part of a tick; errors get a hint to resume the export."""
    try:
        collector.send(request)
    except NotSent as error:
        hint = f"{error.hint}; `lemming export otel --ticks {tick}.. --endpoint {strip_userinfo(url)}` continues"
        raise NotSent(error.message, where=f"tick {tick}", hint=hint) from error


def _print_warning(text: str) -> None:
    print_warning(one_line(text, 400))


FormatName = Literal[
    "resume", "outbox", "memory", "store", "mark", "models", "org", "credits", "calendar", "mcp", "mcp_lock",
    "tick", "plan", "eval", "until", "reply", "journal", "output",
]  # fmt: skip


def schema(context: CommandContext, name: Annotated[FormatName, argument("FORMAT", "Name of the format.")]) -> None:
    """Print the JSON Schema of a file format.

    FORMAT is one of resume, outbox, memory, store, mark, models, org, credits, calendar, mcp, mcp_lock, tick,
    plan, eval, until (the goal of a request), reply (a model's reply), journal (a journal line) and output (an
    output line of read-only commands with --json). With --json, the schema is printed on one line.

    \b
    Example:
      lemming export schema resume > resume.schema.json
    """
    document = get_schema({"output": "shown", "reply": "turn"}.get(name, name))
    if context.as_json:
        print_raw_json(document)
    print_pretty_json(document)
