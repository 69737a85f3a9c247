"""Running programs."""
