"""Time zones by their names, and what is wrong with one."""

from __future__ import annotations

from datetime import tzinfo

from lemming.kernel.base.jsontext import nearest


def why_no_zone(name: str) -> tuple[str, str] | None:
    """Return what is wrong with the name of a time zone, with the nearest one; None when nothing is.

    >>> why_no_zone("Europe/Berlni")
    ('there is no time zone "Europe/Berlni"', 'did you mean "Europe/Berlin"?')
    """
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = {zone.lower(): zone for zone in zoneinfo.available_timezones()}
        cities = {zone.rpartition("/")[2]: zone for zone in known}
        near = nearest(name.lower(), list(known)) or nearest(name.lower().replace(" ", "_"), list(cities))
        word = near.removeprefix('did you mean "').removesuffix('"?')
        zone = known.get(word) or known.get(cities.get(word, ""))
        hint = f'did you mean "{zone}"?' if zone else "they are called as Europe/Berlin is"
        return f'there is no time zone "{name}"', hint
    return None


def zone(name: str) -> tzinfo:
    """Return the time zone of that name, which `why_no_zone` has nothing to say of."""
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)
