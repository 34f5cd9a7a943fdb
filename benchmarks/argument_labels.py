"""Measure how often arguments of calls hold a traced value, rightly and by chance. Rules: docs/security.md.

python -m benchmarks.argument_labels      prints two tables; needs no model

Each template and example runs with its recorded answers and with trust on. A value is a number or a date of an
untrusted text. An argument holds one rightly if its turn was shown the text. Values of all texts of the other
organisations, which no turn here was shown, tell the chance: every hit is false.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.recordings import ANSWERS, NIGHT
from lemming.capabilities.trust.origins import ValueFinder, iter_recognizable_values
from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import get_toolset
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, journal_lines

EXAMPLES = Path(__file__).parent.parent / "examples"
RECORDED_TEMPLATES = ("desk", "research", "watch", "review", "game")
MAX_TICKS = 12
ACTING = ("send", "execute", "administer")
ENTRY = "entry"
_VALUE = re.compile(r"(?<![\w.,:-])(?:\d{4}-\d\d-\d\d|\d[\d,]*(?:\.\d+)?)(?![\w:-]|[.,]\d)")
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Passage:
    """What a turn passed on: the arguments of a call, or the payload of an entry.

    `tool_class` is `entry` for a payload. `untrusted` are the untrusted texts that the turn was shown, `trusted`
    the other ones.
    """

    tool_class: str
    label: str
    content: Any
    untrusted: Sequence[str]
    trusted: Sequence[str]


@dataclass
class OrgSample:
    """The passages of an organisation, and all its texts."""

    name: str
    passages: list[Passage] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class Rule(NamedTuple):
    """A rule for the values that count. `exempts_own`: a value in a trusted text of the turn does not count."""

    name: str
    counts: Callable[[Any], bool]
    exempts_own: bool = False


def _is_recognizable(value: Any) -> bool:
    return any(True for _ in iter_recognizable_values({}, value))


def _count_digits(value: Any) -> int:
    return sum(map(str.isdigit, str(value)))


RULES = (
    Rule("every number and date", lambda _: True),
    Rule("at least 2 digits", lambda value: _count_digits(value) >= 2),
    Rule("at least 3 digits", _is_recognizable),
    Rule("at least 3 digits, and in no trusted text of the turn", _is_recognizable, exempts_own=True),
    Rule("at least 4 digits", lambda value: _count_digits(value) >= 4),
)
ENGINE_RULE = RULES[3]


def extract_values(texts: Sequence[str]) -> list[Any]:
    """Return the numbers and dates in texts, each once.

    >>> extract_values(["pay 4,900 on 2026-03-01, version 1.2.3, at 12:30"])
    [4900, '2026-03-01']
    """
    values: dict[Any, None] = {}
    for text in texts:
        for match in _VALUE.findall(text):
            plain = match.replace(",", "")
            values[match if "-" in match else float(plain) if "." in plain else int(plain)] = None
    return [*values]


def holds_value(passage: Passage, values: Sequence[Any], rule: Rule) -> bool:
    """Return True if a passage holds one of the values by a rule."""
    counted = [value for value in values if rule.counts(value)]
    if rule.exempts_own:
        own = ValueFinder(counted).find([*passage.trusted])
        counted = [value for position, value in enumerate(counted) if position not in own]
    return bool(ValueFinder(counted).find(passage.content))


# --- organisations ---------------------------------------------------------------------------------


def build_samples(folder: Path) -> list[OrgSample]:
    """Return the samples of all templates and examples, run in a folder."""
    samples = [_sample_template(folder / name, name) for name in RECORDED_TEMPLATES]
    for example in sorted(EXAMPLES.iterdir()):
        if (example / ANSWERS).is_file():
            samples.append(_sample_example(folder / example.name, example))
    return samples


def _sample_template(base: Path, template: str) -> OrgSample:
    run(["init", str(base), "--template", template, "--quiet"])
    lines = [json.loads(line) for line in (base / ANSWERS).read_text().splitlines()]
    for line in lines:
        line.pop("question", None)  # labels in prompts make them other questions
    unique = [line for number, line in enumerate(lines) if line not in lines[:number]]
    (base / ANSWERS).write_text("".join(json.dumps(line) + "\n" for line in unique))
    return _run_org(base, template, ticks=4)


def _sample_example(base: Path, example: Path) -> OrgSample:
    shutil.copytree(example, base)
    question = (base / "question.txt").read_text()
    run(["-C", str(base), "send", "--to", "desk", "--kind", "request", question])
    return _run_org(base, f"examples/{example.name}", ticks=MAX_TICKS)


def _run_org(base: Path, name: str, *, ticks: int) -> OrgSample:
    settings = base / "config/org.json"
    record = json.loads(settings.read_bytes()) if settings.exists() else {}
    settings.write_bytes(dump_pretty({**record, "trust": {}}))
    clock = FrozenClock(NIGHT)
    for _ in range(ticks):
        run_once(base, clock=clock)
        clock.time += timedelta(hours=6)
        run(["-C", str(base), "approve", "--all", "--tool", "file_write", "--yes"])
    sample = OrgSample(name, texts=[*_iter_texts(base)])
    for tick in range(1, ticks + 1):
        sample.passages += _read_passages(base, tick)
    return sample


def _iter_texts(base: Path) -> Iterator[str]:
    """Yield all texts of an organisation: payloads of entries, and files in shared/ and workspaces."""
    for file in sorted([*base.glob("shared/**/*"), *base.glob("agents/*/workspace/**/*")]):
        if file.is_file():
            yield file.read_text(errors="replace")
    for author in survey_agents(Organisation.from_path(base)).agents:
        yield from (json.dumps(entry.payload) for entry in read_outbox_entries(base, author))


def _read_passages(base: Path, tick: int) -> Iterator[Passage]:
    org = Organisation.from_path(base)
    config, agents = load_config(org), survey_agents(org).agents
    tools = get_toolset(config.org, org)
    labels: dict[str, str] = {}
    shown: dict[str, tuple[list[str], list[str]]] = {}
    for line in journal_lines(base, tick):
        name = line.get("agent", "")
        if line["type"] == "turn_started" and name in agents and "trust" in line.get("given", {}):
            trust = line["given"]["trust"]
            labels[name] = trust["is"]
            sources = [_read_source(base, source["of"]) for source in trust.get("from", ())]
            shown[name] = sources, [agents[name].instructions, *_trusted_entries(base, line)]
        elif line["type"] == "tool_finished" and (trust := line.get("trust", {})).get("is"):
            labels[name] = trust["is"]
            shown[name][0].append(line["output"])
        elif line["type"] == "model_replied" and name in labels:
            reply = _parse_reply(line["text"])
            classes = {tool.name: tool.tool_class for tool in tools.allowed_tools(agents[name], config.org).values()}
            # A question to a team member is no tool: it becomes an entry.
            calls = [(classes.get(call["tool"], "write"), call["args"]) for call in reply.get("tool_calls", ())]
            entries = [(ENTRY, entry["payload"]) for entry in reply.get("outbox_entries", ())]
            untrusted, trusted = ([*texts] for texts in shown[name])
            for tool_class, content in (*calls, *entries):
                yield Passage(
                    tool_class=tool_class, label=labels[name], content=content, untrusted=untrusted, trusted=trusted
                )


def _parse_reply(text: str) -> Json:
    try:
        reply = json.loads(text)
    except ValueError:
        return {"outbox_entries": [{"payload": {"text": text}}]}
    return reply if isinstance(reply, dict) else {}


def _read_source(base: Path, source: str) -> str:
    """Return the text of a source of a label: an entry's payload, or a file."""
    author, _, ident = source.partition("/")
    file = base / f"agents/{author}/outbox/{ident}.json"
    file = file if file.is_file() else base / source
    return file.read_text(errors="replace") if file.is_file() else ""


