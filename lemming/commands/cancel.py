"""`lemming cancel`: end a request that nobody needs any more."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.capabilities.requests.entries import write_cancel
from lemming.commands.options import AsJson, AsPerson, RequestId, argument
from lemming.commands.org import find_org
from lemming.commands.screen import show, show_json, tell


def cancel(
    ctx: typer.Context,
    reference: RequestId,
    text: Annotated[list[str] | None, argument("WHY", "Why, for whoever holds it.")] = None,
    person: AsPerson = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a request: whoever holds it need not answer any more, and what was asked for it ends with it.

    A person may cancel what they asked, and what somebody holds who may read them. Prints the path of the
    entry that says so.

    \b
    Example:
      lemming cancel 3fa9c1 "it was answered on the phone"
    """
    entry = write_cancel(find_org(ctx), reference, person=person, text=" ".join(text or ()))
    if as_json:
        show_json("entry", entry.as_json())
        return
    show(entry.file)
    tell("cancelled; a turn that is under way for it may still answer", style="dim")
