"""E1: :func:`model_issues` for models that are not etdev's own, as backends have them for their ``options``."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from etdev.config.messages import model_issues


class Level(Enum):
    LOW = "low"


class Stage(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: str
    cores: int = Field(1, gt=0, lt=9)


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    level: Level = Level.LOW
    stages: list[Stage] = []
    either: Stage | int | None = None
    by_name: dict[str, list[int]] = {}
    mode: Literal["a", "b", 1] = "a"
    least: float = Field(0, multiple_of=0.5)

    @model_validator(mode="after")
    def _joined(self) -> Options:
        if self.mode == "b" and not self.stages:
            raise ValueError("mode b needs stages")
        return self


@pytest.mark.parametrize(
    ("data", "key", "message"),
    [
        ({"level": "high"}, ("level",), '`o.level` is "high": Input should be'),
        ({"stages": [{}]}, ("stages", 0, "name"), "`o.stages[0].name` is missing; expected text"),
        (
            {"stages": [{"name": "x", "cores": 9}]},
            ("stages", 0, "cores"),
            "expected a whole number greater than 0, less th",
        ),
        ({"stages": {}}, ("stages",), "`o.stages` is an empty table; expected a list, each element a table"),
        ({"either": {"name": 3}}, ("either", "name"), "`o.either.name` is 3; expected text"),
        ({"either": "x"}, ("either",), '`o.either` is "x"; expected a table or a whole number'),
        ({"by_name": {"a b": [1, "x"]}}, ("by_name", "a b", 1), '`o.by_name."a b"[1]` is "x"; expected a whole number'),
        ({"mode": "c"}, ("mode",), '`o.mode` is "c"; expected one of "a", "b", 1'),
        ({"least": 0.3}, ("least",), "`o.least` is 0.3; expected a number in multiples of 0.5"),
        ({"mode": "b"}, (), "`o` is not valid: mode b needs stages"),
        ({"stagse": []}, ("stagse",), "unknown key `o.stagse`"),
    ],
)
def test_one_issue_with_the_key_in_the_config(data: dict[str, Any], key: tuple[Any, ...], message: str) -> None:
    (issue,) = model_issues(Options, data, ("o",))
    assert issue.key == ("o", *key)
    assert message in issue.message


def test_no_issue() -> None:
    assert model_issues(Options, {"stages": [{"name": "x"}], "either": 3, "least": 1}) == []
