"""Checks of deployments: their URIs, and the keys that fit their schemes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from etdev.config.checks.raw import is_settled, table_at, tables_at, there_are
from etdev.config.describe.notation import literal
from etdev.config.destinations import FORMS, OPTIONS, DestinationError, parse_destination, scheme_of
from etdev.config.issues import CONFLICT, REFERENCE, WRONG_VALUE, Issue
from etdev.config.keys import KeyPath, format_key, nearest


def check_deployments(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check the target, the URI, the options and the endpoint of each deployment."""
    targets = table_at(data, "targets")
    for name, table in tables_at(data, "deploy"):
        path: KeyPath = ("deploy", name)
        if is_settled(data, "targets") and targets:
            yield from _check_target(table.get("target"), targets, (*path, "target"))
        yield from _check_uri(table.get("uri"), (*path, "uri"))
        yield from _check_options(table, path)
        yield from _check_endpoint(table.get("endpoint_url"), (*path, "endpoint_url"))


def _check_target(target: object, targets: Mapping[str, Any], key: KeyPath) -> Iterator[Issue]:
    if isinstance(target, str) and target not in targets:
        near = nearest(target, targets)
        hint = f"did you mean {literal(near)}?" if near else there_are("targets", targets)
        yield Issue(key, f"`{format_key(key)}` is {literal(target)}, which is not a target", REFERENCE, hint)


def _check_uri(uri: object, key: KeyPath) -> Iterator[Issue]:
    """Check a URI. Messages do not repeat it, since it may contain a password."""
    if not isinstance(uri, str) or not uri:
        return
    try:
        parse_destination(uri)
    except DestinationError as error:
        yield Issue(key, f"`{format_key(key)}` {error}", WRONG_VALUE, error.hint)


def _check_options(table: Mapping[str, Any], path: KeyPath) -> Iterator[Issue]:
    uri = table.get("uri")
    scheme = scheme_of(uri) if isinstance(uri, str) else None
    for option, schemes in OPTIONS.items() if scheme in FORMS else ():
        if scheme not in schemes and table.get(option):
            key = (*path, option)
            message = f"`{format_key(key)}` has no effect for {scheme}:"
            if option == "smoke":
                message = f"`{format_key(key)}`: nothing can be run at {scheme}:"
            yield Issue(key, message, CONFLICT, f"remove it: it is for {', '.join(f'{item}:' for item in schemes)}")


def _check_endpoint(url: object, key: KeyPath) -> Iterator[Issue]:
    if not isinstance(url, str) or not url:
        return
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and not parts.query
    except ValueError:
        named = False
    if not named:
        message = f"`{format_key(key)}` is no URL of a service"
        yield Issue(key, message, WRONG_VALUE, "write https://HOST[:PORT]; credentials come from the environment")
