"""Rules: kinds of findings. Code scanners store their identifiers, so none is ever renamed. docs/ci.md lists them."""

from __future__ import annotations

from collections.abc import Mapping

from etdev.config.check_names import BUILT_IN

CONFIG_RULES: Mapping[str, str] = {
    "unknown-key": "A key that this version of etdev does not have",
    "missing-key": "A required key is missing",
    "wrong-type": "A value of the wrong type",
    "wrong-value": "A value of the right type that is not valid",
    "wrong-name": "A name that is not spelled as names are",
    "duplicate-key": "A key that is defined twice",
    "duplicate": "A name that is used twice",
    "syntax": "A file that is not TOML or YAML as etdev reads it",
    "file": "A file that cannot be read",
    "reference": "A value that names something which does not exist",
    "unknown-name": "A name in a profile or an override that no file defines",
    "missing-file": "A file or a module that the config names and that is not there, or not yet",
    "unrunnable-check": "A required check that cannot run for its target",
    "conflict": "Keys that do not go together",
    "unknown-backend": "A backend that does not exist here",
    "broken-backend": "A backend of another package that cannot be used",
    "compile-spec": "A compile spec that the backend does not take",
    "override": "An environment variable or --set that cannot apply",
    "not-in-profile": "A key that a profile cannot contain",
}
"""Rules for problems in a config, with descriptions."""

CHECK_RULES: Mapping[str, str] = {
    **{name: facts.failure for name, facts in BUILT_IN.items()},
    "not-run": "A required check that did not run",
    "never-ran": "A program that verification accepted although nothing ran it",
    "not-judged": "A limit of the config that was not judged",
}
"""Rules for findings of verification, with descriptions. The rule of a failed check has the name of the check."""

ERROR_RULES: Mapping[str, str] = {
    "usage": "A command that was called in a way that it does not understand",
    "environment": "Something that this machine lacks",
    "program": "A file that is malformed, or that cannot be linked",
    "load": "The model, its weights or its data could not be loaded",
    "export": "torch.export refused the model",
    "quantize": "The quantization scheme could not be applied",
    "lower": "A backend refused the exported program",
    "emit": "The lowered program could not become an ExecuTorch program",
    "link": "The program could not be linked",
    "runner": "A C++ project for a program could not be written",
    "write": "A file could not be written",
    "verify": "Verification could not be carried out",
    "lock": "Something is not as etdev.lock says",
    "build": "The build failed in another way",
}
"""Rules for errors that end a command, with descriptions."""

RULES: Mapping[str, str] = {**CONFIG_RULES, **CHECK_RULES, **ERROR_RULES}
