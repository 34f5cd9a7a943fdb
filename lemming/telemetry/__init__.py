"""What journals and ledgers tell other people's tools: traces, metrics, events. Nothing is written here."""
