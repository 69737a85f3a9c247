"""Models of the config tables for planned memory: `memory`, its banks and its pins."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AllowInfNan, Field

from etdev.config.registered import PlannerName
from etdev.config.table import Table
from etdev.config.types import Alignment, ByteSize, Entry, Expected, Identifier, Many, Position, SafeName, Text

Cost = Annotated[float, AllowInfNan(False), Field(ge=0, le=1e6), Expected("a number from 0 to 1000000")]
BankId = Annotated[int, Field(ge=1, le=64), Expected("a whole number from 1 to 64")]


class Bank(Table):
    """A memory of the board that holds planned tensors, such as SRAM."""

    name: SafeName = Field(description="Name of the bank, such as `sram`.")
    id: BankId = Field(
        description="Memory id of the bank in the file. The ids of all banks are the numbers from 1, without gaps."
    )
    size: ByteSize = Field(description="Number of bytes that the program may use in the bank.")
    alignment: Alignment | None = Field(
        None, description="Alignment of every address in the bank, in bytes. Default: `memory.alignment`."
    )
    cost: Cost | None = Field(
        None,
        description="Cost of a byte that is read or written, relative to the other banks. Default: 1 for the first "
        "bank, and for any other bank 4 times the cost of the bank before it.",
    )


class Pin(Table):
    """Banks for some tensors. The linker chooses the banks of all other tensors."""

    inputs: SafeName | dict[Identifier, SafeName] = Field(
        default_factory=dict,
        description="Bank of all inputs, or a table with banks by the input's name, for all methods with that input.",
    )
    outputs: SafeName | dict[Position, SafeName] = Field(
        default_factory=dict,
        description='Bank of all outputs, or a table with banks by the output\'s position: `{ 0 = "sram" }`, for all '
        "methods with that output.",
    )
    state: SafeName | dict[Text, SafeName] = Field(
        default_factory=dict, description="Bank of all state, or a table with banks by the name of the model's buffer."
    )
    delegates: dict[Text, SafeName] = Field(
        default_factory=dict,
        description="Bank of the inputs and outputs of delegates, by the name of the delegate's backend in the "
        'program: `{ EthosUBackend = "sram" }`.',
    )


class Memory(Table):
    """Layout of planned memory."""

    planner: PlannerName | Entry = Field(
        "best",
        description="`best` finds the smallest possible plan for almost every model, `greedy` places values in "
        "ExecuTorch's order, `naive` reuses no memory; a `module:callable` takes a planning problem "
        "and returns offsets. Other packages may register more names (docs/extending.md).",
    )
    alignment: Alignment = Field(16, description="Alignment of every planned address, in bytes.")
    tiling: Literal["auto", "off", "always"] = Field(
        "auto",
        description="Tiling computes ops part by part, which needs less memory but more instructions, so the "
        "file grows. `auto` tiles where this saves more memory than it adds to the file, or where a method would "
        "otherwise exceed all banks together; `always` tiles wherever this saves memory; `off` never tiles. If this "
        "key changes, a build repeats all stages from the export on.",
    )
    order: Literal["auto", "as-is"] = Field(
        "auto",
        description="Order of the instructions. `auto` moves independent instructions where the program then needs "
        "less planned memory, or costs less with banks. `as-is` keeps the order of the exported model.",
    )
    banks: Many[Bank] = Field(
        (),
        description="Memories that hold the host's planned tensors, in order of preference. Without banks, planned "
        "memory has no limit and is not divided.",
    )
    pin: Pin = Field(default_factory=Pin, description="Banks that some tensors must be in.")

    @property
    def room(self) -> int | None:
        """Total size of all banks in bytes, or None if there are no banks."""
        return sum(bank.size for bank in self.banks) if self.banks else None

    @property
    def bank_names(self) -> dict[int, str]:
        """Maps a memory id to the name of its bank."""
        return {bank.id: bank.name for bank in self.banks}
