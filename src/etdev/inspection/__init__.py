"""Commands that describe programs without changing them and without torch: `etdev inspect`, `diff`, `report`."""
