"""The drawings of ``docs/concepts.md`` as SVG, ``docs/images/concept-*.svg``. The planners make the plans in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from etdev.planner import Buffer, Plan, Problem, make_plan

WIDTH = 440
_SIZE = 14.5
"""Of the text; 11 pixels where the drawing fills a phone."""
_INK = "currentColor"
"""Of texts and lines. The site draws them in the colour of its text."""
_THEME = "<style>@media (prefers-color-scheme: dark) { svg { color: #c9d1d9 } }</style>"
"""The colour on a dark page that shows the drawing as an image."""
_COLOURS = {
    "a": "#4c78a8",
    "b": "#3f8f8a",
    "c": "#458a3d",
    "d": "#8e5f86",
    "e": "#8a6248",
    "f": "#b4691f",
}


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float
    text: str
    colour: str | None = None
    """A key of ``_COLOURS``; without it, the box has a line around it."""


def drawings() -> dict[str, str]:
    """Return each drawing by its path in ``docs/``."""
    made = {
        "link": _link(),
        "copies": _copies(),
        "planner": _planner(),
        "proof": _proof(),
        "devices": _devices(),
        "banks": _banks(),
    }
    return {f"images/concept-{name}.svg": text for name, text in made.items()}


def _svg(title: str, height: float, parts: Iterable[str]) -> str:
    """Return a drawing of these elements."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="{_SIZE}" color="#424a53" fill="{_INK}">'
    )
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="{_INK}"/></marker></defs>'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", _THEME, tip, *parts, "</svg>\n"])


def _text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = "", bold: bool = False) -> str:
    more = f' fill="{fill}"' if fill else ""
    more += ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _box(box: _Box) -> Iterable[str]:
    """Return a rectangle with its text, one line of text for each line in it."""
    colour = _COLOURS.get(box.colour or "")
    look = f'fill="{colour}"' if colour else f'fill="none" stroke="{_INK}"'
    yield f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="3" {look}/>'
    lines = box.text.split("\n") if box.text else []
    for at, line in enumerate(lines):
        y = box.y + box.height / 2 + 4.5 + (at - (len(lines) - 1) / 2) * 16
        yield _text(box.x + box.width / 2, y, line, anchor="middle", fill="#fff" if colour else "")


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return (
        f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{_INK}" stroke-width="1.5" '
        'marker-end="url(#tip)"/>'
    )


def _link() -> str:
    steps = (
        ("your model and config", None),
        ("ExecuTorch: export, quantize, lower, emit", "a"),
        ("object program: no two tensors share bytes", None),
        ("etdev: link", "c"),
        ("NAME.pte", None),
        ("ExecuTorch's runtime", "a"),
    )
    parts: list[str] = []
    for at, (text, colour) in enumerate(steps):
        parts += _box(_Box(1, 10 + at * 52, 328, 32, text, colour))
        if at:
            parts.append(_arrow(165, 10 + at * 52 - 20, 165, 10 + at * 52 - 2))
    for first, last, lines in ((2, 4, ("proof",)), (0, 5, ("your", "samples"))):
        x = 350 if first == 2 else 344
        side = 350 if first == 2 else 428
        top, bottom = 26 + first * 52, 26 + last * 52
        parts.append(
            f'<path d="M334 {top} H{side} V{bottom} H334" fill="none" stroke="{_INK}" stroke-dasharray="4 3"/>'
        )
        y = (top + bottom) / 2 if first == 2 else top + 30
        parts += [_text(x + 6 if first == 2 else 352, y + 16 * line, text) for line, text in enumerate(lines)]
    return _svg("From a model to a program that runs", 310, parts)


