"""`lemming run-once --dry-run`: the plan of the tick and the prompt of each turn, and nothing is done."""

from __future__ import annotations

from lemming.commands.prompt import as_json_prompt, show_messages
from lemming.commands.screen import one_line, painted, show, show_json, tell
from lemming.commands.trust import load_settings
from lemming.facts.preview import Preview, preview_tick
from lemming.org.organisation import OrgPath


def show_next_tick(base: OrgPath, *, as_json: bool) -> None:
    """Show the next tick: who would fire, in what order, and what each would be sent."""
    preview = preview_tick(base, load_settings(base))
    if as_json:
        show_json("tick_started", preview.plan.as_json())
    else:
        _tell_plan(preview)
    for name in preview.plan.order:
        _show_turn(preview, name, as_json=as_json)
    if not as_json:
        tell("dry run: no model was asked and nothing was written")


def _tell_plan(preview: Preview) -> None:
    continued = " (continued)" if preview.is_interrupted else ""
    tell(f"tick {preview.tick}{continued}: {', '.join(preview.plan.order) or 'nobody is due'}", style="bold")
    for name, why in preview.plan.broken.items():
        tell(f"  {name}: broken: {one_line(why, 400)}")


def _show_turn(preview: Preview, name: str, *, as_json: bool) -> None:
    why = preview.reason_of(name)
    reason = "" if why.takes_turn else why.text
    if as_json:
        if reason:
            show_json("no_turn", {"agent": name, "tick": preview.tick, "reason": reason})
        else:
            show_json("prompt", as_json_prompt(preview.inputs_regardless(name)))
        return
    show(painted(f"=== {name}", "bold"))
    if reason:
        show(f"no turn: {reason}")
    else:
        show_messages(preview.inputs_regardless(name))
    if others := preview.waits_for(name):
        show(f"(and whatever {', '.join(others)} would write before it in this tick)")
    show()
