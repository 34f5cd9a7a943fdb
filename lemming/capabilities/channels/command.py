"""The command channel: any program, JSON lines both ways. Protocol: docs/channels.md.

It is run between ticks, to ask for messages, and once for each entry that is to go out, which it gets as a
line on its standard input. What it prints are messages, and what it says of the entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lemming.capabilities.channels.channel import (
    Channel,
    ChannelContext,
    Message,
    Outgoing,
    Soon,
    require_kind,
    require_name,
)
from lemming.capabilities.programs.cli import CliProvider
from lemming.kernel.base.errors import ConfigError, RateLimited, RequestRejected, Unavailable
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.providers import Message as Asked
from lemming.kernel.providers import Request

KEYS = ("type", "id", "text", "from", "kind", "payload")


class CommandChannel(Channel):
    """Runs `command`, a list of words, without a shell, in the surroundings of the `cli` provider."""

    def __init__(
        self,
        *,
        command: list[str],
        to: str = "",
        kind: MessageKind = "request",
        poll: bool = True,
        timeout_s: float = 60.0,
        per_sender_an_hour: int | None = None,
        env: list[str] | None = None,
        cwd: str | None = None,
        base: Path | None = None,
    ) -> None:
        if not command:
            raise ConfigError('option "command": it is empty', hint='"command": ["program", "word"]')
        if timeout_s <= 0:
            raise ConfigError(f'option "timeout_s": expected more than 0, found {timeout_s:g}')
        require_kind(kind)
        require_name(to)
        self.to, self.kind, self._poll, self._timeout_s = to, kind, poll, timeout_s
        self._most = per_sender_an_hour
        self._program = CliProvider(command=command, env=env, cwd=cwd, base=base)

    def collect(self, context: ChannelContext) -> Soon:
        """Run the program without input, and take in the messages it prints."""
        if self._poll:
            self._take_in(context, self._run(context))
        return Soon()

    def deliver(self, context: ChannelContext, outgoing: Outgoing) -> None:
        """Run the program with one entry. Exit status 0 says that it has it, but for a line that says no."""
        line = compact({"type": "entry", "key": outgoing.key, **_envelope(outgoing)}).decode()
        printed = self._run(context, line)
        self._take_in(context, printed)
        for said in printed:
            if isinstance(said, dict) and said.get("type") == "failed":
                why = str(said.get("why") or "the program says that it failed")
                raise Unavailable(why) if said.get("retry", True) else RequestRejected(why)

    def _run(self, context: ChannelContext, *lines: str) -> list[Any]:
        """Return the lines that the program printed, as JSON values, and what is none as text."""
        given: list[Asked] = [{"role": "user", "content": line} for line in lines]
        asked = Request("", given, deadline_s=self._timeout_s, agent=context.agent.name)
        reply = self._program.complete(asked)
        if reply.finish == "length":
            raise Unavailable("it printed more than 1 MiB")
        return list(_parsed(reply.text))

    def _take_in(self, context: ChannelContext, printed: list[Any]) -> None:
        for said in printed:
            if isinstance(said, dict) and said.get("type") in ("delivered", "failed"):
                continue
            try:
                context.receive(self._message(said), most_an_hour=self._most)
            except RateLimited:
                continue  # it may come again, as long as the program prints it
            except (RequestRejected, ConfigError) as error:
                name = said.get("id") if isinstance(said, dict) else said
                context.refuse(str(name), error.message)

    def _message(self, said: Any) -> Message:
        """Return a line as a message; raise `RequestRejected` for one that is none."""
        if not isinstance(said, dict):
            raise RequestRejected("a line that is no JSON object")
        if unknown := [key for key in said if key not in KEYS]:
            raise RequestRejected(f'unknown key "{unknown[0]}"; keys: {", ".join(KEYS)}')
        ident, text, payload = said.get("id"), said.get("text"), said.get("payload", {})
        if not isinstance(ident, str) or not isinstance(text, str) or not isinstance(payload, dict):
            raise RequestRejected('a message has "id" and "text", which are texts, and may have "payload"')
        kind = said.get("kind", self.kind)
        require_kind(str(kind))
        return Message(
            id=ident,
            text=text,
            sender=str(said.get("from") or ""),
            kind=kind,
            target=self.to,
            more={"body": payload} if payload else {},
        )


def _envelope(outgoing: Outgoing) -> dict[str, Any]:
    entry = outgoing.entry
    asked = outgoing.answers.payload.get("message_id") if outgoing.answers else None
    return {
        "id": entry.id,
        "agent": entry.agent,
        "tick": entry.tick,
        "kind": entry.kind,
        "text": outgoing.text,
        "payload": entry.payload,
        "answers": asked,
    }


def _parsed(text: str) -> Iterator[Any]:
    for line in filter(str.strip, text.splitlines()):
        try:
            yield parse(line.encode())
        except JsonProblem:
            yield line
