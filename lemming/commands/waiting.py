"""`lemming waiting`: items waiting for a person, and the exact calls waiting for approval.

Foreign text is printed in full: nothing is cut, and invisible characters are made visible. A line starts
after "|"; the part that exceeds the width of the terminal continues after "»".
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from lemming.commands.command_context import CommandContext, Limit, argument, option
from lemming.commands.terminal import Style, get_terminal_width, print_data, print_notice, style_text
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.journal.open_requests import SHOW
from lemming.kernel.messages import parse_identities
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.libraries.invisible_text import find_suspicious_text, show_invisible
from lemming.libraries.outbox_files import read_entry
from lemming.obligations.ledger_calls import find_pending_call
from lemming.obligations.org_requests import load_requests
from lemming.obligations.pending_actions import CallPatch, find_call_review
from lemming.obligations.request_view import RequestView
from lemming.obligations.write_decisions import find_pending_request
from lemming.queries.screens.requests_screen import WAITING, list_waiting

_MISSING_FILE = "(missing)"
_MAX_SPACES, _MAX_EMPTY_LINES, _MIN_WIDTH = 60, 3, 20
_LONG_GAP = re.compile(rf" {{{_MAX_SPACES},}}")


def print_call(
    org: OrgPath, request: RequestView, call: Mapping[str, Any], approvers: Sequence[tuple[str, str]]
) -> None:
    """Print a waiting call in full; `approvers` lists each person with the deadline."""
    served = load_requests(Organisation.from_path(org)).requests.by_identity.get(request.parent or "")
    review = find_call_review(call["tool"])
    print_data(style_text(f"call {call['id']}", "bold"))
    print_wrapped("tool", call["tool"])
    print_wrapped("asks because", f"{call['why']} ({call['gate']})")
    for person, deadline in approvers:
        print_wrapped("asked", f"{person}: {deadline}")
    if served:
        print_data(f"for request {served.id} of {served.asker}:")
        print_in_full(served.text)
    if review:
        print_wrapped("asker", request.asker)
        print_patch(review.load_patch(Organisation.from_path(org), call["args"]))
    else:
        for key, value in call["args"].items():
            print_data(f"argument {_mark_invisible_text(key)}:")
            print_in_full(value if isinstance(value, str) else dump_pretty(value).decode().rstrip("\n"))
        if not call["args"]:
            print_data("no arguments")
    print_data("the approval covers exactly this call, once" + (", and bound to:" if call["binds"] else ""))
    for path, digest in call["binds"].items():
        print_wrapped("", f"{path} {digest or _MISSING_FILE}")
    if call.get("unbound"):
        print_data("NOT bound, may change before the call runs:")
        for line in call["unbound"]:
            print_wrapped("", line)
    for note in find_suspicious_text(call["args"]):
        print_wrapped("look closely", note)
    if (diff := str(call.get("diff") or "")) and not review:
        print_data("what it would write or affect:")
        print_in_full(diff)


def print_patch(patch: CallPatch) -> None:
    """Print the patch of a call: warnings first, then the tree of files, then all changes by file."""
    print_data(style_text(_mark_invisible_text(patch.title), "bold"))
    if patch.problem:
        print_wrapped("CANNOT BE APPROVED", patch.problem)
    for path, reason in patch.flags.items():
        print_wrapped("look closely", f"{path}: {reason}")
    print_wrapped("summary", patch.summary)
    for label, value in patch.facts.items():
        print_wrapped(label, value)
    count = len(patch.files)
    print_data(f"{count} {'file' if count == 1 else 'files'}, +{patch.insertions} -{patch.deletions}")
    for line in format_tree(patch.files):
        print_in_full(line)
    for file in patch.files:
        print_data()
        print_data(style_text(_mark_invisible_text(_format_file(file, file["path"])), "bold"))
        for hunk in file["hunks"]:
            print_in_full(hunk["header"], "dim")
            for mark, text in hunk["lines"]:
                print_in_full(f"{mark}{text}", _LINE_STYLES.get(mark, "plain"))
    print_data()


_STATUSES = {"A": "new file", "D": "removed", "T": "of another type now", "M": ""}
_LINE_STYLES: dict[str, Style] = {"+": "green", "-": "red", "\\": "dim"}


def format_tree(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a tree of changed files, with folders above their files.

    >>> file = {"status": "A", "insertions": 2, "deletions": 0, "is_binary": False}
    >>> list(format_tree([{**file, "path": "src/a.txt"}, {**file, "path": "src/b/c.txt"}]))
    ['src/', '  a.txt  +2 -0, new file', 'src/b/', '  c.txt  +2 -0, new file']
    """
    folder = ""
    for file in files:
        own_folder, _, name = file["path"].rpartition("/")
        if own_folder != folder:
            folder = own_folder
            yield from [f"{folder}/"] if folder else []
        yield ("  " if own_folder else "") + _format_file(file, name)


