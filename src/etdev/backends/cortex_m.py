"""Backend ``cortex-m``: kernels of ExecuTorch with CMSIS-NN for Arm's Cortex-M processors.

The backend has no delegates. It replaces quantized ops by operators of the kernel library ``cortex-m``. Lowering works
on any machine. etdev's interpreter runs the programs with ExecuTorch's Python functions for these operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from etdev import compat, tosa_tools
from etdev.backends.base import (
    BUILD_EXTRA,
    Availability,
    CompileSpecValue,
    SpecIssue,
    find_packages,
    no_compile_specs,
)
from etdev.config.table import Table


class CortexMOptions(Table):
    """Options of ``executorch.backends.cortex_m``."""

    cpu: Literal["M0", "M0PLUS", "M3", "M4", "M7", "M23", "M33", "M35P", "M55", "M85"] = Field(
        "M55", description="Processor. It decides the size of scratch memory, which is part of the plan."
    )


class CortexM:
    """Backend that lowers through ``CortexMPassManager``."""

    name = "cortex-m"
    summary = "CMSIS-NN kernels for Arm Cortex-M: int8; etdev's interpreter runs its programs"
    device_types = ("cpu",)
    delegate_ids = ()
    options = CortexMOptions
    compute_dtype = "float32"
    dynamic_shapes = False
    methods_apart = True
    packages = (tosa_tools.DISTRIBUTION,)
    kernel_library = "cortex-m"

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        return no_compile_specs(self.name, specs)

    def availability(self) -> Availability:
        found = find_packages("torch", "executorch", remedy=BUILD_EXTRA)
        if found.available and (too_old := compat.lacks_cortex_m()) is not None:
            return Availability(False, too_old, compat.INSTALL_SUPPORTED)
        lacking = tosa_tools.problem()
        if not found.available or lacking is None:
            return found
        return Availability(False, lacking, tosa_tools.remedy())

    def partitioner(self, options: CortexMOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        return None

    def compile_config(self) -> Any:
        from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config

        return cortex_m_edge_compile_config()

    def rewrite(self, program: Any, options: CortexMOptions) -> Any:
        with tosa_tools.importable():  # The modules for Cortex-M import those for Ethos-U.
            from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
            from executorch.backends.cortex_m.target_config import CortexM as Processor
            from executorch.backends.cortex_m.target_config import CortexMTargetConfig
        config = CortexMTargetConfig(Processor[options.cpu])
        return CortexMPassManager(program, target_config=config).transform()


backend = CortexM()
