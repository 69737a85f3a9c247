"""Rules: the kinds of findings. docs/ci.md lists all rules.

Code scanners store the names of rules, so a rule must never be renamed.
"""

from __future__ import annotations

from collections.abc import Mapping

from etdev.config.check_names import BUILT_IN

CONFIG_RULES: Mapping[str, str] = {
    "unknown-key": "A key that this version of etdev does not have",
    "missing-key": "A required key is missing",
    "wrong-type": "A value of the wrong type",
    "wrong-value": "A value of the right type that is not valid",
    "wrong-name": "A name with invalid characters",
    "duplicate-key": "A key that is defined twice",
    "duplicate": "A name that is used twice",
    "syntax": "A file that is not TOML or YAML, or uses features that etdev does not support",
    "file": "A file that cannot be read",
    "reference": "A reference to something that does not exist",
    "unknown-name": "A name in a profile or an override that no file defines",
    "missing-file": "A reference to a file or module that does not exist yet",
    "unrunnable-check": "A required check that cannot run for its target",
    "not-quantized": "A backend that takes only quantized ops, in a target without quantization",
    "empty-input": "An input without elements",
    "conflict": "Keys that cannot be used together",
    "unknown-backend": "A backend that is not available here",
    "broken-backend": "A backend of another package that cannot be used",
    "compile-spec": "A compile spec that the backend does not accept",
    "override": "An environment variable or --set that cannot be applied",
    "not-in-profile": "A key that a profile cannot contain",
}
"""Rules for problems in a config. Each rule maps to a description."""

CHECK_RULES: Mapping[str, str] = {
    **{name: facts.failure for name, facts in BUILT_IN.items()},
    "not-run": "A required check that did not run",
    "not-tried": "A part of the model that verification could not try",
    "never-ran": "A program that verification accepted although no check ran it",
    "split-state": "State that the model's methods share, and of which each method of the program has its own copy",
    "not-judged": "A limit of the config that was not checked",
}
"""Rules for findings of verification. Each rule maps to a description. A failed check's name is also its rule."""

ERROR_RULES: Mapping[str, str] = {
    "usage": "A command line that etdev does not understand",
    "environment": "A requirement that this machine does not meet",
    "program": "A file that is malformed, or that cannot be linked",
    "load": "The model, its weights or its data could not be loaded",
    "export": "torch.export rejected the model",
    "quantize": "The quantization scheme could not be applied",
    "lower": "A backend rejected the exported program",
    "emit": "The lowered program could not be converted to an ExecuTorch program",
    "link": "The program could not be linked",
    "runner": "A C++ project for a program could not be written",
    "write": "A file could not be written",
    "verify": "Verification could not run",
    "lock": "Inputs or outputs differ from the lock",
    "build": "The build failed in another way",
}
"""Rules for errors that end a command. Each rule maps to a description."""

RULES: Mapping[str, str] = {**CONFIG_RULES, **CHECK_RULES, **ERROR_RULES}
