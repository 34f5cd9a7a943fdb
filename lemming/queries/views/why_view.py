"""The view of provenance: the tree of turns behind an entry, a memory or a file."""

from __future__ import annotations

from typing import Any

from lemming.journal_tools.provenance.provenance_tree import build_provenance, filter_branches, find_sources
from lemming.journal_tools.provenance.write_log import ProvenanceNode, TrustStep, WriteLog, load_trust_steps
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.lenient_json import parse_object_or_empty
from lemming.queries.sentences import ADDRESSING, describe_payload, entry_text

DEFAULT_DEPTH = 2
MAX_DEPTH = 100
MAX_TEXT_CHARS = 4000


def build_why_view(org: OrgPath, *, target: str = "", depth: int = DEFAULT_DEPTH, grep: str = "") -> dict[str, Any]:
    """Return the provenance tree of a target, `depth` turns deep; with `grep`, only branches containing the text.

    `target`: an entry id, a file of the organisation, or AGENT/memory/KEY; without a target the tree is empty. Long
    texts are shortened, and `chars` is the original length. Raises `UsageError` for an unknown target.
    """
    if not target:
        return {"depth": depth, "grep": grep, "is_found": False, "target": None, "sources": []}
    depth, write_log = min(max(depth, 1), MAX_DEPTH), WriteLog(org)
    node = build_provenance(write_log, target, depth=depth)
    is_found = not grep or filter_branches(node, grep)
    facts = tree_to_json(write_log, node, load_trust_steps(write_log, node.path))
    _truncate_texts(facts["target"])
    for source in facts["sources"]:
        _truncate_texts(source)
    return {"depth": depth, "grep": grep, "is_found": is_found, **facts}


def tree_to_json(write_log: WriteLog, node: ProvenanceNode, trust_trace: list[TrustStep]) -> dict[str, Any]:
    """Return a provenance tree as JSON values: the target, the ends of its branches, and its trust trace."""
    ends = [{**source.as_json(), "seen_in": turn.tick, "seen_by": turn.agent} for source, turn in find_sources(node)]
    trust = {"trust": [step.as_json() for step in trust_trace]} if trust_trace else {}
    damaged = sorted(write_log.damaged)
    return {"target": node.as_json(), "sources": ends, "unreadable_ticks": damaged, **trust}


def _truncate_texts(node: dict[str, Any]) -> None:
    """Shorten the texts of a tree, each possibly a megabyte long."""
    node["text"] = describe_text(node["text"])
    node["chars"] = len(node["text"])
    node["text"] = node["text"][:MAX_TEXT_CHARS]
    for seen_node in node["turn"]["saw"] if node["turn"] else ():
        _truncate_texts(seen_node)


def describe_text(text: str) -> str:
    """Return a description of a payload without a text; any other text is returned unchanged."""
    if not text.startswith("{"):
        return text
    payload = parse_object_or_empty(text)
    is_payload = ADDRESSING & payload.keys()
    return (entry_text(payload) or describe_payload(payload) or text) if is_payload else text
