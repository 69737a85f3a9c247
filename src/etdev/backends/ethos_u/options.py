"""Options of the backend ``ethos-u``."""

from __future__ import annotations

from pydantic import Field

from etdev.config.table import Table
from etdev.config.tables.schemes import EthosU as Processor
from etdev.config.types import Many, Text


class EthosUOptions(Table):
    """Options of Vela, the compiler for Ethos-U."""

    target: Processor = Field(description="Processor to compile for.")
    system_config: Text | None = Field(
        None,
        description="System configuration in Vela's config file. Default: `Ethos_U55_High_End_Embedded`, "
        "`Ethos_U65_High_End` or `Ethos_U85_SYS_DRAM_Mid`, by the processor.",
    )
    memory_mode: Text | None = Field(
        None,
        description="Memory mode in Vela's config file. Default: `Shared_Sram` for Ethos-U55, `Dedicated_Sram_384KB` "
        "for Ethos-U65, `Sram_Only` for Ethos-U85.",
    )
    config: Text | None = Field(
        None, description="A config file of Vela (`.ini`). Default: `Arm/vela.ini`, which comes with Vela."
    )
    extra_flags: Many[Text] = Field((), description="Further flags of Vela, such as `--optimise=Size`.")
