"""`lemming export`: what other programs can read of an organisation's agents, and of what they did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lemming.commands.events import Follow, Ticks, journals_meant
from lemming.commands.options import AnyAgentName, Here, find_agent, noun, option
from lemming.commands.screen import (
    counted,
    one_line,
    show,
    show_as_it_is,
    show_json,
    show_pretty,
    show_text,
    tell,
)
from lemming.commands.trust import load_settings
from lemming.exchange.template import template_files
from lemming.exchange.whole_org import document_of_org
from lemming.kernel.agents import RESUME_LIMIT_BYTES, survey_agents
from lemming.kernel.base.errors import NotSent, UsageError
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.base.paths import resume_file
from lemming.kernel.base.redaction.secrets import redact_json, without_userinfo
from lemming.kernel.files import fs
from lemming.kernel.files.outputs import create_output, put_output, without_secrets
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.firing_plan import takes_turns

if TYPE_CHECKING:
    from lemming.capabilities.skills.skill import Skill
    from lemming.telemetry.send_traces import Collector

A2A_VERSION = "1.0"
"""Of the protocol whose agent cards are written: a2aproject/A2A, `specification/a2a.proto`."""
CARD_FILE = "agent-card.json"
NO_SERVER = "https://localhost/agents"

app = noun("Tell of agents, and of what they did, in the form of other programs.")


@app.verb("org")
def export_org(
    here: Here,
    output: Annotated[Path | None, option("--output FILE", "Write it there; not over a file.")] = None,
) -> None:
    """Print the organisation as one file, in YAML, which `lemming apply` takes: an idea to send to somebody.

    Agents, models, settings, skills, tools, cases and the texts in shared/ are in it; what was said,
    remembered and spent is not: `lemming backup` keeps all. Keys are in no file of an organisation.

    \b
    Examples:
      lemming export org > changelog.yaml
    """
    from lemming.exchange.whole_org import yaml_of

    document, left = document_of_org(here.org, template_files("empty"))
    document = redact_json(document)  # before it is spelled: a secret may have a quote in it
    text = pretty(document).decode() if here.as_json else yaml_of(document)
    if output is None:
        show_text(text.rstrip("\n"))
    elif not create_output(output.expanduser().absolute(), text.encode()):
        raise UsageError("it is there already", where=str(output), hint="name another file")
    for path in left:
        tell(f"left out, no text or too long: {path}", style="yellow")


@app.verb("a2a")
def export_a2a(
    here: Here,
    agent: AnyAgentName = None,
    url: Annotated[
        str, option("--url URL", "Where an A2A server answers; /NAME is added for each of several.")
    ] = "",
    binding: Annotated[
        Literal["JSONRPC", "GRPC", "HTTP+JSON"], option("--binding NAME", "JSONRPC, GRPC or HTTP+JSON.")
    ] = "JSONRPC",
    output: Annotated[
        Path | None, option("--output DIR", f"Write NAME/{CARD_FILE} for each into this folder.")
    ] = None,
) -> None:
    """Print the A2A agent card (version 1.0) of an agent, or of all: name, title, description, skills.

    Of several, a list. A card is for strangers: it holds no instructions and no permissions. LeMMing has no
    A2A server of its own: the address is that of yours.

    \b
    Examples:
      lemming export a2a editor --url https://agents.example.org/editor
      lemming export a2a --output public
    """
    base = here.org
    config = load_settings(base)
    found = survey_agents(base).agents
    names = (
        [find_agent(base, agent).name]
        if agent
        else [n for n, each in found.items() if takes_turns(each, config)]
    )
    root = (url or NO_SERVER).rstrip("/")
    cards = {name: _card(base, name, root if agent and url else f"{root}/{name}", binding) for name in names}
    if not url:
        tell(f"nothing answers at {NO_SERVER}: name your server with --url", style="yellow")
    if here.as_json and output is None:
        for name, card in cards.items():
            show_json("agent_card", {"agent": name, "card": card})
        return
    if output is None:
        show_pretty(cards[names[0]] if agent else list(cards.values()))
        return
    folder = output.expanduser().absolute()
    fs.make_root(folder)
    for name, card in cards.items():
        put_output(folder, f"{name}/{CARD_FILE}", without_secrets(card, pretty))
        file = str(folder / name / CARD_FILE)
        if not here.shows("agent_card", {"agent": name, "card": card, "file": file}):
            show(file)


def _card(base: Organisation, name: str, url: str, binding: str) -> dict[str, Any]:
    """Return an agent's card; one without skills has one: answering what it is asked."""
    survey = survey_agents(base)
    agent = survey.agents[name]
    skills: Iterable[Skill] = ()
    if "skills" in agent.further:
        from lemming.capabilities.skills.loading import skills_of  # who has none does without

        skills = skills_of(agent, base).by_name.values()
    resume = parse(fs.read_bytes(base / resume_file(name), RESUME_LIMIT_BYTES), allow_bom=True)
    title = agent.title or name
    about = _description_in(resume) or title
    modes = ["text/plain", "application/json"]
    answers = {"id": "answer", "name": title, "description": about, "tags": ["answer"]}
    return {
        "name": title,
        "description": about,
        "supportedInterfaces": [{"url": url, "protocolBinding": binding, "protocolVersion": A2A_VERSION}],
        "version": survey.digests[name][:12],
        "capabilities": {"streaming": False, "pushNotifications": False},
        "defaultInputModes": modes,
        "defaultOutputModes": modes,
        "skills": [_skill(skill) for skill in skills if not skill.is_for_people] or [answers],
    }


