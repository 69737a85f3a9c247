"""Write the generated pages of ``docs/``: ``python -m docsite``."""

from __future__ import annotations

from pathlib import Path

from docsite.generated import generated

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    """Write each page that is not current."""
    for name, text in generated().items():
        place = ROOT / "docs" / name
        place.parent.mkdir(exist_ok=True)
        if not place.is_file() or place.read_text(encoding="utf-8") != text:
            place.write_text(text, encoding="utf-8")
            print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
