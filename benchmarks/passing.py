"""A plugin: the model of the organisations in `benchmarks.several`, which passes on what it is given.

A message is `NUMBER HOP`. Whoever is given it sends `NUMBER HOP+1` to the next of the organisations that it
knows, until `HOPS` is reached.
"""

from __future__ import annotations

import json
import os
import re

from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import say

NEW = re.compile(r"# New entries in your inbox.*?(?=\n# |\Z)", re.DOTALL)
MESSAGE = re.compile(r'^\{"id": .*?"payload": \{[^{]*?"text": "(\d+) (\d+)"', re.MULTILINE)


class Passing(Backend):
    """Passes on each new message."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return an entry for each new message that goes further."""
        hops, others = int(os.environ["HOPS"]), os.environ["OTHERS"].split()
        found = NEW.search(str(request.messages[-1]["content"]))
        entries = []
        for number, hop in MESSAGE.findall(found.group() if found else ""):
            if int(hop) < hops:
                target = others[(int(number) + int(hop)) % len(others)]
                payload = {"text": f"{number} {int(hop) + 1}", "target": target}
                entries.append({"kind": "message", "payload": payload, "tags": []})
        return Reply(text=json.dumps({**say(""), "outbox_entries": entries}))


register_provider("passing", Passing)
