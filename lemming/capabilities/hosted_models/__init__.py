"""Hosted models: requests to and answers from OpenAI, Anthropic, Ollama and compatible servers."""