def _map(
    problem: Problem, plan: Plan, names: Sequence[str], box: tuple[float, float, float, float], most: int
) -> list[str]:
    """Return the tensors of a plan: time from left to right, addresses from bottom to top."""
    x, y, width, height = box
    steps = max(buffer.end for buffer in problem.buffers)
    across, up = width / steps, height / most
    parts = [f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{_INK}" fill-opacity="0.12"/>']
    for at, (buffer, offset) in enumerate(zip(problem.buffers, plan.offsets, strict=True)):
        place = _Box(
            x + buffer.start * across + 0.75,
            y + height - (offset + buffer.size) * up + 0.75,
            (buffer.end - buffer.start) * across - 1.5,
            buffer.size * up - 1.5,
            names[at],
            "abcdef"[at % 6],
        )
        parts += _box(place)
    return parts


def _copies() -> str:
    """Draw the example of ``docs/faq.md``: ``sigmoid(cat([cos(x), sin(x)]))``."""
    k = 1024
    before = Problem(
        (
            Buffer(16 * k, 0, 2, name="x"),
            Buffer(16 * k, 0, 3, name="cos"),
            Buffer(16 * k, 1, 3, name="sin"),
            Buffer(32 * k, 2, 4, name="cat"),
            Buffer(32 * k, 3, 5, name="out"),
        )
    )
    after = Problem((Buffer(16 * k, 0, 2, name="x, then sin"), Buffer(16 * k, 0, 2, name="cos")))
    plan = make_plan(before)
    linked = Problem((*after.buffers, Buffer(32 * k, 2, 4, name="out, in place")))
    small = make_plan(linked)
    assert (plan.size, small.size) == (64 * k, 32 * k), (plan.size, small.size)
    top = [_text(0, 14, "ExecuTorch: 64 KiB", bold=True), _text(230, 14, "etdev: 32 KiB", bold=True)]
    left = _map(before, plan, [buffer.name for buffer in before.buffers], (0, 24, 210, 180), plan.size)
    right = _map(linked, small, [buffer.name for buffer in linked.buffers], (230, 114, 210, 90), small.size)
    foot = [
        _text(0, 224, "time: instructions from left to right; height: addresses"),
        _text(0, 242, "cos and sin are written as parts of the whole: no cat is left"),
    ]
    return _svg("Memory of a program before and after the link", 250, [*top, *left, *right, *foot])


def _planner() -> str:
    """Draw three plans of one problem, with the lower bound."""
    problem = _hard()
    plans = [(name, make_plan(problem, name)) for name in ("naive", "greedy", "best")]
    bound = plans[-1][1].lower_bound
    assert plans[-1][1].size == bound < plans[1][1].size
    most = plans[0][1].size
    parts = []
    names = [""] * len(problem.buffers)
    for at, (name, plan) in enumerate(plans):
        x, height = at * 150, 200 * plan.size / most
        parts.append(_text(x, 14, f"{name}: {plan.size}", bold=True))
        parts += _map(problem, plan, names, (x, 224 - height, 140, height), plan.size)
    y = 224 - 200 * bound / most
    parts.append(f'<line x1="0" y1="{y:g}" x2="{WIDTH}" y2="{y:g}" stroke="{_INK}" stroke-dasharray="5 3"/>')
    parts.append(_text(0, 244, "dashed: the lower bound, the most bytes in use at once"))
    return _svg("Plans of one problem, and their lower bound", 252, parts)


def _hard() -> Problem:
    """Return a problem that ExecuTorch's order of placing does not solve."""
    sizes = (
        (32, 7, 10),
        (64, 7, 10),
        (48, 3, 4),
        (48, 4, 5),
        (32, 1, 4),
        (64, 0, 3),
        (48, 4, 6),
        (64, 0, 1),
        (32, 2, 6),
    )
    return Problem(tuple(Buffer(size, start, end) for size, start, end in sizes))


def _proof() -> str:
    parts: list[str] = []
    columns = (
        (0, "object program", ("v1 = cos(x)", "v2 = sin(x)", "v3 = cat(v1, v2)", "v4 = sigmoid(v3)")),
        (250, "linked program", ("[0:16] = cos(x)", "[16:32] = sin(x)", "", "[0:32] = sigmoid([0:32])")),
    )
    for x, title, lines in columns:
        parts.append(_text(x, 14, title, bold=True))
        for at, line in enumerate(lines):
            if line:
                parts += _box(_Box(x, 26 + at * 42, 190, 28, line, "a" if x == 0 else "c"))
    for at in (0, 1, 3):
        parts.append(
            f'<line x1="194" y1="{40 + at * 42}" x2="246" y2="{40 + at * 42}" stroke="{_INK}" stroke-dasharray="4 3"/>'
        )
        parts.append(_text(220, 35 + at * 42, "=", anchor="middle", bold=True))
    parts.append(_text(0, 214, "The same symbols in the same bytes, for every operand,"))
    parts.append(_text(0, 231, "output and state. Copies are followed, not compared."))
    return _svg("The proof executes both programs with symbols", 240, parts)


def _devices() -> str:
    parts = [_text(0, 34, "host", bold=True), _text(0, 124, "cuda:0", bold=True)]
    parts.append(f'<line x1="0" y1="78" x2="{WIDTH}" y2="78" stroke="{_INK}" stroke-dasharray="2 4"/>')
    for box in (
        _Box(60, 14, 74, 34, "input", "a"),
        _Box(346, 14, 90, 34, "output", "a"),
        _Box(90, 104, 96, 34, "delegate 1", "c"),
        _Box(230, 104, 96, 34, "delegate 2", "c"),
        _Box(120, 164, 180, 28, "state, kept here", "e"),
    ):
        parts += _box(box)
    parts += [_arrow(110, 50, 130, 102), _arrow(300, 102, 376, 50), _arrow(188, 121, 228, 121)]
    parts += [_arrow(150, 162, 140, 140), _arrow(268, 140, 258, 162)]
    parts += [
        _text(36, 96, "one copy"),
        _text(352, 96, "one copy"),
        _text(0, 216, "What both delegates need stays on the device."),
    ]
    return _svg("Placement on devices", 226, parts)


def _banks() -> str:
    parts: list[str] = []
    for x, width, title in ((1, 188, "fast bank, small"), (211, 228, "slow bank, large")):
        parts.append(_text(x, 14, title, bold=True))
        parts += _box(_Box(x, 24, width, 130, ""))
    for box in (
        _Box(6, 30, 178, 40, "read in each layer", "f"),
        _Box(6, 74, 110, 74, "temporaries", "a"),
        _Box(120, 74, 64, 34, "small", "b"),
        _Box(216, 30, 218, 54, "state, pinned", "e"),
        _Box(216, 88, 150, 60, "large, used once", "d"),
    ):
        parts += _box(box)
    parts += [
        _text(0, 176, "Tensors with the most traffic per byte go to the fast bank."),
        _text(0, 193, "Each bank is planned on its own, and the cost has a bound."),
    ]
    return _svg("Memory banks", 202, parts)
