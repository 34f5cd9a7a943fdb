"""Goals: a request with `until` is answered once checks and a judge say that its goal is reached (docs/requests.md)."""
