"""Human-readable forms of sizes, counts, fractions and times."""

from __future__ import annotations


def format_size(size: int) -> str:
    """Format a number of bytes with a binary unit and three digits: ``128 B``, ``41.3 KiB``, ``1.25 MiB``."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1023.5 or unit == "TiB":
            break
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2  # 9.996 rounds up to 10.0
    return f"{value:.{decimals}f} {unit}"


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun: ``1 method``, ``2,000 methods``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_share(share: float) -> str:
    """Format a fraction as a percentage with at most four digits: ``95%``, ``99.95%``."""
    return f"{share * 100:.4g}%"


def format_duration(seconds: float) -> str:
    """Format a measured time with three digits: ``38.2 µs``, ``2.51 ms``, ``2.51 s``, ``12 min 5 s``."""
    if seconds >= 99.95:
        return format_seconds(seconds)
    value, unit = next(
        ((seconds * factor, unit) for factor, unit in ((1, "s"), (1e3, "ms")) if seconds * factor >= 0.9995),
        (seconds * 1e6, "µs"),
    )
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f} {unit}"


def format_seconds(seconds: float) -> str:
    """Format a time roughly, for progress messages: ``0.4 s``, ``12 s``, ``2 min 5 s``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
