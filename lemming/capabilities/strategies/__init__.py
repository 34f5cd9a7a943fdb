"""The strategies that ship, a file each: generators over a `Turn` (`lemming.kernel.turn.strategy`)."""
