"""The built-in tools: one file per family, loaded when an agent may call them, and the error boundary of a
call.
"""
