"""Plugins as the pages of 0.2.0 printed them, and a channel that uses many old names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from lemming.capabilities.channels.channel import Channel, ChannelContext, Message, Outgoing, Soon
from lemming.capabilities.gates.checks import Found, check
from lemming.journal.events import Event, observer
from lemming.journal.records import TurnCommitted
from lemming.providers import LLMProvider, register_provider
from lemming.strategies import Called, Steps, Turn, strategy
from lemming.tools import Tool, ToolContext, ToolRegistry, ToolResult, tool

SEEN: list[str] = []


@dataclass(frozen=True)
class Options:
    drafts: int = 2


@strategy("best_of", options=Options)
def best_of(turn: Turn) -> Steps:
    """Ask for several drafts, and act on what the model makes of them."""
    drafts = []
    for _ in range(turn.options.drafts):
        drafts.append((yield from turn.ask(turn.prompt)).text)
    messages = turn.prompt + [  # noqa: RUF005
        {"role": "user", "content": "Your drafts:\n" + "\n".join(drafts) + "\nReply with the best."}
    ]
    yield from turn.act((yield from turn.reply(messages)))
    called: Called = yield from turn.call("weekday", {"day": "2026-11-26"})
    path: Called = yield from turn.call("where", {"path": "./workspace/x"})
    turn.leave(f"{called.output} {path.output} {turn.is_over} {turn.given}")
    return "done"


@check
def no_prices(seen: dict) -> str | Found | None:
    """Nothing with a price in it leaves the house."""
    return Found("it names a price", "-") if "EUR" in str(seen.get("text")) else None


@observer
def on_turn(event: Event) -> None:
    if isinstance(event, TurnCommitted):
        SEEN.append(f"{event.about} {event.report.status}")


class Parrot(LLMProvider):
    def call(self, model_name, messages, temperature, **kwargs) -> str:
        return '{"notes": "' + model_name + ' has nothing to say"}'


register_provider("parrot", Parrot)


class Weekday(Tool):
    name = "weekday"
    description = "Tells the day of the week of a date."
    repeatable = True  # may be run again after a crash: it changes nothing

    def execute(
        self, agent_name: str, base_path: Path, day: Annotated[str, Field(description="YYYY-MM-DD")]
    ) -> ToolResult:
        return ToolResult(True, date.fromisoformat(day).strftime("%A"))

    def reads(self, agent: Any, org: Any) -> Mapping[str, str]:
        return {**super().reads(agent, org), "shared/days": "tool weekday"}


ToolRegistry.register(Weekday())


@tool(tool_class="read", repeatable=True, process=False)
def where(ctx: ToolContext, path: str) -> str:
    """Tell where a path leads."""
    return str(ctx.place(path))


class Door(Channel):
    """Takes in one message, and notes what goes out."""

    def collect(self, context: ChannelContext) -> Soon:
        if not context.own_entries() and context.room(1):
            context.write_next(Message(id="1", text="knock"))
        return Soon(again_s=60.0)

    def deliver(self, context: ChannelContext, outgoing: Outgoing) -> None:
        SEEN.append(f"out: {outgoing.text} {outgoing.asked}")

    def arrived(self, base: Path) -> list[str]:
        return ["1"]


register_provider("door", Door)
