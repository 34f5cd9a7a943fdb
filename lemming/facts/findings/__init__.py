"""What went wrong in what an organisation did, found in its files by rules; no model is asked."""
