"""Running programs: memory of devices, and what runs programs in it."""
