"""Resumes and settings are read again when they change, and only then; a change is seen at the next look."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files.disk import Disk, use_disk
from lemming.kernel.files.stat_cache import (
    FileReading,
    capture_states,
    has_exact_mtime,
    is_current,
    is_unchanged,
    probe_mtime_resolution,
    refresh_reading,
    to_identity,
)
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.testing import make_org, resume

pytestmark = pytest.mark.usefixtures("stamps")
RESUME = "agents/ada/resume.json"


@pytest.fixture
def org(base: Path) -> Organisation:
    return Organisation(make_org(base, resume("ada", title="v000"), resume("zed")))


def write(org: Organisation, **keys: object) -> None:
    (org.base / RESUME).write_text(json.dumps(resume("ada", **keys)))


def read_text(raw: bytes) -> str:
    return raw.decode()


def test_edits_of_the_same_size_at_the_same_instant_are_seen(org: Organisation) -> None:
    for number in range(200):  # far quicker than the kernel's clock ticks
        write(org, title=f"v{number:03d}")
        assert survey_agents(org).agents["ada"].title == f"v{number:03d}"


def test_a_file_that_changed_just_before_it_was_read_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("new")
    probe_mtime_resolution(file.stat)  # which tell nothing
    identity = to_identity(file.stat())
    before = FileReading("old", "digest of old", identity, is_settled=False)
    assert not is_current(before, str(file))
    assert refresh_reading(str(file), before, read_text, limit_bytes=9).outcome == "new"
    assert refresh_reading(str(file), None, read_text, limit_bytes=9).is_settled is False


def touches(file: Path, gap_ns: int) -> Callable[[], os.stat_result]:
    """Touch a file on a disk whose clock moves on by so much each time."""
    stamps = count(1_600_000_000_000_000_000, gap_ns)

    def touch() -> os.stat_result:
        plain = list(file.stat())
        return os.stat_result(plain, {"st_ctime_ns": next(stamps), "st_mtime_ns": 0})

    return touch


@pytest.mark.parametrize(("gap_ns", "tells"), [(3000, True), (1, True), (0, False)])
def test_stamps_tell_every_change_if_three_within_a_millisecond_differ(
    tmp_path: Path, gap_ns: int, tells: bool
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    probe_mtime_resolution(touches(file, gap_ns))
    assert has_exact_mtime(to_identity(file.stat())) is tells
    if tells:
        assert refresh_reading(str(file), None, read_text, limit_bytes=9).is_settled


def test_a_clock_that_ticked_once_tells_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    slow = iter([touches(file, 0)() for _ in range(2)])
    late = touches(file, 4_000_000)
    late()
    probe_mtime_resolution(lambda: next(slow, None) or late())
    assert not has_exact_mtime(to_identity(file.stat()))


class RefusesStamps(Disk):
    def touch(self, descriptor: int) -> None:
        raise PermissionError(errno.EPERM, "not permitted")


def test_an_engine_works_where_the_file_system_refuses_to_stamp_a_file(org: Organisation) -> None:
    with use_disk(RefusesStamps()):
        assert run_once(org).turns[0].status == "done"


def test_a_file_that_has_rested_is_current_until_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    status = file.stat()
    identity = to_identity(status)
    reading = FileReading("old", "digest of old", identity, is_settled=True)
    assert is_current(reading, str(file))
    file.chmod(0o600)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert not is_current(reading, str(file))
    file.unlink()
    assert not is_current(reading, str(file))


def test_a_file_that_came_to_rest_long_ago_is_settled() -> None:
    assert refresh_reading(os.__file__, None, read_text, limit_bytes=1 << 20).is_settled


def test_what_was_not_there_is_seen_when_it_comes(tmp_path: Path) -> None:
    missing = tmp_path / "folder/file"
    missing.parent.mkdir()
    while (looks := capture_states([str(missing)])) is None:  # until the folder has rested
        os.sched_yield()
    assert [path for path, _ in looks] == [f"{missing.parent}/."]
    assert is_unchanged(looks)
    missing.touch()
    assert not is_unchanged(looks)


def test_the_survey_of_agents_that_have_not_changed_is_the_same_value(org: Organisation) -> None:
    assert survey_agents(org) is survey_agents(org)


def test_an_agent_whose_resume_is_saved_unchanged_stays_the_same_value(org: Organisation) -> None:
    before = survey_agents(org).agents["ada"]
    shutil.copy(org.base / RESUME, org.base / "copy")
    (org.base / "copy").rename(org.base / RESUME)
    assert survey_agents(org).agents["ada"] is before


def test_a_resume_put_in_the_place_of_another_is_seen(org: Organisation) -> None:
    survey_agents(org)
    (org.base / "new").write_text(json.dumps(resume("ada", title="v001")))
    (org.base / "new").rename(org.base / RESUME)
    assert survey_agents(org).agents["ada"].title == "v001"


def test_a_resume_that_is_gone_is_missed_and_one_that_comes_back_is_seen(org: Organisation) -> None:
    survey_agents(org)
    (org.base / RESUME).rename(org.base / "away")
    without = survey_agents(org)
    assert (list(without.agents), without.broken) == (["zed"], {})
    assert "an agent must have a resume.json" in without.warnings[0].message
    (org.base / "away").rename(org.base / RESUME)
    assert list(survey_agents(org).agents) == ["ada", "zed"]


def test_an_agent_whose_folder_is_gone_is_gone(org: Organisation) -> None:
    survey_agents(org)
    shutil.rmtree(org.base / "agents/ada")
    assert list(survey_agents(org).agents) == ["zed"]
    make_org(org.base, resume("bea"))
    assert list(survey_agents(org).agents) == ["bea", "zed"]


@pytest.mark.parametrize("linked", [RESUME, "agents/ada"])
def test_a_link_in_the_place_of_what_was_read_is_refused(org: Organisation, linked: str) -> None:
    survey_agents(org)
    (org.base / linked).rename(org.base / "elsewhere")
    (org.base / linked).symlink_to(org.base / "elsewhere")
    assert "got a symbolic link" in str(survey_agents(org).broken["ada"])


def test_a_resume_that_breaks_and_is_mended_is_seen_both_times(org: Organisation) -> None:
    survey_agents(org)
    write(org, schedule={"run_every_n_ticks": 0})
    assert "expected a number of at least 1" in str(survey_agents(org).broken["ada"])
    write(org)
    assert survey_agents(org).broken == {}


def test_what_is_wrong_is_said_the_same_at_every_look(org: Organisation) -> None:
    write(org, colour="odd")
    (org.base / "agents/zed/resume.json").write_text('{"name": "zed", ')
    (org.base / "agents/bad name").mkdir()
    looks = [survey_agents(org) for _ in range(3)]
    said = [(look.warnings, {name: str(error) for name, error in look.broken.items()}) for look in looks]
    assert said[0] == said[1] == said[2]
    assert [len(said[0][0]), list(said[0][1])] == [1, ["bad name", "zed"]]


def test_a_setting_is_seen_as_soon_as_it_is_edited(org: Organisation) -> None:
    for number in range(100, 200):
        (org.base / "config/org.json").write_text(json.dumps({"retention_ticks": number}))
        assert load_config(org).org.retention_ticks == number


def test_an_option_that_turns_from_one_into_true_is_seen(org: Organisation) -> None:
    for option in (1, True, 1.0):
        entry = {"provider": "scripted", "options": {"loud": option}}
        (org.base / "config/models.json").write_text(json.dumps({"scripted": entry}))
        assert repr(load_config(org).model("scripted").options) == repr({"loud": option})


def test_settings_that_break_are_refused_at_every_look_until_they_are_mended(org: Organisation) -> None:
    file = org.base / "config/org.json"
    file.write_text('{"retention_ticks": -1}')
    for _ in range(2):
        with pytest.raises(ConfigError, match="expected a number of at least 0"):
            load_config(org)
    file.write_text('{"retention_tick": 1}')
    for _ in range(2):
        with pytest.raises(ConfigError, match='did you mean "retention_ticks"'):
            load_config(org)
    file.unlink()
    assert load_config(org).warnings == ()


def test_settings_that_come_into_a_folder_behind_a_link_are_seen(org: Organisation) -> None:
    (org.base / "config").rename(org.base / "elsewhere")
    (org.base / "config").symlink_to(org.base / "elsewhere")
    for limit in (1, 2):
        assert load_config(org).allocations == {}
        (org.base / "config/credits.json").write_text(json.dumps({"ada": {"max_credits": limit}}))
        assert load_config(org).allocations["ada"].max_credits == limit
        (org.base / "config/credits.json").write_text("{}")
