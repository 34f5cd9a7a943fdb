"""An extension of Griffe for the site: the examples of a docstring are code, not quotations and links."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class DoctestFences(griffe.Extension):  # type: ignore[misc,unused-ignore] # griffe is not always there
    """Puts a fence around examples."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of a class, function or attribute that was read."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
