"""Rule for false claims: a text claims a written file or a tool call without a record in any journal.

Only plain first-person claims in English count ("I saved it to report.md", "Called web_search"): findings are
few, and each is worth a look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from lemming.journal_tools.provenance.write_log import get_payload_text
from lemming.journal_tools.recorded_tick import RecordedTurn
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.queries.findings.finding_scan import FindingScan, make_finding, quote_start

_SUBJECT = r"(?:(?:I|We)(?:['’]ve|\s+have)?\s+(?:(?:now|also|just|already|successfully)\s+)?)?"
_WROTE = r"(?:saved|wrote|written|created|updated|stored|appended)"
_CALLED = r"(?:called|used|ran|invoked|executed)"
_SUFFIX = r"(?:md|txt|json|jsonl|csv|tsv|html|xml|yaml|yml|toml|py|js|ts|sh|sql|log)"
_FILE = rf"[`'\"“]?((?:[\w.-]+/)*[\w-]+\.{_SUFFIX})\b"
_NO_END = r"(?:(?![.!?](?:\s|$)|\n).){0,80}?"
_FILE_CLAIM = re.compile(rf"^{_SUBJECT}{_WROTE}\b({_NO_END})(?:\s|[`'\"“(]){_FILE}", re.IGNORECASE)
_CALL_CLAIM = re.compile(
    rf"^{_SUBJECT}{_CALLED}\s+(?:the\s+)?(?:tool\s+)?[`'\"“]?([a-z][a-z0-9]*(?:[_.][a-z0-9_-]+)+)", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?:(?<=[.!?])\s+|\n+[ \t]*(?:[-*•]\s+)?)")
_NEGATION = re.compile(
    r"\b(?:not|never|no|nothing|by|from|if|unless|would|should|could|will|until|once|when|for)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Words between the verb and the file that make another claim: about another agent, the future, or nothing."""


def find_false_claims(scan: FindingScan) -> Iterator[Problem]:
    """Yield claims of a file or a call without a record in any turn of the agent so far."""
    for agent, turns in scan.by_agent.items():
        written, called = set[str](), set[str]()
        for turn in turns:
            written.update(_iter_written_files(turn))
            called.update(use.tool for use in turn.tools)
            called.update(str(result["tool"]) for result in turn.visible_results)
            if turn.report and turn.report.status == "failed":
                continue
            for text, entry_file in _iter_sentences(turn):
                for contradiction, fix in _find_untrue_claims(scan, turn, text, written, called):
                    message = f"{agent} says {quote_start(text)}, but {contradiction}"
                    evidence = (f"{turn.tick}/{agent}", *([entry_file] if entry_file else []))
                    yield make_finding((agent,), message, fix, [turn], evidence=evidence)


def _iter_sentences(turn: RecordedTurn) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a turn with the file of the entry; questions are skipped."""
    texts = [(get_payload_text(entry.payload), entry.file) for entry in turn.entries if entry.kind != "request"]
    if turn.report and turn.report.notes:
        texts.append((turn.report.notes, ""))
    for text, file in texts:
        for sentence in _SENTENCE.split(text):
            if not sentence.rstrip().endswith("?"):
                yield sentence.strip(), file


def _find_untrue_claims(
    scan: FindingScan, turn: RecordedTurn, sentence: str, written: set[str], called: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield the contradiction of each false claim in a sentence, and a suggested fix."""
    show_hint = f"see its work with `lemming tick {turn.tick}`"
    claim = _FILE_CLAIM.match(sentence)
    if claim and not _NEGATION.search(claim[1]):
        name = PurePosixPath(claim[2]).name.lower()
        if name not in written and not _has_file(scan, turn.agent, claim[2]):
            hint = f"{show_hint}; check that it has a tool for writing and the permission"
            yield f"no turn of the agent in these ticks wrote {claim[2]}", hint
    resume = turn.started.resume if turn.started else {}
    callable_tools = [name for name in resume.get("permissions", {}).get("tools", []) if "*" not in name]
    claim = _CALL_CLAIM.match(sentence)
    if claim and (tool := claim[1].rstrip(".")) in callable_tools and tool not in called:
        hint = f"{show_hint}; add a judge or use a stronger model"
        yield f"no turn of the agent in these ticks called {tool}", hint


def _iter_written_files(turn: RecordedTurn) -> Iterator[str]:
    """Yield the names of files that a turn wrote or possibly wrote through a tool call."""
    report = turn.report
    reported = (*(file["path"] for file in report.files), *report.written_ahead) if report else ()
    for path in (*reported, *(path for tool_use in turn.tools for path in tool_use.files)):
        yield PurePosixPath(path).name.lower()


def _has_file(scan: FindingScan, agent: str, path: str) -> bool:
    """Return True if the file exists in any folder the agent could mean."""
    if ".." in PurePosixPath(path).parts:
        return True  # beyond the scanned part
    folders = ("", "shared", paths.agent_folder(agent), paths.workspace_folder(agent))
    return any((scan.org / folder / path).exists() for folder in folders)
