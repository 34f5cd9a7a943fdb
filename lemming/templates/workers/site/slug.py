"""Names of pages in addresses."""


def to_slug(title: str) -> str:
    """Return the name of a page in its address."""
    return title.lower().replace(" ", "")
