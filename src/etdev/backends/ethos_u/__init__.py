"""Backend ``ethos-u``: Arm's Ethos-U processors, compiled by Vela.

Lowering works on any machine. The programs run only on such a processor, in a runtime that is built with this backend.
:mod:`.vela` reads Vela's flags and config files, and :mod:`.compiling` records the delegates that Vela compiles. This
module imports neither torch nor executorch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from etdev import tosa_tools
from etdev.backends.base import (
    BUILD_EXTRA,
    Availability,
    CompileSpecValue,
    OptionIssue,
    SpecIssue,
    find_packages,
    no_compile_specs,
)
from etdev.backends.ethos_u import vela
from etdev.backends.ethos_u.options import EthosUOptions
from etdev.program.sidecar.records import DelegateRecord

EXTRA = 'pip install "etdev[ethos-u]"'
DELEGATE_ID = "EthosUBackend"


class EthosU:
    """Backend that lowers through ``EthosUPartitioner``."""

    name = "ethos-u"
    summary = "Arm Ethos-U processors: int8; no runtime on this machine can run the programs"
    device_types = ("cpu",)
    delegate_ids = (DELEGATE_ID,)
    options = EthosUOptions
    compute_dtype = "float32"
    dynamic_shapes = False
    methods_apart = True
    packages = ("ethos-u-vela", tosa_tools.DISTRIBUTION)
    file_options = ("config",)
    microcontrollers: Literal[True] = True
    runs_elsewhere = "the program runs on the Ethos-U processor only; here, verification runs kernels for its delegates"

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        return no_compile_specs(self.name, specs)

    def check_options(self, options: EthosUOptions) -> Iterable[OptionIssue]:
        yield from vela.check_flags(options.extra_flags)
        if options.config is None:
            yield from self.check_files(options)
            yield from _check_mode(options)

    def check_files(self, options: EthosUOptions) -> Iterable[OptionIssue]:
        path = vela.default_config() if options.config is None else Path(options.config)
        if path is not None:
            yield from vela.check_names(path, options.system_config, options.memory_mode)

    def availability(self) -> Availability:
        found = find_packages("torch", "executorch", remedy=BUILD_EXTRA)
        if not found.available:
            return found
        if vela.version() is None:
            return Availability(False, f"the package {vela.DISTRIBUTION!r} is not installed", EXTRA)
        lacking = tosa_tools.problem()
        if lacking is not None:
            return Availability(False, lacking, tosa_tools.remedy())
        versions = f"{vela.DISTRIBUTION} {vela.version()}, {tosa_tools.DISTRIBUTION} {tosa_tools.version()}"
        return Availability(True, f"{found.reason}, {versions}")

    def partitioner(self, options: EthosUOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        with tosa_tools.importable():
            from executorch.backends.arm.ethosu import EthosUPartitioner

        from etdev.backends.ethos_u.compiling import compile_spec

        return EthosUPartitioner(compile_spec(options))

    def recording(self, options: Sequence[EthosUOptions]) -> AbstractContextManager[Mapping[str, DelegateRecord]]:
        from etdev.backends.ethos_u.compiling import recorded

        return recorded(options)


def _check_mode(options: EthosUOptions) -> Iterable[OptionIssue]:
    """Yield a problem if the processor does not have the memory mode. Check only modes of Vela's own config file.

    The second AXI port of Ethos-U55 is read-only, but a mode `Dedicated_Sram` writes scratch memory through this port.
    """
    mode = options.memory_mode or ""
    if options.target.startswith("ethos-u55") and mode.startswith("Dedicated_Sram"):
        message = f"{options.target} has no memory mode {mode}"
        yield OptionIssue(("memory_mode",), message, "use Shared_Sram or Sram_Only, or compile for Ethos-U65 or U85")


backend = EthosU()
