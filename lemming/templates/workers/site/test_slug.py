"""Tests of slugs: python3 test_slug.py."""

from slug import to_slug


def test_a_slug_has_hyphens_between_words() -> None:
    """A slug is read by people."""
    assert to_slug("Opening Hours 2027") == "opening-hours-2027"


if __name__ == "__main__":
    test_a_slug_has_hyphens_between_words()
    print("1 test passed")
