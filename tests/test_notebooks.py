"""What a notebook shows of an organisation and of a tick; nothing of it is imported before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lemming.engine import recorded_report, run_once, run_tick
from lemming.kernel.org.organisation import Organisation
from lemming.testing import make_org, resume, say

SHOWN = {"lemming.kernel.base.html_tables", "lemming.kernel.org.org_notebook", "lemming.kernel.journal.tick_notebook"}


def test_an_organisation_is_a_table_of_its_agents(tmp_path: Path) -> None:
    ada = resume("ada", instructions="Sum <i>up</i>.", schedule={"run_every_n_ticks": 4, "wake": "changed"})
    make_org(tmp_path, ada, resume("bob", paused="since Monday"))
    (tmp_path / "agents/eve").mkdir()
    (tmp_path / "agents/eve/resume.json").write_text("{")
    (tmp_path / "agents/nobody").mkdir()
    shown = Organisation(tmp_path)._repr_html_()
    rows = shown.split("<tr>")[2:]
    assert [row.count("<td>") for row in rows] == [6, 6, 6]
    assert "Sum &lt;i&gt;up&lt;/i&gt;." in rows[0]
    assert "every 4 ticks, if changed" in rows[0]
    assert "paused" in rows[1]
    assert "broken" in rows[2]
    assert "agents/eve/resume.json:1" in rows[2]
    assert "agents: 0" in Organisation(tmp_path / "nothing")._repr_html_()


def test_a_tick_is_what_happened_in_it(tmp_path: Path) -> None:
    script = [
        {"agent": "ada", "reply": say("<b>hello</b>\u202e")},
        {"agent": "bob", "reply": say("", outbox_entries=[{"kind": "report", "payload": {"n": 1}, "tags": []}])},
    ]
    make_org(tmp_path, resume("ada"), resume("bob"), resume("eve"), script=script)
    report = run_once(tmp_path)
    shown = report._repr_html_()
    assert "tick 1: 2 done, entries: 2, 1 failed" in shown
    assert "message: &lt;b&gt;hello&lt;/b&gt;\\u202e" in shown
    assert "report: {&quot;n&quot;: 1}" in shown
    assert "outbox" not in shown
    assert report.by_status("failed")[0].reason[:20] in shown
    again = recorded_report(tmp_path, 1)
    assert again == run_tick(tmp_path, 1)
    assert again is not None
    assert "hello" in again._repr_html_()
    (gone,) = tmp_path.glob("agents/ada/outbox/*.json")
    gone.unlink()
    assert f"message: agents/ada/outbox/{gone.name}" in report._repr_html_()


def test_who_shows_nothing_imports_nothing_of_it(tmp_path: Path) -> None:
    make_org(tmp_path, resume("ada"), resume("human", model={"key": "human"}), models={"human": {"provider": "human"}})
    code = (
        "import lemming, sys, lemming.engine; lemming.engine.run_once(sys.argv[1]); "
        "lemming.ask(sys.argv[1], 'ada', 'what?', timeout_s=30); print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert (loaded & SHOWN, "lemming.client" in loaded) == (set(), True)
