"""`lemming trust endorse`: endorse an entry, a memory or a file with the trust of a person."""

from __future__ import annotations

from typing import Annotated

from lemming.capabilities.trust.author_labels import build_payload
from lemming.capabilities.trust.sidecar_labels import compute_file_digest
from lemming.commands.command_context import AsPerson, CommandContext, argument
from lemming.commands.terminal import print_notice
from lemming.ext import load_tick
from lemming.journal_tools.provenance.provenance_tree import resolve_target
from lemming.journal_tools.provenance.write_log import WriteLog
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.outbox_files import write_person_entry
from lemming.obligations.current_requests import load_requests
from lemming.obligations.request_entries import choose_person


def endorse(
    context: CommandContext,
    target: Annotated[str, argument("TARGET", "Entry id, file path, or AGENT/memory/KEY.")],
    person: AsPerson = None,
) -> None:
    """Endorse outside content as trusted: turns that see it keep their trust label.

    The command writes an entry of the person with the name and the digest of the content. The endorsement
    ends when the memory or file is rewritten. Entries derived from the content are not endorsed; `lemming
    why` lists derived entries.

    \b
    Examples:
      lemming trust endorse 3fa9c1d2e0b7
      lemming trust endorse shared/prices.csv --as eve
      lemming trust endorse editor/memory/sources
    """
    base = context.org
    if "trust" not in load_config(base).org.extensions:
        hint = 'set "trust": {} in config/org.json'
        raise UsageError("trust tracking is off in this organisation", hint=hint)
    author = choose_person(load_requests(base), person)
    content_name, digest = _resolve_target(base, target)
    entry = write_person_entry(
        base,
        author,
        tick=load_tick(base),
        kind="status",
        payload=dict(build_payload(content_name, digest)),
        tags=[],
        created_at=timestamp(SystemClock().now()),
    )
    context.print_entry(entry)
    print_notice(f"{author} endorses {content_name}{f' in its current version ({digest[:12]})' if digest else ''}")


def _resolve_target(base: OrgPath, target: str) -> tuple[str, str]:
    """Return the name of the target as used in endorsements, and the SHA-256 of a file."""
    path = resolve_target(WriteLog(base), target)
    parts = path.split("/")
    if len(parts) == 4 and parts[0] == "agents" and parts[2] == "outbox" and paths.ENTRY_FILE.match(parts[3]):
        if compute_file_digest(base, path):
            return f"{parts[1]}/{parts[3].removesuffix('.json')}", ""
    elif digest := compute_file_digest(base, path):
        return path, digest
    raise UsageError(f'there is no file "{target}"', hint="name an entry's id, a file, or AGENT/memory/KEY")
