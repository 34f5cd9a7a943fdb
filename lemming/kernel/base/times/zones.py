"""Time zones by name, and validation of names."""

from __future__ import annotations

from datetime import tzinfo

from lemming.kernel.base.jsontext import did_you_mean


def zone_error(name: str) -> tuple[str, str] | None:
    """Return the error and a suggestion for an invalid time zone name, or None for a valid name.

    >>> zone_error("Europe/Berlni")
    ('time zone "Europe/Berlni" does not exist', 'did you mean "Europe/Berlin"?')
    """
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        names_by_lowercase = {zone_name.lower(): zone_name for zone_name in zoneinfo.available_timezones()}
        cities = {zone_name.rpartition("/")[2]: zone_name for zone_name in names_by_lowercase}
        hint_text = did_you_mean(name.lower(), list(names_by_lowercase)) or did_you_mean(
            name.lower().replace(" ", "_"), list(cities)
        )
        suggestion = hint_text.removeprefix('did you mean "').removesuffix('"?')
        zone_name = names_by_lowercase.get(suggestion) or names_by_lowercase.get(cities.get(suggestion, ""))
        hint = f'did you mean "{zone_name}"?' if zone_name else "write a name such as Europe/Berlin"
        return f'time zone "{name}" does not exist', hint
    return None


def get_zone(name: str) -> tzinfo:
    """Return the time zone with a valid name, as checked by `zone_error`."""
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)
