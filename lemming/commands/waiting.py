"""`lemming waiting`: what waits for a person, and the exact calls that wait for approval.

A text of somebody else's is shown whole: nothing is cut, and what would not be seen is told. A line begins
behind "|"; what does not fit into the terminal goes on behind "»".
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from lemming.capabilities.requests.now import RequestsNow, find_request, requests_now
from lemming.capabilities.requests.view import RequestView
from lemming.capabilities.requests.waiting import waiting as what_waits
from lemming.commands.options import Here, Limit, argument, option, require_folder
from lemming.commands.screen import painted, show, tell, width_of
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import pretty
from lemming.kernel.base.unseen import notes_on, with_unseen_shown
from lemming.kernel.messages import names_of, read_entry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capabilities import missing_for_command

NOT_THERE = "(not there)"
LONGEST_RUN, MOST_EMPTY, NARROWEST = 60, 3, 20
_RUN = re.compile(rf" {{{LONGEST_RUN},}}")


def show_call(call: Mapping[str, Any], asked: Sequence[tuple[str, str]]) -> None:
    """Print a call that waits for approval, all of it; `asked`: who is asked, and until when."""
    show(painted(f"call {call['id']}", "bold"))
    show_folded("tool", call["tool"])
    show_folded("asks because", f"{call['why']} ({call['gate']})")
    for person, until in asked:
        show_folded("asked", f"{person}: {until}")
    for key, value in call["args"].items():
        show(f"argument {_seen(key)}:")
        show_whole(value if isinstance(value, str) else pretty(value).decode().rstrip("\n"))
    if not call["args"]:
        show("no arguments")
    show("the approval is for exactly this, once" + (", and bound to:" if call["binds"] else ""))
    for path, digest in call["binds"].items():
        show_folded("", f"{path} {digest or NOT_THERE}")
    if call.get("unbound"):
        show("NOT bound, and may change before it is made:")
        for line in call["unbound"]:
            show_folded("", line)
    for note in notes_on(call["args"]):
        show_folded("look closely", note)
    if diff := str(call.get("diff") or ""):
        show("what it would write, or is about:")
        show_whole(diff)


def show_whole(text: str) -> None:
    """Print a text, each of its lines folded, and what is not seen in it as numbers."""
    empty = 0
    for line in [*text.split("\n"), None]:
        if line == "":
            empty += 1
            continue
        if empty > MOST_EMPTY:
            show(f"  ⟨{empty:,} empty lines⟩")
        else:
            for _ in range(empty):
                show("  |")
        empty = 0
        if line is not None:
            for number, part in enumerate(_folded(_seen(line), width_of(sys.stdout) - 4)):
                show(f"  {'»' if number else '|'} {part}")


def show_folded(head: str, text: str) -> None:
    """Print a line with a head, folded where the terminal ends."""
    indent = f"{head}  " if head else "  "
    width = width_of(sys.stdout) - len(indent)
    for number, part in enumerate(_folded(_seen(text), width, at_spaces=True)):
        show(f"{indent if not number else ' ' * (len(indent) - 2) + '» '}{part}")


def _seen(text: str) -> str:
    """Return a text in which what is not seen stands as its number, and long gaps as their length."""
    return _RUN.sub(lambda found: f"⟨{len(found[0]):,} spaces⟩", with_unseen_shown(text))


def _folded(text: str, width: int, *, at_spaces: bool = False) -> Iterator[str]:
    width = max(width, NARROWEST)
    while len(text) > width:
        cut = (text.rfind(" ", width // 2, width) + 1 if at_spaces else 0) or width
        yield text[:cut]
        text = text[cut:]
    yield text


ForPerson = Annotated[str | None, option("--as PERSON", "Only what waits for PERSON.", of_agents=True)]


def waiting(
    here: Here,
    reference: Annotated[
        str | None, argument("ID", "One of them whole: a request's id, or that of its call.")
    ] = None,
    person: ForPerson = None,
    limit: Limit = None,
) -> None:
    """Show what waits for a person: calls that need approval, questions, plans to approve; the oldest first.

    Each with what is needed, for whom, since when, and what happens at its deadline. With an ID: the whole
    call, why it asks, the files it is bound to, what of it may yet change, and what it would write. Nothing
    of it is cut: longer lines go on behind "»", invisible characters are shown as their numbers. Exit status
    1 says that something waits.

    \b
    Examples:
      lemming waiting
      lemming waiting 3fa9c1
      lemming waiting > /dev/null || notify-send "somebody waits for you"
      lemming waiting --json | jq -r 'select(.call) | .call.id'
    """
    base = here.org
    if person is not None:
        require_folder(base, person)
    items = [item for item in what_waits(base) if person in (None, item.person)]
    if reference is not None:
        request, call = meant(base, reference)[1:]
        items = [item for item in items if item.identity == request.identity]
        if call and not here.as_json:
            show_call(_whole(base, request, call), [(item.person, item.at_deadline) for item in items])
            raise typer.Exit(1)
    for item in here.few(items, limit):
        if not here.shows("waiting", item.as_json()):
            show_folded(item.id, item.line)
    if items and not here.as_json:
        tell("`lemming approve ID` or `lemming deny ID` decides, `lemming answer ID TEXT` answers, "
             "`lemming waiting ID` shows one whole", style="dim")  # fmt: skip
    if not items and not here.as_json:
        show("nothing waits for a person")
    raise typer.Exit(1 if items else 0)


def meant(base: OrgPath, reference: str) -> tuple[RequestsNow, RequestView, dict[str, Any] | None]:
    """Return the request that is meant, and the call that waits there for what is answered, if one does."""
    if missing_for_command("approve"):
        now = requests_now(base)
        return now, find_request(now.requests, reference), None
    from lemming.capabilities.approvals.deciding import find_waiting

    return find_waiting(base, reference)


def _whole(base: OrgPath, request: RequestView, call: dict[str, Any]) -> dict[str, Any]:
    """Return a call as it is shown, with the entry that somebody is to be shown by it."""
    from lemming.capabilities.approvals.waiting import SHOW
    from lemming.capabilities.approvals.waiting_calls import call_of

    shown = call_of(request, {request.identity: call}) or call
    with contextlib.suppress(ConfigError, FileNotFoundError, StopIteration):
        if call["tool"] == SHOW:
            entry = read_entry(base, next(iter(names_of([call["args"]["entry"]]))))
            shown = {**shown, "diff": pretty(entry.as_json()).decode()}
    return shown
