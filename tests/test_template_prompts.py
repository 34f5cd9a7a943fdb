"""What the prompts of the templates consist of: mostly what people wrote, and little that the engine adds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.import_export.apply_document import load_template
from lemming.kernel.agents import load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import dump_compact, parse
from lemming.kernel.files import fs
from lemming.providers import Backend, Reply, Request, register_provider

TEMPLATES = ["newsroom", "desk", "review", "watch", "research", "game"]
BOILERPLATE = 0.35
SENTENCE = (
    "In October 3 crossings were cancelled and in November 9, for wind above 8 Beaufort [ferry-log.txt]. The "
    "new pier, open from 15 December, lets the ferry land up to 9 Beaufort [council-minutes.txt]."
)
"""A text such as the recorded answers have."""
SOURCES = [f"shared/sources/{name}.txt" for name in ("ferry-log", "council-minutes", "weather")]
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\{.*\}')


class Writer(Backend):
    """Answers each question with a reply that its schema allows, and keeps the questions."""

    keeps_deadline, takes_schema = True, True
    asked: ClassVar[list[Request]] = []

    def complete(self, request: Request) -> Reply:
        """Answer with a sentence: as an answer or a message where there is a choice of actions."""
        self.asked.append(request)
        if request.schema is None:
            return Reply(SENTENCE, 1, 1)
        one = request.schema.get("items", request.schema)
        schemas = [it for it in one.get("anyOf", [one]) if "properties" in it]  # no list of actions
        does = {it["properties"].get("do", {}).get("const"): it for it in schemas}
        told = "".join(str(message["content"]) for message in request.messages[1:])
        unread = [path for path in SOURCES if path not in told]
        wanted = [*["file_read"][: len(unread)], *["ask_reader"][: "ask_reader" not in told], "answer", "send"]
        reply = value_of(next((does[name] for name in wanted if name in does), schemas[0]))
        if "path" in reply:
            reply["path"] = unread[0] if unread else SOURCES[0]
        return Reply(json.dumps([reply] if "items" in request.schema else reply), 1, 1)


def value_of(schema: dict[str, Any]) -> Any:
    """Return a value that a schema allows."""
    if "const" in schema or "enum" in schema:
        values = [it for it in schema.get("enum", ()) if it != "human"]
        return schema.get("const", values[0] if values else "human")
    if schema.get("type") == "object":
        return {name: value_of(schema["properties"][name]) for name in schema["required"]}
    return {"boolean": True, "integer": 1, "number": 1}.get(
        str(schema.get("type")), SENTENCE[: schema.get("maxLength")]
    )


def questions_of(base: Path, template: str, line: dict[str, Any]) -> list[Request]:
    """Run two ticks of a template on such a model; return its questions."""
    register_provider("writer", Writer)
    Writer.asked.clear()
    fs.make_root(base)
    for file, content in load_template(template).items():
        fs.write_atomic(base, file, content)
    models = parse(fs.read_bytes(base / paths.MODELS_FILE, 1 << 20))
    models |= {key: {"provider": "writer", **line} for key in ("default", "full") if key in models}
    fs.write_atomic(base, paths.MODELS_FILE, dump_compact(models))
    for _ in range(2):
        assert run_once(base).by_status("failed") == []
    return [*Writer.asked]


def written_by_people(base: Path, request: Request) -> int:
    """Return the characters of a question that are instructions, examples, entries, files or memories."""
    system, *others = request.messages
    agents = [load_agent(base, folder.name) for folder in (base / "agents").iterdir()]
    (told,) = {it.instructions for it in agents if it.instructions in system["content"]}  # a judge's are its own
    chars = len(told) + sum(len(it["content"]) for it in others[:-1])
    for line in others[-1]["content"].split("\n"):
        if line.startswith("> "):
            chars += len(line) - 2
        elif found := QUOTED.search(line):
            chars += len(found[0])
    return chars


@pytest.mark.sample(4)
@pytest.mark.parametrize("prompt", ["brief", "fit"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_at_most_a_third_of_a_template_s_prompts_is_what_the_engine_adds(
    base: Path, template: str, prompt: str
) -> None:
    questions = questions_of(base, template, {"prompt": prompt})
    sent = sum(len(message["content"]) for it in questions for message in it.messages)
    people = sum(written_by_people(base, it) for it in questions)
    assert 1 - people / sent < BOILERPLATE


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_in_order(base: Path, template: str) -> None:
    assert run(["init", str(base), "--template", template, "--quiet"]) == 0
    assert run(["-C", str(base), "validate"]) == 0
