"""Tables for building and deploying targets. They change no byte of an artifact."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from etdev.config.limits import MOST_WORKERS
from etdev.config.table import Table
from etdev.config.types import DestinationUri, EnvironmentName, Many, SafeName, Text


class Deploy(Table):
    """Destination of a built target, for `etdev deploy NAME`."""

    target: SafeName = Field(description="The target whose built files are deployed.")
    uri: DestinationUri = Field(
        description="Where to: `file:///PATH` or `file:RELATIVE`, `sftp://[USER@]HOST[:PORT]/PATH`, "
        "`s3://BUCKET/PREFIX`, `adb:/PATH` or `adb://SERIAL/PATH`. Other packages may register more "
        "schemes (docs/extending.md). It never holds a password."
    )
    keep: int = Field(
        3, ge=1, le=1000, description="Releases kept next to the current one; older ones are removed after the switch."
    )
    smoke: Many[Text] = Field(
        (),
        description="A command with its arguments, run at the target before the switch, with `ETDEV_RELEASE` set to "
        "the path of the new release; if it fails, the old release stays. Not for `s3`.",
    )
    known_hosts: Text | None = Field(
        None, description="File with the host keys that are trusted, for `sftp`. Default: `~/.ssh/known_hosts`."
    )
    password_env: EnvironmentName | None = Field(
        None, description="Name of the environment variable that holds the password, for `sftp`. Default: keys only."
    )
    endpoint_url: Text | None = Field(
        None, description="The service's URL, for an `s3` that is not Amazon's: `https://HOST[:PORT]`."
    )


class Run(Table):
    """Execution of builds. Nothing here changes a byte of an artifact."""

    executor: Literal["local", "ray"] = Field(
        "local",
        description="`local` builds on this machine; `ray` in workers of a Ray cluster, whose machines need the "
        "project's folder at the same path, and the same versions of the packages.",
    )
    jobs: int = Field(
        1,
        ge=1,
        le=MOST_WORKERS,
        description="Targets, and methods of targets, that are built at the same time, each in a process. `-j` wins.",
    )
    ray_address: Text | None = Field(
        None, description="Of the Ray cluster that is joined. Default: one of its own, on this machine."
    )