def _trusted_entries(base: Path, started: Json) -> list[str]:
    """Return the payloads of trusted entries in the prompt of a turn."""
    prompt = json.dumps(started["prompt"])
    return [
        json.dumps(entry.payload)
        for author in survey_agents(Organisation.from_path(base)).agents
        for entry in read_outbox_entries(base, author)
        if entry.id in prompt and not any(tag.startswith("trust") for tag in entry.tags) and author != started["agent"]
        and f'"trust": "outside", "id": "{entry.id}"' not in prompt.replace("\\", "")
    ]  # fmt: skip


# --- tables ---------------------------------------------------------------------------------------


def render_orgs(samples: Sequence[OrgSample]) -> str:
    """Return the table of what each organisation passes on, and of what carries a label."""
    rows = [
        "| organisation | calls | send, execute, administer | entries | of turns labelled `outside` | with a value |"
    ]
    rows.append("|---|---:|---:|---:|---:|---:|")
    total = OrgSample("all", [item for sample in samples for item in sample.passages])
    for sample in (*samples, total):
        calls = [item for item in sample.passages if item.tool_class != ENTRY]
        acting = [item for item in calls if item.tool_class in ACTING]
        low = [item for item in sample.passages if item.label == "outside"]
        hits = [item for item in low if holds_value(item, extract_values(item.untrusted), ENGINE_RULE)]
        figures = (len(calls), len(acting), len(sample.passages) - len(calls), len(low), len(hits))
        rows.append(f"| {sample.name} | {' | '.join(map(str, figures))} |")
    return "\n".join(rows)


def render_rules(samples: Sequence[OrgSample]) -> str:
    """Return the table of right and false hits by rule."""
    pairs = [(sample, other) for sample in samples for other in samples if sample is not other]
    values = {sample.name: extract_values(sample.texts) for sample in samples}
    total = sum(len(sample.passages) for sample, _ in pairs)
    rows = ["| values that count | rightly | falsely | false per 100 |", "|---|---:|---:|---:|"]
    for rule in RULES:
        right = sum(
            holds_value(item, extract_values(item.untrusted), rule)
            for sample in samples
            for item in sample.passages
            if item.untrusted
        )
        false = sum(holds_value(item, values[other.name], rule) for sample, other in pairs for item in sample.passages)
        rows.append(f"| {rule.name} | {right} | {false} of {total} | {100 * false / total:.1f} |")
    return "\n".join(rows)


def main() -> None:
    """Print both tables."""
    quiet = io.StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(quiet), redirect_stderr(quiet):
        samples = build_samples(Path(folder))
    print(render_orgs(samples), render_rules(samples), sep="\n\n")


if __name__ == "__main__":
    main()
