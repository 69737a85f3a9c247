"""Rules that join several keys. They read raw data, so that their findings come together with all others.

Each takes the merged data, which may be wrong anywhere: what is not of the right shape is passed over, since the models
report it.
"""

from __future__ import annotations

from etdev.config.checks.budget import check_budgets
from etdev.config.checks.deployments import check_deployments
from etdev.config.checks.methods import check_constants, check_dims, check_methods
from etdev.config.checks.model import check_kwargs, check_model_source
from etdev.config.checks.quantization import check_quantization
from etdev.config.checks.run import check_run
from etdev.config.checks.targets import check_io, check_profiles, check_targets
from etdev.config.issues import Check

CHECKS: tuple[Check, ...] = (
    check_model_source,
    check_kwargs,
    check_methods,
    check_dims,
    check_constants,
    check_quantization,
    check_targets,
    check_budgets,
    check_io,
    check_deployments,
    check_run,
    check_profiles,
)
"""Every rule of the config itself; backends add theirs."""
