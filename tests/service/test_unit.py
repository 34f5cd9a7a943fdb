"""`lemming service`: what it writes is what systemd and launchd read."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest
from callers import SECRET, served
from doorway import with_channel
from patience import PATIENCE_S
from terminal import Lemming

from lemming.operations.service_unit import ServiceUnit, render_launchd_agent, render_systemd_unit
from lemming.testing import make_org, resume

ODD = "/srv/50% of $HOME \"x\" \\ 'y'"

RUN = ["run-forever", "--interval", "600", "--health", "8642"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def service_in(folder: str) -> ServiceUnit:
    return ServiceUnit(
        name="news",
        folder=folder,
        program=["/usr/bin/env", "lemming"],
        options=["--interval", "600"],
        keys_file="/home/ada/.config/lemming/news.env",
        log_file="/tmp/news.log",
        health=8642,
    )


def test_a_service_is_started_again_after_settings_that_cannot_be_read_and_not_after_damage() -> None:
    assert "RestartPreventExitStatus=2 7\n" in render_systemd_unit(service_in("/srv/news"))


def verified(unit: Path, tmp_path: Path) -> str:
    """Return what systemd complains of in a unit; of others on this machine it may complain too."""
    (tmp_path / "run").mkdir(mode=0o700, exist_ok=True)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    words = ["systemd-analyze", "--user", "verify", str(unit)]
    ran = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
    own = [line for line in ran.stderr.splitlines() if unit.name in line]
    return "\n".join([*own, *([f"status {ran.returncode}"] if ran.returncode else [])])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
@pytest.mark.parametrize("folder", ["/srv/news", ODD])
def test_systemd_takes_the_unit(folder: str, tmp_path: Path) -> None:
    unit = tmp_path / "lemming-news.service"
    unit.write_text(render_systemd_unit(service_in(folder)))
    assert verified(unit, tmp_path) == ""


def test_the_command_line_is_quoted_for_systemd() -> None:
    [line] = [line for line in render_systemd_unit(service_in(ODD)).splitlines() if line.startswith("ExecStart=")]
    quoted = '"/srv/50%% of $$HOME \\"x\\" \\\\ \'y\'"'
    assert line == f"ExecStart=/usr/bin/env lemming -C {quoted} run-forever --interval 600 --health 8642"


def test_launchd_reads_the_property_list_and_the_shell_in_it_the_keys(tmp_path: Path) -> None:
    keys = tmp_path / "keys.env"
    keys.write_text("SOME_KEY=sesame\n")
    plain = plistlib.loads(render_launchd_agent(service_in(ODD)).encode())
    assert plain["Label"] == "org.lemming.news"
    words = plain["ProgramArguments"]
    assert words[5:] == ["/usr/bin/env", "lemming", "-C", ODD, *RUN]
    shown = subprocess.run([*words[:4], str(keys), "printenv", "SOME_KEY"], stdout=subprocess.PIPE, check=True)
    assert shown.stdout == b"sesame\n"
    assert subprocess.run([*words[:4], str(tmp_path / "none"), "true"], check=True).returncode == 0


def test_the_unit_is_put_where_systemd_looks_and_what_to_type_next_is_said(
    base: Path, lemming: Lemming, home: Path
) -> None:
    make_org(base, resume("ada"))
    ran = lemming("service", "--interval", "10m", "--wake-on-change")
    unit = home / "systemd/user/lemming-org.service"
    assert (ran.status, ran.out) == (0, f"{unit}\n")
    text = unit.read_text()
    assert f"-C {base} run-forever --interval 600 --wake-on-change\n" in text
    assert f"EnvironmentFile=-{home}/lemming/org.env" in text
    assert "systemctl --user enable --now lemming-org.service" in ran.err
    assert "loginctl enable-linger" in ran.err
    assert lemming("service").status == 0  # again, with other options: it is ours
    assert "--interval" not in unit.read_text()


def test_print_and_other_forms_write_nothing(base: Path, lemming: Lemming, home: Path) -> None:
    make_org(base, resume("ada"))
    assert lemming("service", "--print").out.startswith("# LeMMing")
    assert lemming("service", "--form", "compose").status == 2
    assert lemming("service", "--form", "launchd").out.startswith("<?xml")
    assert lemming("service", "--json", "--print").objects[0]["file"] == ""
    assert not home.exists()


def test_channels_are_seen_to_where_serve_is_given_and_told_of_where_it_is_not(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    assert lemming("service", "--print", "--serve", "8420").status == 2
    monkeypatch.setenv("DOOR_SECRET", SECRET)
    with_channel(base, {"to": "desk", "secret_env": "DOOR_SECRET"}, provider="http")
    nobody = "channels of door are not served"
    assert f"{nobody}: add --serve PORT" in lemming("service", "--print").err
    for form in "systemd", "launchd":
        ran = lemming("service", "--print", "--form", form, "--serve", "8420")
        assert "8420" in ran.out
        assert nobody not in ran.err
    assert f"{nobody}: no process here listens for http and mail" in lemming("doctor").out
    with served(base):
        assert nobody not in lemming("doctor").out


def test_the_unit_of_another_organisation_is_left_alone(
    base: Path, tmp_path: Path, lemming: Lemming, home: Path
) -> None:
    make_org(base, resume("ada"))
    lemming("service")
    unit = home / "systemd/user/lemming-org.service"
    theirs = unit.read_text().replace(str(base), "/srv/other/org")
    unit.write_text(theirs)
    ran = lemming("service")
    assert (ran.status, "lemming service --name org-2" in ran.err) == (2, True)
    assert unit.read_text() == theirs
    assert lemming("service", "--name", "org-2").status == 0
    assert lemming("service", "--name", "Org 2").status == 2


def test_settings_that_are_wrong_are_said_before_anything_is_written(base: Path, lemming: Lemming, home: Path) -> None:
    make_org(base, resume("ada"), org={"max_parallel": "many"})
    assert lemming("service").status == 3
    assert not home.exists()
