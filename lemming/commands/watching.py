"""Answers as models write them, on the screen: whole lines, each with the name of who writes it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from lemming.commands.screen import one_line, painted, tell, width_of
from lemming.journal.events import ModelWrote

SHORTEST = 20


@dataclass
class Watched:
    """What agents have written of lines that are not yet shown."""

    _held: dict[str, str] = field(default_factory=dict)
    _calls: dict[str, int] = field(default_factory=dict)

    def hear(self, event: ModelWrote, name_width: int) -> None:
        """Take a piece of an answer; show the lines that are full or ended."""
        if self._calls.get(event.agent) != event.call:  # another answer of the same turn
            self.end(event.agent, name_width)
            self._calls[event.agent] = event.call
        *lines, rest = (self._held.get(event.agent, "") + event.text).split("\n")
        room = self._room(name_width)
        while len(rest) > room:
            end = rest.rfind(" ", 0, room) + 1 or room
            lines.append(rest[:end])
            rest = rest[end:]
        self._held[event.agent] = rest
        self._show(event.agent, lines, name_width)

    def end(self, agent: str, name_width: int) -> None:
        """Show what is left of an agent's answer."""
        self._calls.pop(agent, None)
        self._show(agent, [self._held.pop(agent, "")], name_width)

    def _show(self, agent: str, lines: list[str], name_width: int) -> None:
        for line in lines:
            if line.strip():
                text = one_line(line.rstrip(), max(len(line), self._room(name_width)))
                tell(f"  {agent.ljust(name_width)}  {painted(f'| {text}', 'dim', sys.stderr)}")

    def _room(self, name_width: int) -> int:
        return max(SHORTEST, width_of(sys.stderr) - name_width - 8)
