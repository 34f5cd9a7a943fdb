"""`lemming export`: what other programs can read of an organisation's agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from lemming.agents import RESUME_LIMIT_BYTES, survey_agents
from lemming.commands.options import AnyAgentName, AsJson, noun
from lemming.commands.org import find_agent, find_org
from lemming.commands.screen import show, show_json, show_pretty, tell
from lemming.commands.trust import load_settings
from lemming.exchange.a2a import card_of, description_in
from lemming.files import fs
from lemming.files.jsontext import parse, pretty
from lemming.organisation import Organisation
from lemming.paths import resume_file
from lemming.skills.finding import skills_of
from lemming.tick.plan import takes_turns

CARD_FILE = "agent-card.json"
NO_SERVER = "https://localhost/agents"

app = noun("Tell of agents in the form of other programs.")


@app.command("a2a")
def export_a2a(
    ctx: typer.Context,
    agent: AnyAgentName = None,
    url: Annotated[
        str,
        typer.Option(
            "--url", metavar="URL", help="Where an A2A server answers; /NAME is added for each of several."
        ),
    ] = "",
    binding: Annotated[
        Literal["JSONRPC", "GRPC", "HTTP+JSON"],
        typer.Option("--binding", metavar="NAME", help="JSONRPC, GRPC or HTTP+JSON."),
    ] = "JSONRPC",
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", help=f"Write NAME/{CARD_FILE} for each into this folder."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the A2A agent card (version 1.0) of an agent, or of all: name, title, description, skills.

    Of several, a list. A card is for strangers: it holds no instructions and no permissions. LeMMing has no
    A2A server of its own: the address is that of yours.

    \b
    Examples:
      lemming export a2a editor --url https://agents.example.org/editor
      lemming export a2a --output public
    """
    base = find_org(ctx)
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
    if as_json and output is None:
        for name, card in cards.items():
            show_json("agent_card", {"agent": name, "card": card})
        return
    if output is None:
        show_pretty(cards[names[0]] if agent else list(cards.values()))
        return
    folder = output.expanduser().absolute()
    fs.make_root(folder)
    for name, card in cards.items():
        fs.publish(folder, f"{name}/{CARD_FILE}", pretty(card), is_org=False)
        file = str(folder / name / CARD_FILE)
        if as_json:
            show_json("agent_card", {"agent": name, "card": card, "file": file})
        else:
            show(file)


def _card(base: Organisation, name: str, url: str, binding: str) -> dict[str, Any]:
    survey = survey_agents(base)
    agent = survey.agents[name]
    resume = parse(fs.read_bytes(base / resume_file(name), RESUME_LIMIT_BYTES), allow_bom=True)
    return card_of(
        agent,
        skills_of(agent, base).by_name.values() if agent.skills else (),
        description=description_in(resume),
        version=survey.digests[name][:12],
        url=url,
        binding=binding,
    )