def _description_in(resume: dict[str, Any]) -> str:
    """Return what a resume says an agent is for: what an importer kept; empty where nothing does."""
    for key, kept in resume.items():
        if not key.startswith("x-") or not isinstance(kept, dict):
            continue
        for block in (kept, kept.get("agent")):
            found = block.get("description") if isinstance(block, dict) else None
            if isinstance(found, str) and found.strip():
                return " ".join(found.split())
    return ""


def _skill(skill: Skill) -> dict[str, Any]:
    metadata = skill.keys.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    words = [str(tag) for tag in tags] if isinstance(tags, list) else []
    return {
        "id": skill.name,
        "name": skill.name.replace("-", " ").capitalize(),
        "description": skill.description,
        "tags": words or [skill.name],
    }


@app.verb("otel")
def export_otel(
    here: Here,
    ticks: Ticks = None,
    follow: Follow = False,
    post: Annotated[str, option("--post URL", "Send them to this collector, OTLP over HTTP.")] = "",
    content: Annotated[bool, option("--content", "With prompts, answers, arguments and results.")] = False,
) -> None:
    """Print ticks as traces of OpenTelemetry, or send them to a collector: the tick, its turns, and what each
    asked its model and called.

    Printed are lines of OTLP/JSON. The ids are made of what the traces tell, so sending a tick twice changes
    nothing. With --follow each tick is sent when it is over; a collector that is down is asked until it takes
    it. Texts are left out unless --content asks for them. The traces have the folder's name, or that in
    OTEL_SERVICE_NAME; headers for the collector are those in OTEL_EXPORTER_OTLP_HEADERS.

    \b
    Examples:
      lemming export otel --ticks 3..9 > traces.jsonl
      lemming export otel --ticks 3..9 --post http://127.0.0.1:4318
      lemming export otel --follow --post http://127.0.0.1:4318
    """
    from lemming.telemetry.otlp import requests_of, service_name
    from lemming.telemetry.readings import is_over
    from lemming.telemetry.send_traces import Collector
    from lemming.telemetry.sources import Sources
    from lemming.telemetry.spans import Spans
    from lemming.timeline.record import recorded_in

    base = here.org
    service = service_name(base.base.name)
    spans_of = Spans(Sources(base), workflow=service, content=content).of
    with journals_meant(base, ticks, follow=follow) as (journals, stop):
        collector = Collector(post, stop=stop, tell=_warn, is_patient=follow) if post else None
        sent = _Sent()
        for tick, reading in journals:
            if stop.is_set():
                break
            if not is_over(reading):
                sent.unfinished = tick
                continue
            spans = spans_of(recorded_in(tick, reading))
            for request in requests_of(spans, service):
                if collector is None:
                    show_as_it_is(request)
                else:
                    _send(collector, request, tick, post)
            sent.note(tick, len(spans), as_json=here.as_json and collector is not None)
    sent.tell(collector.address if collector else "", follow=follow)


@dataclass
class _Sent:
    """What has been exported; `unfinished`: the tick under way, which is left out until it is over."""

    spans: int = 0
    ticks: int = 0
    latest: int = -1
    unfinished: int = -1

    def note(self, tick: int, spans: int, *, as_json: bool) -> None:
        self.spans, self.ticks, self.latest = self.spans + spans, self.ticks + 1, tick
        if as_json:
            show_json("traces_sent", {"tick": tick, "spans": spans})

    def tell(self, address: str, *, follow: bool) -> None:
        if address and self.ticks:
            tell(f"{self.spans} spans of {counted(self.ticks, 'tick')} sent to {without_userinfo(address)}")
        if self.unfinished > self.latest:
            tell(f"tick {self.unfinished} is not over: it is left out", style="yellow")
        elif not self.ticks and not follow:
            tell("no tick has been run here")


def _send(collector: Collector, request: dict[str, Any], tick: int, url: str) -> None:
    """Send a part of a tick; raise what stands in the way, with how to go on."""
    try:
        collector.send(request)
    except NotSent as error:
        hint = f"{error.hint}; `lemming export otel --ticks {tick}.. --post {without_userinfo(url)}` goes on"
        raise NotSent(error.message, where=f"tick {tick}", hint=hint) from error


def _warn(text: str) -> None:
    tell(one_line(text, 400), style="yellow")