def _format_file(file: Mapping[str, Any], name: str) -> str:
    size_bytes = f" ({file['size_bytes']:,} bytes)" if file.get("size_bytes") else ""
    size = f"binary{size_bytes}" if file["is_binary"] else f"+{file['insertions']} -{file['deletions']}"
    return f"{name}  {', '.join(filter(None, (size, _STATUSES.get(file['status'], ''))))}"


def print_in_full(text: str, style: Style = "plain") -> None:
    """Print a text with each line wrapped and invisible characters shown as numbers."""
    width = get_terminal_width(sys.stdout) - 4
    for line, repeats in groupby(text.split("\n")):
        count = len([*repeats])
        if line == "" and count > _MAX_EMPTY_LINES:
            print_data(f"  ⟨{count:,} empty lines⟩")
            continue
        parts = [*_wrap_text(_mark_invisible_text(line), width)]
        for number, part in [*enumerate(parts)] * count:
            print_data(f"  {'»' if number else '|'} {style_text(part, style)}" if line else "  |")


def print_wrapped(label: str, text: str) -> None:
    """Print a line with a label, wrapped at the width of the terminal."""
    indent = f"{label}  " if label else "  "
    width = get_terminal_width(sys.stdout) - len(indent)
    for number, part in enumerate(_wrap_text(_mark_invisible_text(text), width, at_spaces=True)):
        print_data(f"{indent if not number else ' ' * (len(indent) - 2) + '» '}{part}")


def _mark_invisible_text(text: str) -> str:
    """Replace invisible characters with their numbers, and long gaps with their lengths."""
    return _LONG_GAP.sub(lambda gap: f"⟨{len(gap[0]):,} spaces⟩", show_invisible(text))


def _wrap_text(text: str, width: int, *, at_spaces: bool = False) -> Iterator[str]:
    width = max(width, _MIN_WIDTH)
    while len(text) > width:
        end = (text.rfind(" ", width // 2, width) + 1 if at_spaces else 0) or width
        yield text[:end]
        text = text[end:]
    yield text


ForPerson = Annotated[str | None, option("--as PERSON", "Show items for this person only.")]


def waiting(
    context: CommandContext,
    reference: Annotated[str | None, argument("ID", "Show one item in full: id of the request or of its call.")] = None,
    person: ForPerson = None,
    limit: Limit = None,
) -> None:
    """List calls, questions and plans that wait for a person, oldest first.

    Each item shows the needed decision, the person, the age, and the effect of the deadline. With an ID, the
    output shows one item in full: the call, its request, the reason for the approval, the bound files, the
    parts that may still change, and the effects. Nothing is cut: longer lines continue after "»", and invisible characters
    are shown as numbers. Exit status 1: an item waits.

    \b
    Examples:
      lemming waiting
      lemming waiting 3fa9c1
      lemming waiting > /dev/null || notify-send "somebody waits for you"
      lemming waiting --json | jq -r 'select(.call) | .call.id'
    """
    base = context.org
    items = list_waiting(base, person)
    if reference is not None:
        request, call = find_pending_request(base, reference)[1:]
        items = [item for item in items if item.identity == request.identity]
        if call and not context.as_json:
            shown_call = find_pending_call(request, {request.identity: call}) or call
            with contextlib.suppress(ConfigError, FileNotFoundError, StopIteration):
                if call["tool"] == SHOW:  # the approval shows an entry
                    entry = read_entry(base, next(iter(parse_identities([call["args"]["entry"]]))))
                    shown_call = {**shown_call, "diff": dump_pretty(entry.as_json()).decode()}
            print_call(base, request, shown_call, [(item.person, item.at_deadline) for item in items])
            raise typer.Exit(1)
    for item in context.limit_rows(items, limit):
        if not context.print_as_json("waiting", WAITING.to_json(item)):
            print_wrapped(item.id, item.summary_line)
    if items and not context.as_json:
        print_notice("`lemming approve ID` or `lemming deny ID` decides a call, `lemming answer ID TEXT` answers a question, "
             "`lemming waiting ID` shows one item in full", style="dim")  # fmt: skip
    if not items and not context.as_json:
        print_data(WAITING.empty)
    raise typer.Exit(1 if items else 0)
