"""Config tables for building and deploying. They do not affect the bytes of artifacts."""

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
        description="Destination: `file:///PATH` or `file:RELATIVE`, `sftp://[USER@]HOST[:PORT]/PATH`, "
        "`s3://BUCKET/PREFIX`, `adb:/PATH` or `adb://SERIAL/PATH`. Other packages may register more "
        "schemes (docs/extending.md). Must not contain a password."
    )
    keep: int = Field(
        3,
        ge=1,
        le=1000,
        description="Number of releases to keep in addition to the current one; older ones are "
        "removed after the switch.",
    )
    smoke: Many[Text] = Field(
        (),
        description="A command with its arguments, run at the destination before the switch, with "
        "`ETDEV_RELEASE` set to the path of the new release; if the command fails, the old release "
        "stays. Not for `s3`.",
    )
    known_hosts: Text | None = Field(
        None, description="File with the trusted host keys, for `sftp`. Default: `~/.ssh/known_hosts`."
    )
    password_env: EnvironmentName | None = Field(
        None, description="Name of the environment variable with the password, for `sftp`. Default: only keys are used."
    )
    endpoint_url: Text | None = Field(
        None, description="The URL of an `s3` service other than Amazon's: `https://HOST[:PORT]`."
    )


class Run(Table):
    """Settings for the execution of builds. They do not affect the bytes of artifacts."""

    executor: Literal["local", "ray"] = Field(
        "local",
        description="`local` builds on this machine; `ray` builds on workers of a Ray cluster, whose machines "
        "need the project's folder at the same path and the same versions of the packages.",
    )
    jobs: int = Field(
        1,
        ge=1,
        le=MOST_WORKERS,
        description="Number of targets, or methods of targets, to build at the same time, each in a process. "
        "`-j` overrides it.",
    )
    ray_address: Text | None = Field(
        None, description="Address of a Ray cluster to join. Default: etdev starts a cluster on this machine."
    )
