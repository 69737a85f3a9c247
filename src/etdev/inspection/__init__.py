"""Commands that describe programs: `etdev inspect`, `diff` and `report`.

The commands do not change the programs, and do not need torch.
"""
