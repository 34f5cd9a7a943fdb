"""What ticks and agents have come to, in append-only files: journals, ledgers, sealed segments."""
