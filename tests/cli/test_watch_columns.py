"""`lemming status --watch` names its columns, and says whom it does not show."""

from __future__ import annotations

from pathlib import Path

from lemming.commands.watch import build_screen_data, render_screen
from lemming.kernel.org.organisation import Organisation
from lemming.testing import make_org, resume


def test_columns_have_names_and_who_is_not_shown_is_counted(base: Path) -> None:
    make_org(base, *(resume(f"a{number:02}") for number in range(30)))
    org = Organisation(base)
    screen = render_screen(build_screen_data(org, 24), 100, 24)
    (head,) = [line for line in screen if "AGENTS" in line]
    shown = sum(line.startswith("  a") for line in screen)
    assert f"AGENTS 30, {30 - shown} not shown" in head
    assert 0 < shown < 30
    names = screen[screen.index(head) + 1].split("  ")
    assert {"name", "now", "reason, or last entry", "credits"} <= {name.strip() for name in names}
    assert len(screen) <= 24
