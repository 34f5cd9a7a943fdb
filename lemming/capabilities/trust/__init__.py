"""Trust labels of texts: assign labels by source, and propagate labels to derived texts. Rules: docs/security.md."""
