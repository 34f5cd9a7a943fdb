"""MCP: servers with tools for agents, by the Model Context Protocol, and the organisation as a server.

The SDK is imported only when a session starts (`session.py`).
"""
