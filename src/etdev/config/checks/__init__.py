"""Checks of rules that involve several config keys.

The checks read the merged raw data. etdev reports the issues of these checks together with the issues from the models.
"""

from __future__ import annotations

from etdev.config.checks.banks import check_banks
from etdev.config.checks.budget import check_budgets
from etdev.config.checks.methods import check_constants, check_dims, check_methods
from etdev.config.checks.model import check_kwargs, check_model_source
from etdev.config.checks.operation import check_deployments, check_run
from etdev.config.checks.quantization import check_quantization
from etdev.config.checks.targets import check_io, check_profiles, check_targets
from etdev.config.raw import Check

CHECKS: tuple[Check, ...] = (
    check_model_source,
    check_kwargs,
    check_methods,
    check_dims,
    check_constants,
    check_quantization,
    check_targets,
    check_banks,
    check_budgets,
    check_io,
    check_deployments,
    check_run,
    check_profiles,
)
"""All checks that need no code of a backend."""
