"""The documentation site: ``python -m docsite`` writes the generated pages, and MkDocs builds the site."""
