"""Prices of models in dollars, and spending of turns."""
