"""Command channel: any program, with JSON lines in both directions. Protocol: docs/channels.md.

The program runs between ticks to poll for messages, and once per entry to deliver, with the entry as a line
on standard input. Its output lines are messages, or the outcome of the delivery.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.capabilities.channels.channel import (
    Channel,
    ChannelContext,
    InboundMessage,
    OutgoingEntry,
    PollResult,
    require_kind,
    require_name,
)
from lemming.capabilities.program_models.program_provider import CliProvider
from lemming.ext import ConfigError
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import RateLimited, RequestRejected, Unavailable
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.providers import Message as Asked
from lemming.kernel.providers import Request
from lemming.libraries.lenient_json import parse_or_default

KEYS = ("type", "id", "text", "from", "kind", "payload")


class CommandChannel(Channel):
    """Channel that runs `command`, a list of arguments, without a shell, in the environment of the `cli` provider."""

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
            raise ConfigError('option "command" must not be empty', hint='write "command": ["program", "argument"]')
        if timeout_s <= 0:
            raise ConfigError(f'option "timeout_s" must be more than 0, got {timeout_s:g}')
        require_kind(kind)
        require_name(to)
        self.to, self.kind, self._poll, self._timeout_s = to, kind, poll, timeout_s
        self._most = per_sender_an_hour
        self._program = CliProvider(command=command, env=env, cwd=cwd, base=base)

    def collect(self, context: ChannelContext) -> PollResult:
        """Run the program without input, and receive the printed messages."""
        if self._poll:
            self._receive_lines(context, self._run_program(context))
        return PollResult()

    def deliver(self, context: ChannelContext, outgoing: OutgoingEntry) -> None:
        """Run the program with an entry. Exit status 0 means success, unless an output line reports failure."""
        answered = outgoing.answers.payload.get("message_id") if outgoing.answers else None
        facts = {"key": outgoing.key, "id": outgoing.entry.id, **outgoing.facts, "answers": answered}
        printed = self._run_program(context, dump_compact({"type": "entry", **facts}).decode())
        self._receive_lines(context, printed)
        for line_value in printed:
            if isinstance(line_value, dict) and line_value.get("type") == "failed":
                reason = str(line_value.get("why") or "the program says that it failed")
                raise Unavailable(reason) if line_value.get("retry", True) else RequestRejected(reason)

    def _run_program(self, context: ChannelContext, *lines: str) -> list[Any]:
        """Return the output lines of the program as JSON values. Malformed lines stay text."""
        messages: list[Asked] = [{"role": "user", "content": line} for line in lines]
        request = Request("", messages, deadline_s=self._timeout_s, agent=context.agent.name)
        reply = self._program.complete(request)
        if reply.finish == "length":
            raise Unavailable("the program printed more than 1 MiB")
        return [parse_or_default(line.encode(), line) for line in filter(str.strip, reply.text.splitlines())]

    def _receive_lines(self, context: ChannelContext, printed: list[Any]) -> None:
        for line_value in printed:
            if isinstance(line_value, dict) and line_value.get("type") in ("delivered", "failed"):
                continue
            try:
                context.receive(self._parse_message(line_value), most_an_hour=self._most)
            except RateLimited:
                continue  # it may come again, as long as the program prints it
            except (RequestRejected, ConfigError) as error:
                name = line_value.get("id") if isinstance(line_value, dict) else line_value
                context.record_refusal(str(name), error.message)

    def _parse_message(self, line_value: Any) -> InboundMessage:
        """Return an output line as a message. Raises: RequestRejected for an invalid line."""
        if not isinstance(line_value, dict):
            raise RequestRejected("expected one JSON object per line, got another line")
        if unknown := [key for key in line_value if key not in KEYS]:
            raise RequestRejected(f'unknown key "{unknown[0]}"; keys: {", ".join(KEYS)}')
        ident, text, payload = line_value.get("id"), line_value.get("text"), line_value.get("payload", {})
        if not isinstance(ident, str) or not isinstance(text, str) or not isinstance(payload, dict):
            raise RequestRejected('a message must have "id" and "text", both texts')
        kind = line_value.get("kind", self.kind)
        require_kind(str(kind))
        return InboundMessage(
            id=ident,
            text=text,
            sender=str(line_value.get("from") or ""),
            kind=kind,
            target=self.to,
            more={"body": payload} if payload else {},
        )
