"""The view of a declared screen: its table, and the parameters of its query."""

from __future__ import annotations

from inspect import Parameter
from typing import Any

from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.queries.screens.screen import Note, Screen, ScreenResult
from lemming.queries.screens.screen_registry import iter_screens, load_screen

Json = dict[str, Any]
MAX_ROWS = 500


def build_screen_view(org: OrgPath, *, screen: str = "status", **parameters: str) -> Json:
    """Return a screen with its table, for the values of the query's parameters; without required values, no table."""
    shown = load_screen(screen)
    forms = _describe_parameters(shown)
    is_complete = all(form["name"] in parameters for form in forms if form["is_required"])
    values = shown.parse_parameters(parameters)
    result = shown.load(Organisation.from_path(org), values) if is_complete else ScreenResult(())
    return {
        "screens": [{"name": other.name, "title": other.title} for other in iter_screens() if other.query],
        "parameters": forms,
        "is_complete": is_complete,
        **table_to_json(shown, result),
    }


def table_to_json(screen: Screen, result: ScreenResult) -> Json:
    """Return a screen's table: the columns, and for each row the cells and the values behind links and numbers."""
    rows = result.list_table_rows(MAX_ROWS)
    table = screen.to_table(rows)
    has_value = [column.shown != "text" or screen.is_number(column) for column in table.columns]
    errors = [Note(str(error), is_warning=True) for error in (*result.problems, *result.errors)]
    return {
        "name": screen.name,
        "title": screen.title,
        "command": f"lemming {screen.command or screen.name}",
        "empty": screen.empty,
        "columns": [
            {
                "key": column.key,
                "header": column.header,
                "about": column.about,
                "shown": column.shown,
                "is_number": screen.is_number(column),
            }
            for column in table.columns
        ],
        "rows": table.cells,
        "values": [
            [column.get(row) if is_shown else None for column, is_shown in zip(table.columns, has_value, strict=True)]
            for row in rows
        ],
        "total": len(result.rows),
        "notes": [note._asdict() for note in (*result.notes, *errors)],
    }


def _describe_parameters(screen: Screen) -> list[Json]:
    """Return the parameters of the query as fields of a form."""
    return [
        {
            "name": name,
            "about": declared.about,
            "is_agent": declared.is_agent,
            "is_choice": kind is bool,
            "is_required": parameter.default is Parameter.empty,
        }
        for name, (parameter, kind, declared) in screen.parameters.items()
    ]
