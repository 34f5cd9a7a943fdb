"""The built-in tools: a file per family, loaded when an agent may call them, and a call's error boundary."""
