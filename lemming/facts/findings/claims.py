"""Says, but does not do: a text says that a file was written, or a tool called, and no journal tells of it.

Only plain claims count, in English and of the agent itself ("I saved it to report.md", "Called web_search"):
few are found, and those that are found are worth a look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from lemming.facts.findings.finding import Finding, quoted
from lemming.facts.findings.look import Look
from lemming.kernel.base import paths
from lemming.kernel.base.payload_text import text_of_payload
from lemming.timeline.record import TurnRecord

_SAYS_SO = r"(?:(?:I|We)(?:['’]ve|\s+have)?\s+(?:(?:now|also|just|already|successfully)\s+)?)?"
_WROTE = r"(?:saved|wrote|written|created|updated|stored|appended)"
_CALLED = r"(?:called|used|ran|invoked|executed)"
_SUFFIX = r"(?:md|txt|json|jsonl|csv|tsv|html|xml|yaml|yml|toml|py|js|ts|sh|sql|log)"
_FILE = rf"[`'\"“]?((?:[\w.-]+/)*[\w-]+\.{_SUFFIX})\b"
_NO_END = r"(?:(?![.!?](?:\s|$)|\n).){0,80}?"
_FILE_CLAIM = re.compile(rf"^{_SAYS_SO}{_WROTE}\b({_NO_END})(?:\s|[`'\"“(]){_FILE}", re.IGNORECASE)
_CALL_CLAIM = re.compile(
    rf"^{_SAYS_SO}{_CALLED}\s+(?:the\s+)?(?:tool\s+)?[`'\"“]?([a-z][a-z0-9]*(?:[_.][a-z0-9_-]+)+)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?:(?<=[.!?])\s+|\n+[ \t]*(?:[-*•]\s+)?)")
_NOT_SO = re.compile(
    r"\b(?:not|never|no|nothing|by|from|if|unless|would|should|could|will|until|once|when|for)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Words between the verb and the file that make it another claim: of somebody else, of later, of nothing."""


def claims(look: Look) -> Iterator[Finding]:
    """Yield each claim of a file or a call that no turn of the agent up to then has."""
    for agent, turns in look.by_agent.items():
        written, called = set[str](), set[str]()
        for turn in turns:
            written.update(_written(turn))
            called.update(use.tool for use in turn.tools)
            called.update(str(result["tool"]) for result in turn.results)
            if turn.report and turn.report.status == "failed":
                continue
            for text, place in _texts(turn):
                for what, fix in _untrue(look, turn, text, written, called):
                    yield Finding(
                        kind="claims",
                        agents=(agent,),
                        message=f"{agent} says {quoted(text)}, but {what}",
                        since=turn.tick,
                        evidence=(f"{turn.tick}/{agent}", *([place] if place else [])),
                        hint=fix,
                    )


def _texts(turn: TurnRecord) -> Iterator[tuple[str, str]]:
    """Yield the sentences that a turn wrote, each with the file of its entry; questions are no claims."""
    texts = [
        (text_of_payload(entry.payload), entry.file) for entry in turn.entries if entry.kind != "request"
    ]
    if turn.report and turn.report.notes:
        texts.append((turn.report.notes, ""))
    for text, file in texts:
        for sentence in _SENTENCE.split(text):
            if not sentence.rstrip().endswith("?"):
                yield sentence.strip(), file


def _untrue(
    look: Look, turn: TurnRecord, sentence: str, written: set[str], called: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield what a sentence claims that is not so, and what may help."""
    show = f"`lemming tick {turn.tick}` shows what it did"
    claim = _FILE_CLAIM.match(sentence)
    if claim and not _NOT_SO.search(claim[1]):
        name = PurePosixPath(claim[2]).name.lower()
        if name not in written and not _is_there(look, turn.agent, claim[2]):
            yield (
                f"no turn of its that was looked at wrote {claim[2]}",
                f"{show}; has it a tool that writes, and may it?",
            )
    claim = _CALL_CLAIM.match(sentence)
    if claim and (tool := claim[1].rstrip(".")) in _tools_of(look, turn) and tool not in called:
        yield (
            f"no turn of its that was looked at called {tool}",
            f"{show}; a judge or a stronger model may help",
        )


def _written(turn: TurnRecord) -> Iterator[str]:
    """Yield the names of the files that a turn wrote, or had a call that may have."""
    if turn.report:
        for place in (*(file["path"] for file in turn.report.files), *turn.report.written_ahead):
            yield PurePosixPath(place).name.lower()
    for use in turn.tools:
        for place in use.files:
            yield PurePosixPath(place).name.lower()


def _is_there(look: Look, agent: str, path: str) -> bool:
    """Return whether there is such a file, where an agent would mean it to be."""
    if ".." in PurePosixPath(path).parts:
        return True  # beyond what is looked at
    folders = ("", "shared", paths.agent_folder(agent), paths.workspace_folder(agent))
    return any((look.org / folder / path).exists() for folder in folders)


def _tools_of(look: Look, turn: TurnRecord) -> set[str]:
    """Return the tools that the agent might have meant: those it may call."""
    resume = turn.started.resume if turn.started else {}
    permitted = resume.get("permissions", {}).get("tools", [])
    return {name for name in permitted if "*" not in name}
