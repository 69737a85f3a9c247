"""Commands that describe programs and never change them: `etdev inspect`, `diff` and `report`. None needs torch."""
