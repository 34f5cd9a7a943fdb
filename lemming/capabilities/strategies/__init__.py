"""The built-in strategies, one per file: generators over a `Turn` (`lemming.kernel.turn.strategy`)."""
