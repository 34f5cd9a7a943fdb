"""What needs a person's decision after damage, and putting it right."""
