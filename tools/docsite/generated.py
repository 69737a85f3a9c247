"""All generated files of ``docs/``, but for ``config.md`` and ``licences.md``."""

from __future__ import annotations

from docsite import cli_page, json_page, python_page
from docsite.drawings import drawings


def generated() -> dict[str, str]:
    """Return the content of each file, by its path in ``docs/``."""
    schemas = {f"schemas/{found.name}.schema.json": json_page.schema(found) for found in json_page.FORMATS}
    return {
        "cli.md": cli_page.page(),
        "json.md": json_page.page(),
        "python.md": python_page.page(),
        **drawings(),
        **schemas,
    }
