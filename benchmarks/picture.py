"""Draw the planned memory of two programs side by side, on one scale, as SVG.

    python benchmarks/picture.py                          # writes docs/images/memory.svg, of a model of the zoo
    python benchmarks/picture.py A.pte B.pte OUT.svg      # of any two programs with one planned buffer

Each rectangle is the memory of one tensor or of several that share their bytes: instructions from left to right,
addresses from bottom to top.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from etdev.inspection.planned_memory import method_memories
from etdev.program import read
from etdev.program.analysis.storage import Storage
from etdev.program.footprint import planned_memory
from etdev.units import format_size

MODEL, TITLE = "vit", "Planned memory of a small vision transformer"
OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "memory.svg"
WIDTH, HEIGHT, GAP, TOP, BOTTOM = 400, 260, 40, 80, 42
"""Pixels: of one map, between the maps, above them and below."""
THEME = "<style>@media (prefers-color-scheme: dark) { svg { color: #c9d1d9 } }</style>"
"""The colour of the text on a dark page that shows the picture as an image. The site uses the colour of its text."""
COLOURS = ("#4c78a8", "#72b7b2", "#54a24b", "#b279a2", "#9d755d", "#f2a65a")


@dataclass(frozen=True, slots=True)
class Map:
    """Planned memory of a program's only method."""

    label: str
    size: int
    """Bytes."""
    instants: int
    storages: tuple[Storage, ...]


def read_map(path: Path, label: str) -> Map:
    """Read the memory map of a program. Raises ``ValueError`` if it cannot be drawn."""
    program = read(path)
    (memory,) = method_memories(program)
    if isinstance(memory, str):
        raise ValueError(f"{path}: {memory}")
    storages = tuple(memory.storages)
    return Map(label, sum(planned_memory(program).values()), memory.instants, storages)


def draw(maps: tuple[Map, ...], title: str) -> str:
    """Return the maps as SVG, each as high as its size is of the largest."""
    most = max(item.size for item in maps)
    width = len(maps) * WIDTH + (len(maps) - 1) * GAP
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + BOTTOM}" role="img" '
            f'font-family="system-ui, sans-serif" font-size="29" color="#424a53" fill="currentColor">'
        ),
        f"<title>{escape(title)}</title>",
        THEME,
        f'<text x="0" y="28">{escape(title)}</text>',
    ]
    for number, item in enumerate(maps):
        lines += _map_lines(item, number * (WIDTH + GAP), most)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _map_lines(item: Map, left: int, most: int) -> Iterator[str]:
    height = HEIGHT * item.size / most
    floor = TOP + HEIGHT
    label = f"{escape(item.label)}: {format_size(item.size)}"
    yield f'<text x="{left}" y="{floor - height - 10:.1f}" font-weight="bold">{label}</text>'
    yield (f'<rect x="{left}" y="{floor - height:.1f}" width="{WIDTH}" height="{height:.1f}" fill-opacity="0.12"/>')
    for number, storage in enumerate(sorted(item.storages, key=lambda found: (found.start, found.offset))):
        across, up = WIDTH / item.instants, HEIGHT / most
        yield (
            f'<rect x="{left + storage.start * across:.2f}" y="{floor - (storage.offset + storage.size) * up:.2f}" '
            f'width="{max((storage.end - storage.start) * across, 0.5):.2f}" height="{storage.size * up:.2f}" '
            f'fill="{COLOURS[number % len(COLOURS)]}" fill-opacity="0.85"/>'
        )
    yield f'<text x="{left}" y="{floor + 30}">time → (height: bytes)</text>'


def build_maps() -> tuple[Map, ...]:
    """Lower a model of the zoo as ExecuTorch's documentation does it, build it by etdev, and read both maps."""
    from zoo import by_hand
    from zoo_parts.steps import build_step

    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.pte"
        by_hand(MODEL, "portable", plain)
        built = build_step(MODEL, "portable", [], Path(folder) / "etdev")
        return read_map(plain, "ExecuTorch"), read_map(built.path, "etdev")


def main() -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="two programs, and the picture to write")
    files = parser.parse_args().files
    if len(files) not in (0, 3):
        parser.error("give two programs and the picture to write, or nothing")
    maps = tuple(read_map(path, path.name) for path in files[:2]) or build_maps()
    out = files[2] if files else OUT
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(draw(maps, "Planned memory" if files else TITLE), encoding="utf-8")
    print(f"{out}: {' and '.join(f'{item.label} {item.size:,} bytes' for item in maps)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
