"""Bytes of the objects that ExecuTorch's runtime allocates for a method, computed from the program."""

from __future__ import annotations

from etdev.program import model as m


def runtime_objects(plan: m.ExecutionPlan, word: int, *, merged: bool = False) -> int:
    """Return the bytes of the runtime's own objects in the pool of a method, if a pointer has ``word`` bytes.

    The objects are those that ``Method::init`` and ``parseTensor`` of executorch 1.5.1 allocate, in the same order.
    Delegates may allocate more. ``merged`` is True if a data file and the program both contain named data.
    """
    return _Counter(word).method(plan, merged=merged)


class _Counter:
    """Counter of the total size of allocations, including padding. A pointer has ``word`` bytes."""

    def __init__(self, word: int) -> None:
        self._word = word
        self._used = 0

    def method(self, plan: m.ExecutionPlan, *, merged: bool) -> int:
        self._add(len(plan.values), 16, 8)  # EValue: 8 bytes of payload and a tag.
        self._add(len(plan.inputs), 1, 1)  # bool input_set
        external = sum(tensor.is_external and tensor.allocation_info is None for _, tensor in plan.tensors())
        if external:
            self._add(external, 48 if self._word == 8 else 40, 8)  # NamedData: a key and a FreeableBuffer.
        for value in plan.values:
            self._value(value)
        size = 56 if self._word == 8 else 40
        self._add(
            len(plan.delegates), size, 8
        )  # BackendDelegate: a FreeableBuffer, which has a uint64_t, and two pointers.
        if merged:
            self._words(3)  # MergedDataMap
        for delegate in plan.delegates:
            self._words(3, len(delegate.compile_specs))  # CompileSpec
        self._words(4, len(plan.chains))  # Chain
        for chain in plan.chains:
            self._words(1, len(chain.instructions))  # OpFunction
            self._words(2, len(chain.instructions))  # InstructionArgs
            for call in chain.instructions:
                if isinstance(call, m.KernelCall | m.DelegateCall):
                    self._words(1, len(call.args))
        return self._used

    def _value(self, value: m.Value) -> None:
        match value:
            case m.Tensor():
                rank = len(value.sizes)
                if not value.is_static:
                    self._add(rank, 4, 4)  # sizes
                    self._add(rank, 1, 1)  # dimension order
                self._add(rank, 4, 4)  # strides
                self._add(1, 8 * self._word, self._word)  # TensorImpl: seven pointers and sizes, and four bytes.
            case m.IntList():
                self._words(1, len(value.items))
                self._add(len(value.items), 8, 8)
                self._words(3)
            case m.TensorList():
                self._words(1, len(value.items))
                self._words(1, len(value.items))
                self._words(3)
            case m.OptionalTensorList():
                self._words(2, len(value.items))
                self._words(1, len(value.items))
                self._words(3)
            case m.BoolList() | m.DoubleList() | m.String():
                self._words(2)
            case _:
                pass

    def _words(self, words: int, count: int = 1) -> None:
        self._add(count, words * self._word, self._word)

    def _add(self, count: int, size: int, alignment: int) -> None:
        self._used = -(-self._used // alignment) * alignment + count * size
