"""The kernel runs turns. Capabilities take part in turns, but the kernel names none of them."""
