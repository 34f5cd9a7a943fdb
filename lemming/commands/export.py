"""`lemming export`: agents and traces in the formats of other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from lemming.commands.command_context import AnyAgentName, CommandContext, find_agent, make_command_group, option
from lemming.commands.events import Follow, Ticks, select_journals
from lemming.commands.terminal import (
    format_count,
    one_line,
    print_data,
    print_json,
    print_notice,
    print_pretty_json,
    print_raw_json,
    print_text,
    print_warning,
)
from lemming.commands.trust import load_settings
from lemming.import_export.org_export import export_org
from lemming.import_export.template_files import load_template
from lemming.kernel.agents import RESUME_LIMIT_BYTES, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import NotSent, UsageError
from lemming.kernel.base.jsontext import dump_compact, dump_pretty, parse
from lemming.kernel.base.redaction.secrets import redact_json, strip_userinfo
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.libraries.output_files import create_output, without_secrets, write_output

if TYPE_CHECKING:
    from lemming.telemetry.otlp import Collector

A2A_VERSION = "1.0"
"""Version of the protocol for agent cards: a2aproject/A2A, `specification/a2a.proto`."""
CARD_FILE = "agent-card.json"
NO_SERVER = "https://localhost/agents"

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


@app.subcommand("a2a")
def export_a2a(
    context: CommandContext,
    agent: AnyAgentName = None,
    url: Annotated[
        str, option("--url URL", "URL of the A2A server; /NAME is appended when there are several agents.")
    ] = "",
    binding: Annotated[
        Literal["JSONRPC", "GRPC", "HTTP+JSON"],
        option("--binding NAME", "Protocol binding: JSONRPC, GRPC or HTTP+JSON."),
    ] = "JSONRPC",
    output: Annotated[
        Path | None, option("--output DIR", f"Write NAME/{CARD_FILE} for each agent into this folder.")
    ] = None,
) -> None:
    """Print A2A agent cards (version 1.0). A card holds name, title, description and skills.

    Several cards are printed as a list. A card is public: it contains no instructions and no permissions.
    LeMMing has no A2A server: --url is the address of your server.

    \b
    Examples:
      lemming export a2a editor --url https://agents.example.org/editor
      lemming export a2a --output public
    """
    base = context.org
    config = load_settings(base)
    agents = survey_agents(base).agents
    speakers = [name for name, other in agents.items() if config.has_model_turns(other)]
    names = [find_agent(base, agent).name] if agent else speakers
    root = (url or NO_SERVER).rstrip("/")
    base_url = "" if agent and url else "/{}"
    cards = {name: _build_agent_card(base, name, root + base_url.format(name), binding) for name in names}
    if not url:
        print_warning(f"the address {NO_SERVER} is a placeholder: set your server with --url")
    if output is None:
        for name, card in cards.items():
            print_json("agent_card", {"agent": name, "card": card})
        print_pretty_json(cards[names[0]] if agent else list(cards.values()))
        return
    folder = output.expanduser().absolute()
    fs.make_root(folder)
    for name, card in cards.items():
        write_output(folder, f"{name}/{CARD_FILE}", without_secrets(card, dump_pretty))
        file = str(folder / name / CARD_FILE)
        print_json("agent_card", {"agent": name, "card": card, "file": file})
        print_data(file)


def _build_agent_card(base: Organisation, name: str, url: str, binding: str) -> dict[str, Any]:
    """Build an agent's card; an agent without skills gets the skill "answer"."""
    survey = survey_agents(base)
    agent = survey.agents[name]
    skills: Iterable[_CardSkill] = ()
    if "skills" in agent.extensions:
        skills = list_skills(agent, base) if (list_skills := find_fact("skills.of_agent")) else ()
    resume = parse(fs.read_bytes(base / paths.resume_file(name), RESUME_LIMIT_BYTES), allow_bom=True)
    title = agent.title or name
    description = _extract_description(resume) or title
    modes = ["text/plain", "application/json"]
    answer_skill = {"id": "answer", "name": title, "description": description, "tags": ["answer"]}
    return {
        "name": title,
        "description": description,
        "supportedInterfaces": [{"url": url, "protocolBinding": binding, "protocolVersion": A2A_VERSION}],
        "version": survey.digests[name][:12],
        "capabilities": {"streaming": False, "pushNotifications": False},
        "defaultInputModes": modes,
        "defaultOutputModes": modes,
        "skills": [_build_card_skill(skill) for skill in skills if not skill.is_hidden_from_models] or [answer_skill],
    }


def _extract_description(resume: dict[str, Any]) -> str:
    """Return the agent's description kept by an importer in the resume, or an empty string."""
    for key, extension in resume.items():
        if not key.startswith("x-") or not isinstance(extension, dict):
            continue
        for block in (extension, extension.get("agent")):
            text = block.get("description") if isinstance(block, dict) else None
            if isinstance(text, str) and text.strip():
                return " ".join(text.split())
    return ""


class _CardSkill(Protocol):
    """A skill as far as a card shows it."""

    name: str
    description: str
    keys: Mapping[str, Any]
    is_hidden_from_models: bool


def _build_card_skill(skill: _CardSkill) -> dict[str, Any]:
    metadata = skill.keys.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    tag_names = [str(tag) for tag in tags] if isinstance(tags, list) else []
    title = skill.name.replace("-", " ").capitalize()
    return {"id": skill.name, "name": title, "description": skill.description, "tags": tag_names or [skill.name]}


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
