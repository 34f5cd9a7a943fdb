"""`lemming export`: agents, traces and schemas in the formats of other programs."""

from __future__ import annotations

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

app = make_command_group("Export the organisation, traces, metrics, a report or a schema.")


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
    from lemming.telemetry.spans import build_spans

    base = context.org
    service = get_service_name(base.base.name)
    with select_journals(base, ticks, follow=follow) as (journals, stop):
        collector = (
            Collector(post, stop=stop, tell=lambda text: print_warning(one_line(text, 400)), is_patient=follow)
            if post
            else None
        )
        span_count, tick_count, latest, unfinished = 0, 0, -1, -1  # `unfinished`: the running tick
        for tick, reading in journals:
            if stop.is_set():
                break
            if not is_finished(reading):
                unfinished = tick
                continue
            spans = build_spans(to_recorded_tick(tick, reading), workflow=service, content=content)
            for request in build_requests(spans, service):
                if collector is None:
                    print_raw_json(request)
                else:
                    _send(collector, request, tick, post)
            span_count, tick_count, latest = span_count + len(spans), tick_count + 1, tick
            if collector is not None:
                print_json("traces_sent", {"tick": tick, "spans": len(spans)})
    if collector and tick_count:
        address = strip_userinfo(collector.address)
        print_notice(f"{span_count} spans of {format_count(tick_count, 'tick')} sent to {address}")
    if unfinished > latest:
        print_warning(f"tick {unfinished} is unfinished and left out")
    elif not tick_count and not follow:
        print_notice("no tick has run yet")


def _send(collector: Collector, request: dict[str, Any], tick: int, url: str) -> None:
    """Send part of a tick; errors get a hint to resume the export."""
    try:
        collector.send(request)
    except NotSent as error:
        hint = f"{error.hint}; `lemming export otel --ticks {tick}.. --endpoint {strip_userinfo(url)}` continues"
        raise NotSent(error.message, where=f"tick {tick}", hint=hint) from error


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
