"""Many turns at once through the real SDK of OpenAI: LeMMing beside other frameworks, in one run."""
