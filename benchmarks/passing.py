"""Plugin with the model of `benchmarks.several`, which passes each message on.

A message is `NUMBER HOP`. The receiver sends `NUMBER HOP+1` to the next neighbour organisation until `HOPS`
is reached.
"""

from __future__ import annotations

import json
import os
import re

from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import say

INBOX_SECTION = re.compile(r"# New entries in your inbox.*?(?=\n# |\Z)", re.DOTALL)
MESSAGE = re.compile(r'^\{"id": .*?"payload": \{[^{]*?"text": "(\d+) (\d+)"', re.MULTILINE)


class PassingBackend(Backend):
    """A model that passes on each new message."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return an entry for each new message below the hop limit."""
        hops, neighbours = int(os.environ["HOPS"]), os.environ["OTHERS"].split()
        section = INBOX_SECTION.search(str(request.messages[-1]["content"]))
        entries = []
        for number, hop in MESSAGE.findall(section.group() if section else ""):
            if int(hop) < hops:
                target = neighbours[(int(number) + int(hop)) % len(neighbours)]
                payload = {"text": f"{number} {int(hop) + 1}", "target": target}
                entries.append({"kind": "message", "payload": payload, "tags": []})
        return Reply(text=json.dumps({**say(""), "outbox_entries": entries}))


register_provider("passing", PassingBackend)
