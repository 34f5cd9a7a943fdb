"""Record classes by the type name in the journal, of the engine and of capabilities."""

from __future__ import annotations

from lemming.kernel.journal.journal_records import RECORDS, Record
from lemming.kernel.plugins.capability_loader import missing_reason, record_class
from lemming.kernel.plugins.capability_table import RECORDED


def find_record_class(name: str) -> type[Record] | None:
    """Return the record class for the `type` of a line, or None for an unknown type.

    Raises `ConfigError` if the type belongs to a capability that is not installed.
    """
    return RECORDS.get(name) or record_class(name)


def record_classes() -> dict[str, type[Record]]:
    """Return all record classes by the `type` of their lines, including the available capabilities' classes."""
    capability_records = {
        name: record_class(name)
        for name, (capability_name, _) in RECORDED.items()
        if not missing_reason(capability_name)
    }
    return RECORDS | capability_records
