"""Odd replies, as models write them: recorded ones of a model of 0.5B parameters, and shapes of others.

A line of the corpus has a reply, the names that its turn knows, the calls that it must read as, the text that
must remain, and for forms the object that it must read as.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lemming.kernel.base.contract import REPLY_LIMIT_BYTES
from lemming.kernel.base.reply_json import find_objects
from lemming.kernel.turn.forms.reply_shapes import RawCall, extract_calls, extract_only_object

CORPUS = Path(__file__).with_name("odd_replies.jsonl")
LINES = [json.loads(line) for line in CORPUS.read_text().splitlines()]
NAMES = ("weather", "stock", "answer", "done")


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["shape"])
def test_a_reply_reads_as_the_corpus_says(line: dict[str, Any]) -> None:
    calls, rest = extract_calls(line["text"], line["names"], is_cut_off=line.get("is_cut_off", False))
    assert json.dumps([[call.name, call.args] for call in calls]) == json.dumps(line["calls"])
    assert rest == line["rest"]
    if "object" in line:
        assert json.dumps(extract_only_object(line["text"])) == json.dumps(line["object"])


def test_the_corpus_has_no_line_twice() -> None:
    assert len({line["shape"] for line in LINES}) == len(LINES)
    assert len(LINES) >= 300


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PIECES = st.sampled_from(
    [*'{}[]",:\'`<>\\ \n', '{"do": "', '"name"', '"arguments"', "```json\n", "<tool_call>", "</tool_call>",
     "<think>", "</think>", "weather(", "True", '{"a": ', "\ud800", "\x00", "Action: ", "-1e9"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXT.filter(lambda key: key not in ("do", "arguments")), VALUES, min_size=2, max_size=4)
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENTS), min_size=1, max_size=4)
# How fast values are drawn says nothing of the reader.
quietly = settings(suppress_health_check=[HealthCheck.too_slow])
PROSE = st.text("abc .\n", max_size=12)
WRITINGS = {
    "own": lambda name, args: json.dumps({"do": name, **args}),
    "named": lambda name, args: json.dumps({"name": name, "arguments": args}),
    "as text": lambda name, args: json.dumps({"tool": name, "args": json.dumps(args)}),
    "indented": lambda name, args: json.dumps({"name": name, "parameters": args}, indent=2, ensure_ascii=False),
    "fenced": lambda name, args: f"```json\n{json.dumps({'name': name, 'arguments': args})}\n```",
    "tagged": lambda name, args: f"<tool_call>\n{json.dumps({'name': name, 'arguments': args})}\n</tool_call>",
    "python": lambda name, args: repr({"name": name, "arguments": args}),
    "key": lambda name, args: json.dumps({name: args}),
}


@quietly
@given(st.lists(PIECES | TEXT, max_size=30).map("".join))
@example("<think>" * 3)
def test_no_text_raises(text: str) -> None:
    calls, rest = extract_calls(text, NAMES)
    assert isinstance(rest, str)
    assert len({(call.name, json.dumps(call.args)) for call in calls}) == len(calls)
    assert isinstance(extract_only_object(text), dict | None)


@quietly
@given(calls=CALLS, prose=st.lists(PROSE, min_size=5, max_size=5), writing=st.sampled_from([*WRITINGS]))
def test_calls_are_read_in_order_with_all_their_content(
    calls: list[tuple[str, dict[str, Any]]], prose: list[str], writing: str
) -> None:
    write = WRITINGS[writing]
    text = "\n".join(f"{before}\n{write(*call)}" for before, call in zip(prose, calls, strict=False))
    found, rest = extract_calls(text, NAMES)
    wanted = [*{json.dumps(call): RawCall(*call) for call in calls}.values()]
    assert json.dumps(found) == json.dumps(wanted)
    assert rest.split() == " ".join(prose[: len(calls)]).split()


@quietly
@given(st.dictionaries(TEXT.filter(lambda key: key not in NAMES), VALUES, min_size=1, max_size=3))
def test_the_fields_of_a_form_stay_content(fields: dict[str, Any]) -> None:
    text = json.dumps(fields)
    assert extract_calls(text, NAMES) == ([], text)
    assert extract_only_object(text) == fields


MEGABYTE = REPLY_LIMIT_BYTES
HOSTILE = {
    "braces": "{" * MEGABYTE,
    "objects that never end": '{"a":' * (MEGABYTE // 5),
    "strings that begin": '{"' * (MEGABYTE // 32),
    "strings that are escaped": '{"a":"' + '\\"{"' * (MEGABYTE // 32),
    "single quotes": "{'" * (MEGABYTE // 32),
    "deep, and closed": '{"a":' * (MEGABYTE // 6) + "}" * (MEGABYTE // 6),
    "brackets": "[" * MEGABYTE,
    "tags": "<tool_call>" * (MEGABYTE // 11),
    "thoughts": "<think></think>" * (MEGABYTE // 15),
    "fences": "```\n" * (MEGABYTE // 4),
    "signatures": "done(" * (MEGABYTE // 5),
    "tags of their own": "<function=a><parameter=b>" * (MEGABYTE // 25) + "</function>",
    "arguments in tags": "<function=a>" + "<parameter=b>" * (MEGABYTE // 13 - 10) + "</function>",
    "white space": "{" + " " * (MEGABYTE - 1),
    "duplicates": '{"a":1,"a":2}' * (MEGABYTE // 104),
    "more than the limit": '{"do": "done"}' * (MEGABYTE // 8),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_is_read_once(text: str) -> None:
    """A quadratic reader takes minutes for these."""
    assert extract_calls(text, NAMES)[0] == []
    assert extract_only_object(text) is None


def test_many_calls_are_all_read() -> None:
    text = "\n".join(json.dumps({"do": "stock", "item": n}) for n in range(5000))
    assert [call.args["item"] for call in extract_calls(text, NAMES)[0]] == [*range(5000)]


def test_an_object_says_where_it_stands() -> None:
    (found,) = find_objects("a {'b': 1} c")
    assert ("a {'b': 1} c"[found.start : found.end], found.value) == ("{'b': 1}", {"b": 1})
