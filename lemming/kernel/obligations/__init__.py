"""Who owes whom an answer, and what waits for a person: the values and rules that turns need."""
