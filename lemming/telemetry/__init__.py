"""Export journals and ledgers to other tools as traces, metrics and events. Nothing is written here."""
