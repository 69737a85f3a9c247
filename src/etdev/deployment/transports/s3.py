"""``s3:``: the objects under a prefix of a bucket, in Amazon S3 or a compatible service.

The pointer is the object ``current.json``. Credentials and the region come from the same sources as in AWS tools: the
environment, ``~/.aws`` and the role of the machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from etdev.deployment.transports.base import PIECE, CommandResult, Fingerprint, fingerprint_of
from etdev.errors import DeployError

if TYPE_CHECKING:
    from etdev.config.destinations import Destination

POINTER = "current.json"
_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
_CREDENTIALS = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`"


class S3Transport:
    """The objects under a prefix, used as the target.

    S3 cannot rename objects, so a release is copied to its final name. Its manifest is copied last, because
    objects without a manifest are not a release.
    """

    def __init__(self, destination: Destination, endpoint_url: str | None) -> None:
        self._bucket = destination.host or ""
        self._prefix = f"{destination.path}/" if destination.path else ""
        self._endpoint = endpoint_url
        self._client: Any = None

    def __enter__(self) -> Self:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        settings = Config(
            connect_timeout=15,
            read_timeout=60,
            retries={"mode": "standard", "max_attempts": 4},
            # Not every service knows these checksums. The stored content is read back in any case.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            session = boto3.Session()
            region = session.region_name or "us-east-1"
            self._client = session.client("s3", endpoint_url=self._endpoint, region_name=region, config=settings)
        except (BotoCoreError, ValueError) as error:
            raise DeployError(f"the connection to S3 cannot be set up: {error}", hint=_CREDENTIALS) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()

    def check(self) -> None:
        with self._errors(""):
            self._client.head_bucket(Bucket=self._bucket)

    def names(self, folder: str) -> list[str]:
        start = self._key(f"{folder}/" if folder else "")
        found: set[str] = set()
        with self._errors(folder):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=start, Delimiter="/"):
                found.update(item["Key"] for item in page.get("Contents", ()))
                found.update(item["Prefix"].rstrip("/") for item in page.get("CommonPrefixes", ()))
        return sorted(key.removeprefix(start) for key in found if key != start)

    def read(self, path: str) -> bytes | None:
        with self._errors(path):
            body = self._open(path)
            return None if body is None else bytes(body.read())

    def fingerprint(self, path: str) -> Fingerprint | None:
        with self._errors(path):
            body = self._open(path)
            return None if body is None else fingerprint_of(body.iter_chunks(PIECE))

    def write(self, path: str, content: bytes) -> None:
        with self._errors(path):
            self._client.put_object(Bucket=self._bucket, Key=self._key(path), Body=content)

    def upload(self, path: str, source: Path) -> None:
        with self._errors(path):
            self._client.upload_file(str(source), self._bucket, self._key(path))

    def rename(self, folder: str, to: str, last: str) -> None:
        names = self.names(folder)
        for name in sorted({*names, last}, key=lambda name: name == last):
            with self._errors(f"{folder}/{name}"):
                source = {"Bucket": self._bucket, "Key": self._key(f"{folder}/{name}")}
                self._client.copy(source, self._bucket, self._key(f"{to}/{name}"))
        self.remove(folder)

    def remove(self, path: str) -> None:
        with self._errors(path):
            self._client.delete_object(Bucket=self._bucket, Key=self._key(path))
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._key(f"{path}/")):
                for item in page.get("Contents", ()):
                    self._client.delete_object(Bucket=self._bucket, Key=item["Key"])

    def current(self) -> str | None:
        content = self.read(POINTER)
        if content is None:
            return None
        try:
            pointer = json.loads(content)
            return str(pointer["release"]) if pointer["format"] == 1 else ""
        except (ValueError, TypeError, LookupError):
            return ""

    def switch(self, path: str, temporary: str) -> None:
        pointer = {"format": 1, "release": path}
        self.write(POINTER, (json.dumps(pointer) + "\n").encode())

    def location(self, path: str) -> str:
        return f"s3://{self._bucket}/{self._key(path)}"

    def run(self, command: Sequence[str], environment: dict[str, str]) -> CommandResult:
        raise DeployError("an s3: target cannot run commands", hint="remove `smoke` from the deployment in the config")

    def _key(self, path: str) -> str:
        return self._prefix + path

    def _open(self, path: str) -> Any:
        from botocore.exceptions import ClientError

        try:
            return self._client.get_object(Bucket=self._bucket, Key=self._key(path))["Body"]
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _MISSING:
                return None
            raise

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        where = f"s3://{self._bucket}/{self._key(path)}"
        try:
            yield
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise DeployError(f"no credentials for S3: {error}", where=where, hint=_CREDENTIALS) from error
        except ClientError as error:
            answer = error.response.get("Error", {})
            said = f"{answer.get('Code', 'error')}: {answer.get('Message', '')}".rstrip(": ")
            raise DeployError(f"the service refused the operation: {said}", where=where) from error
        except (BotoCoreError, Boto3Error, OSError) as error:
            raise DeployError(str(error), where=where) from error
