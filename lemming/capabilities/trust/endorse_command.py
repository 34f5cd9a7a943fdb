"""`lemming trust endorse`: endorse an entry, a memory or a file with the trust of a person."""

from __future__ import annotations

from typing import Annotated

from lemming.capabilities.trust.author_labels import build_payload
from lemming.capabilities.trust.sidecar_labels import compute_file_digest
from lemming.capabilities.trust.trust_trace import to_source_name
from lemming.commands.command_context import AsPerson, CommandContext, argument
from lemming.commands.terminal import print_notice
from lemming.journal_tools.provenance.provenance_tree import resolve_target
from lemming.journal_tools.provenance.write_log import WriteLog
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.config import load_config
from lemming.obligations.org_requests import load_requests
from lemming.obligations.request_entries import choose_person, write_payload


def endorse(
    context: CommandContext,
    target: Annotated[str, argument("TARGET", "Entry id, file path, or AGENT/memory/KEY.")],
    person: AsPerson = None,
) -> None:
    """Endorse outside content as trusted: turns with the content keep the trust label.

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
    path = resolve_target(WriteLog(base), target)
    content_name, digest = to_source_name(path), compute_file_digest(base, path)
    if not digest:
        raise UsageError(f'there is no file "{target}"', hint="name an entry's id, a file, or AGENT/memory/KEY")
    digest = digest if content_name == path else ""  # an entry never changes
    entry = write_payload(base, author, "status", dict(build_payload(content_name, digest)))
    context.print_entry(entry)
    print_notice(f"{author} endorses {content_name}{f' in its current version ({digest[:12]})' if digest else ''}")
