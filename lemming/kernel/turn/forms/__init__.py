"""Reply forms: each turn gets the simplest reply format that can express the possible actions."""
