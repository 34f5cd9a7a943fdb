"""Asking an organisation from a program: questions, what came of them, what waits for people."""
