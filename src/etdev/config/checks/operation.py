"""Checks of deployments and of the table ``run``."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from etdev.config.describe.notation import literal
from etdev.config.destinations import FORMS, OPTIONS, DestinationError, parse_destination, scheme_of
from etdev.config.issues import CONFLICT, REFERENCE, WRONG_VALUE, Issue
from etdev.config.keys import suggest
from etdev.config.raw import Raw, listed


def check_deployments(config: Raw) -> Iterator[Issue]:
    """Check the target, the URI, the options and the endpoint of each deployment."""
    targets = config["targets"].table
    for deployment in config["deploy"].tables:
        target = deployment["target"]
        if targets and isinstance(target.value, str) and target.value not in targets:
            hint = suggest(target.value, targets, listed("targets", targets), literal)
            yield target.issue(f"is {literal(target.value)}, which is not a target", REFERENCE, hint)
        yield from _check_uri(deployment["uri"])
        yield from _check_options(deployment)
        yield from _check_endpoint(deployment["endpoint_url"])


def _check_uri(uri: Raw) -> Iterator[Issue]:
    """Check the URI of a deployment. Messages never contain the URI, because the URI may contain a password."""
    if isinstance(uri.value, str) and uri.value:
        try:
            parse_destination(uri.value)
        except DestinationError as error:
            yield uri.issue(f": {error}", WRONG_VALUE, error.hint)


def _check_options(deployment: Raw) -> Iterator[Issue]:
    uri = deployment["uri"].value
    scheme = scheme_of(uri) if isinstance(uri, str) else None
    for option, schemes in OPTIONS.items() if scheme in FORMS else ():
        if scheme not in schemes and deployment[option].value:
            text = ": commands cannot run at" if option == "smoke" else "has no effect for"
            hint = f"remove it, because it only applies to {', '.join(f'{item}:' for item in schemes)}"
            yield deployment[option].issue(f"{text} {scheme}:", CONFLICT, hint)


def _check_endpoint(url: Raw) -> Iterator[Issue]:
    if isinstance(url.value, str) and url.value:
        try:
            parts = urlsplit(url.value)
            named = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and not parts.query
        except ValueError:
            named = False
        if not named:
            hint = "write https://HOST[:PORT], without credentials, which come from the environment"
            yield url.issue("is not the URL of a service", WRONG_VALUE, hint)


def check_run(config: Raw) -> Iterator[Issue]:
    """Check that ``ray_address`` is set only for the executor ``ray``."""
    run = config["run"]
    is_local = run["executor"].value == "local" if "executor" in run else run.lacks("executor")
    if is_local and run["ray_address"].value:
        text = 'has no effect unless `run.executor` is "ray"'
        yield run["ray_address"].issue(text, CONFLICT, 'remove it, or set `run.executor` to "ray"')
