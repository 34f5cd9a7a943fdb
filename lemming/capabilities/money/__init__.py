"""What models cost in dollars, and what turns have spent."""
