"""The strategies that ship, a file each: generators over a `lemming.turn.strategy.Turn` that know no disk."""
