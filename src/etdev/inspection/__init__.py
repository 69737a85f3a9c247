"""Commands that describe programs and change none: `etdev inspect`, `diff` and `report`. None of them needs torch."""
