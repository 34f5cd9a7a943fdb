"""Every command, view, page and help text without the folder of a capability."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from taken_out import NAMED_BY_ALL, NAMES_IT, PEOPLE, TESTS, plain, python, without

from lemming.engine import run_once
from lemming.kernel.plugins.capability_table import LISTED, SHIPPED, provided
from lemming.testing import FrozenClock, make_org, resume, say


@pytest.fixture(scope="module")
def plain_org(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation of two agents and a person that has run two ticks and uses no capability."""
    reads = {"read_outboxes": ["*"]}
    agents = [resume(name, permissions=reads) for name in ("ada", "bob")]
    human = resume("human", model={"key": "human"}, permissions=reads)
    script = [{"reply": say("hello", memory_updates=[{"key": "seen", "value": 1}])}]
    base = make_org(tmp_path_factory.mktemp("plain") / "org", *agents, human, models=PEOPLE, script=script)
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    return base


def needed_by(name: str) -> set[str]:
    """Return the capability and all that need it; "": all that may be absent."""
    users, found = {name} if name else {*SHIPPED}, set[str]()
    while users:
        found |= users
        users = {it for it, spec in LISTED.items() if found.intersection(spec.needs)} - found
    return found


SAMPLE = ("", "gates", "requests")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in SAMPLE else pytest.mark.long) for name in ("", *LISTED)],
)
def test_each_command_and_view_is_there_without_it(tmp_path: Path, plain_org: Path, name: str) -> None:
    """A command of what is absent says so; all others, the page and each help text are as ever."""
    base, place = Path(shutil.copytree(plain_org, tmp_path / "org")), without(name, tmp_path / "taken")
    ran = python(place, str(TESTS / "command_matrix.py"), str(base))
    assert ran.returncode == 0, ran.stderr
    results: dict[str, tuple[int, str]] = json.loads(ran.stdout)
    absent = needed_by(name)
    its_own = {command for command, (owner, _) in provided("screens", "commands").items() if owner in absent}
    assert its_own <= {word for it in results for word in it.split()[:2]}
    asks_a_model = name == "scripted"
    for command, (status, text) in results.items():
        if its_own.intersection(command.split()[:2]):
            assert (status, '" is not installed: ' in text) == (2, True), (command, text)
        elif asks_a_model and status:
            assert f'"{name}" is not installed' in text, (command, text)
        else:
            assert (status, text if status else "") == (0, ""), (command, text)


@pytest.mark.long
@pytest.mark.parametrize("name", dict.fromkeys((*(it for it in NAMES_IT if NAMES_IT[it]), *NAMED_BY_ALL)))
def test_the_screens_of_an_organisation_that_uses_it_say_what_is_missing(tmp_path: Path, name: str) -> None:
    base = plain(tmp_path / "org", **NAMES_IT.get(name, [{}])[0])
    theirs = base / "agents/ada/resume.json"
    uses_it, without_it = theirs.read_text(), (base / "agents/bob/resume.json").read_text()
    theirs.write_text(without_it.replace('"bob"', '"ada"'))
    run_once(base, clock=FrozenClock())
    theirs.write_text(uses_it)
    if name in NAMED_BY_ALL:
        (base / "config/org.json").write_text(json.dumps(NAMED_BY_ALL[name]))
    ran = python(without(name, tmp_path / "taken"), str(TESTS / "command_matrix.py"), str(base))
    assert ran.returncode == 0, ran.stderr
    results: dict[str, tuple[int, str]] = json.loads(ran.stdout)
    assert f'"{name}" is not installed' in results["validate"][1]
    broken = {it: text for it, (_, text) in results.items() if "internal error" in text or "Traceback" in text}
    assert broken == {}
    assert results["page /"][0] == 0
