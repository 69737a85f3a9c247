"""Stage *link*: assigns physical addresses to an object program, and proves the result."""
