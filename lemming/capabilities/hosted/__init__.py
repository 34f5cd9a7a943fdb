"""Hosted models: what OpenAI, Anthropic, Ollama and servers that speak as they do are asked, and answer."""
