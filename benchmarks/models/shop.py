"""Tools of the suite as plain functions, for each framework to wrap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

WEATHER = {"oslo": "snow, -4 C", "rome": "sun, 19 C"}
STOCK = {"lamp": "14 pieces", "chair": "0 pieces"}
PRICES = {"lamp": "39 euros", "chair": "85 euros"}
CUSTOMERS = {"mira": "customer 7182"}
ORDERS = {"7182": "orders: A51, A64"}


def word_count(text: str) -> str:
    """Count the words of a text."""
    return f"{len(text.split())} words"


def multiply(a: float, b: float) -> str:
    """Multiply two numbers."""
    return f"{a * b:g}"


def weather(city: str) -> str:
    """Get the weather of a city."""
    return look_up(WEATHER, city)


def stock(item: str) -> str:
    """Get the number of pieces in stock."""
    return look_up(STOCK, item)


def price(item: str) -> str:
    """Get the price of an item."""
    return look_up(PRICES, item)


def find_customer(name: str) -> str:
    """Find a customer's number by name."""
    return look_up(CUSTOMERS, name)


def list_orders(customer: str) -> str:
    """List the orders of a customer number."""
    return look_up(ORDERS, customer)


def look_up(table: Mapping[str, str], text: str) -> str:
    """Return the value of the first key contained in a text.

    >>> look_up(STOCK, "lamps"), look_up(STOCK, "tables")
    ('14 pieces', 'unknown: tables')
    """
    return next((value for key, value in table.items() if key in text.lower()), f"unknown: {text}")


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    word_count, multiply, weather, stock, price, find_customer, list_orders
)  # fmt: skip
