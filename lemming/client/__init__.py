"""Ask an organisation from a program: questions, their outcomes, and pending items of people."""
