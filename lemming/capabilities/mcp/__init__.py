"""MCP: servers whose tools agents may call, by the Model Context Protocol, and being such a server.

The SDK is imported where a session begins (`session.py`), and by nothing that only looks.
"""
