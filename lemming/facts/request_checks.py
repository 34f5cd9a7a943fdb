"""Open requests that reach nobody, whose answers nobody gets, or that ask for what nothing can be held to."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.base import paths
from lemming.base.errors import Problem
from lemming.base.json_schema import flaw_of
from lemming.capabilities.requests.now import requests_now
from lemming.org.organisation import OrgPath


def problems_of_requests(base: OrgPath, only: str | None = None) -> Iterator[Problem]:
    """Yield a warning for each permission that an open request lacks, and for each schema that is none.

    `only`: of what concerns one agent's resume.
    """
    now = requests_now(base)
    for request in now.requests.open:
        flaw, pointer = flaw_of(request.schema or {})
        if flaw and only in (None, request.asker):
            yield Problem(
                f"any answer will do: {flaw}",
                request.entry.file,
                pointer=f"/payload/schema{pointer}",
                hint=f"`lemming cancel {request.id}`, and ask again with a schema that can be used",
                severity="warning",
                code="LMG-301",
            )
    missing: dict[tuple[str, str], str] = {}
    for request in now.requests.open:
        for share in request.open_shares:
            told = f"what {request.asker} asks {share.holder} ({request.id})"
            if not now.may_read(share.holder, request.asker):
                missing.setdefault((share.holder, request.asker), f"{told} does not reach it")
            if not now.may_read(request.asker, share.holder):
                missing.setdefault((request.asker, share.holder), f"no answer to {told} reaches it")
    for (reader, author), message in missing.items():
        if reader in now.agents and only in (None, reader):
            yield Problem(
                message,
                paths.resume_file(reader),
                pointer="/permissions/read_outboxes",
                hint=f'add "{author}" to its read_outboxes, or `lemming cancel` it',
                severity="warning",
                code="LMG-301",
            )
