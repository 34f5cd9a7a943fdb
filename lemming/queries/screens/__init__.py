"""Declared screens: each list that LeMMing shows is declared once, and shown everywhere."""
