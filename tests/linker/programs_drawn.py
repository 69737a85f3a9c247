"""Random object programs: methods drawn statement by statement."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hypothesis import strategies as st

from etdev.program import model as m
from linker.oracle import Call
from linker.programs import SIZES, Method, Object, program

_VIEWS = ("aten::view_copy.out", "aten::view_copy.out", "aten::alias_copy.out", "aten::detach_copy.out")
_OPERATORS = ("aten::add.out", "aten::mul.out", "aten::relu.out", "my::fused.out")


class _Drawn:
    """Method drawn statement by statement. It uses only values that are defined on every path."""

    def __init__(
        self,
        draw: st.DrawFn,
        name: str,
        names: Sequence[str],
        *,
        initial: bool = True,
        delegates: bool = True,
        devices: Sequence[str] = (),
    ) -> None:
        self.draw, self.delegates, self.devices = draw, delegates, devices
        self.method = method = Method(name)
        self.state: list[int] = []
        self.resident: dict[int, str] = {}
        """State that only delegates on one device access."""
        self.known: list[int] = []
        fewest = draw(st.integers(0, 2)) if devices else 0
        for state in draw(st.lists(st.sampled_from(names), unique=True, min_size=fewest, max_size=2)):
            self.add_state(state, names, initial=initial)
        for _ in range(draw(st.integers(1, 3))):
            planned = draw(st.sampled_from((True, True, True, False)))
            self.known.append(
                method.input(self.size(), dynamic=draw(st.sampled_from((False, False, True))), planned=planned)
            )
        constants = [method.constant(self.size(), draw(st.integers(1, 4))) for _ in range(draw(st.integers(0, 1)))]
        self.known += constants
        self.shared: set[int] = set()
        """Values whose bytes contain other values, and these values."""
        self.unwritable = set(constants)
        """Values that may be constants, which no instruction writes."""
        self.budget = draw(st.integers(2, 16))
        if devices:
            draw(st.sampled_from((self.delegate, self.renew, self.nothing)))()
        self.block(0)
        some = st.sampled_from([*self.known, *self.state, *self.made(), *self.made()])
        method.outputs = [
            value for value in draw(st.lists(some, min_size=1, max_size=3)) if method.at(value).allocation_info
        ]

    def add_state(self, name: str, names: Sequence[str], *, initial: bool) -> None:
        """Add state. The same name has the same size in every method, and most often the same device."""
        resident = bool(self.devices) and self.draw(st.sampled_from((True, True, False)))
        data = self.draw(st.sampled_from((0, 0, 0, 0, 1) if resident else (0, 0, 1, 2))) if initial else 0
        number = names.index(name)
        index = self.method.buffer(SIZES[number], name, initial=data)
        if resident:
            self.resident[index] = self.devices[number % len(self.devices)]
        else:
            self.state.append(index)

    def made(self) -> list[int]:
        """Return the results of delegates on devices."""
        found = set[int]()
        for position, count in self.method.delegate_inputs.items() if self.devices else ():
            call = self.method.calls[position]
            assert isinstance(call, m.DelegateCall)
            found.update(call.args[count:])
        return [value for value in self.known if value in found]

    def size(self) -> int:
        return self.draw(st.sampled_from((*SIZES, 0) if self.devices else SIZES))

    def some(self) -> int:
        """Draw a value, most often one of the last."""
        recent = self.known[-3:]
        return self.draw(st.sampled_from([*recent, *recent, *self.known, *self.state]))

    def block(self, depth: int) -> None:
        kinds = [self.op, self.view] * 6
        kinds += [self.several, self.split, self.cat, self.et_view, self.unknown, self.alias]
        kinds += [self.put_together, self.cut_out, self.cut_up] * 2 + [self.turn]
        if self.delegates:
            kinds += [self.delegate] * (12 if self.devices else 1)
        if self.devices:
            kinds += [self.ask] * 2 + [self.free] * (0 if depth else 3) + [self.renew] * 4
        if self.state:
            kinds += [self.copy, self.update, self.copy]
        if depth < 3:
            kinds += [lambda: self.cond(depth)] * 4 + [lambda: self.counted(depth), lambda: self.carried(depth)]
        for _ in range(self.draw(st.integers(1, 6))):
            if self.budget <= 0:
                break
            self.budget -= 1
            self.draw(st.sampled_from(kinds))()
            if self.devices and not depth and not self.draw(st.integers(0, 5)):
                self.method.cuts.append(len(self.method.calls))

    def add(self, *values: int) -> None:
        self.known += values

    def op(self) -> None:
        args = [self.some() for _ in range(self.draw(st.integers(1, 2)))]
        dynamic = any(self.method.at(value).shape_dynamism for value in args)
        name = self.draw(st.sampled_from(_OPERATORS))
        if not dynamic and self.draw(st.booleans()):
            out = self.method.like(args[0])
            self.method.kernel(name, *args, out, out)
            self.add(out)
            return
        dynamic = dynamic and self.draw(st.booleans())
        if dynamic:  # Only the operator knows the sizes of its result.
            name, args = "aten::nonzero.out", args[:1]
        self.add(self.method.op(*args, nbytes=self.size(), dynamic=dynamic, name=name))

    def view(self) -> None:
        self.add(self.method.view(self.some(), self.draw(st.sampled_from(_VIEWS))))

    def several(self) -> None:
        self.add(*self.method.several(self.some(), nbytes=[self.size() for _ in range(2)]))

    def split(self) -> None:
        self.add(*self.method.split(self.some(), [self.size() for _ in range(self.draw(st.integers(1, 3)))]))

    def cat(self) -> None:
        self.add(self.method.cat(*(self.some() for _ in range(self.draw(st.integers(1, 3)))), nbytes=self.size()))

    def some_flat(self) -> int | None:
        """Draw a static value in one dimension that can be cut into quarters."""
        of = self.some()
        if self.method.at(of).shape_dynamism or self.method.at(of).nbytes % 16:
            return None
        return of if len(self.method.at(of).sizes) == 1 else self.method.flat(of)

    def put_together(self) -> None:
        parts = [self.some_flat() for _ in range(self.draw(st.integers(1, 3)))]
        found = [part for part in parts if part is not None]
        if found:
            self.add(*found, self.method.put_together(*found))

    def cut_out(self) -> None:
        of = self.some_flat()
        if of is not None:
            whole = self.method.at(of).nbytes
            start = self.draw(st.sampled_from([0, whole // 2, whole // 4]))
            self.add(self.method.cut_out(of, start, self.draw(st.sampled_from([whole, start + whole // 4]))))

    def turn(self) -> None:
        constants = [value for value in self.known if self.method.at(value).is_constant]
        of = self.draw(st.sampled_from([*constants, self.some()]))
        if not self.method.at(of).shape_dynamism and len(self.method.at(of).sizes) == 2:
            self.add(self.method.turn(of))

    def cut_up(self) -> None:
        of = self.some_flat()
        if of is not None:
            whole = self.method.at(of).nbytes
            self.add(*self.method.cut_up(of, whole // 4, whole // 4, whole // 2))

    def et_view(self) -> None:
        of = self.some()
        self.add(self.method.et_view(of))
        if of in self.unwritable:
            self.unwritable.add(self.known[-1])

    def delegate(self) -> None:
        dynamic = self.draw(st.sampled_from(((), (), (0,), (1,)))) if self.devices else ()
        self.add(*self.delegated([self.size() for _ in range(self.draw(st.integers(1, 2)))], dynamic=dynamic))

    def delegated(
        self, nbytes: Sequence[int], *more: int, device: str | None = None, dynamic: Collection[int] = ()
    ) -> list[int]:
        """Add a delegate call on some values and ``more``, on a device if there are any."""
        if not self.devices:
            return self.method.delegate(self.some(), nbytes=nbytes)
        args = [self.some() for _ in range(self.draw(st.integers(1, 3)))]
        device = device or self.draw(st.sampled_from((*self.devices, *self.devices, None)))
        args += [
            *more,
            *(value for value, home in self.resident.items() if home == device and self.draw(st.booleans())),
        ]
        backend = self.draw(st.sampled_from(("MyBackend", "EtdevReferenceBackend")))
        return self.method.delegate(
            *dict.fromkeys(args), nbytes=nbytes, device=device, backend=backend, dynamic=dynamic
        )

    def nothing(self) -> None:
        """Do nothing, so that the method starts with something else."""

    def renew(self) -> None:
        """Add a delegate that computes new contents of state, among other things."""
        if not self.resident and not self.state:
            return
        homes = sorted({*self.resident.values()})
        device = self.draw(st.sampled_from(homes or self.devices))
        fitting = [value for value, home in self.resident.items() if home == device]
        fitting = [*fitting, *fitting, *self.state]
        fewest = min(self.draw(st.integers(1, 2)), len({*fitting}))
        states = self.draw(st.lists(st.sampled_from(fitting), min_size=fewest, max_size=2, unique=True))
        sizes = [self.method.at(state).nbytes for state in states]
        others = [self.size() for _ in range(self.draw(st.integers(0, 2)))]
        order = self.draw(st.permutations(range(len(sizes) + len(others))))
        nbytes = [(*sizes, *others)[number] for number in order]
        old = states if self.draw(st.booleans()) else []
        outs = dict(zip(order, self.delegated(nbytes, *old, device=device), strict=True))
        self.add(*(outs[number] for number in range(len(sizes), len(order))))
        if self.draw(st.sampled_from((True, False, False))):
            self.op()
        for number, state in enumerate(states):
            self.method.copy(state, outs[number])
            if not self.draw(st.integers(0, 3)):
                self.add(outs[number])

    def some_dynamic(self) -> int:
        """Draw a value whose sizes vary, if there is one, most often a result of a delegate."""
        found = [value for value in (*self.known, *self.made(), *self.made()) if self.method.at(value).shape_dynamism]
        return self.draw(st.sampled_from(found or self.known))

    def ask(self) -> None:
        """Add a number that is a size, and an instruction that depends on it."""
        number = self.method.size(self.some_dynamic())
        self.add(self.method.op(self.some(), number, nbytes=self.size(), name=self.draw(st.sampled_from(_OPERATORS))))

    def condition(self) -> int:
        """Draw the condition of a branch: a tensor, or a size."""
        if self.devices and not self.draw(st.integers(0, 2)):
            return self.method.at_least(self.method.size(self.some_dynamic()), self.draw(st.integers(1, 4)))
        return self.some()

    def free(self) -> None:
        """Free a tensor when neither it nor its bytes are used any more."""
        moves = [call for call in self.method.calls if isinstance(call, m.MoveCall)]
        moved = (value for move in moves for value in (move.move_from, move.move_to))
        others = {*self.method.inputs, *self.unwritable, *self.shared, *moved}
        fitting = [value for value in self.known if value not in others]
        if fitting:
            value = self.draw(st.sampled_from(fitting))
            self.known = [other for other in self.known if other != value]
            self.method.free(value)

    def alias(self) -> None:
        """Add an alias of a static tensor that a kernel has written at its own place."""
        written = {call.args[-1] for call in self.method.calls if isinstance(call, m.KernelCall)}
        fitting = [
            value
            for value in self.known
            if value in written and self.method.at(value).allocation_info and not self.method.at(value).shape_dynamism
        ]
        if fitting:
            of = self.draw(st.sampled_from(fitting))
            whole = self.method.at(of).nbytes
            size = self.draw(st.sampled_from([size for size in {whole, *SIZES} if size <= whole]))
            self.add(self.method.alias(of, size, self.draw(st.sampled_from((0, whole - size)))))
            self.shared |= {of, self.known[-1]}

    def unknown(self) -> None:
        """Add an operator, unknown to the linker, that changes its arguments."""
        to = self.draw(st.sampled_from([value for value in self.known if value not in self.unwritable]))
        self.method.kernel("my::update", to, self.some(), self.method.value(m.Bool(False)))

    def copy(self) -> None:
        to = self.draw(st.sampled_from(self.state))
        if self.devices and self.draw(st.booleans()):
            (out,) = self.delegated([self.method.at(to).nbytes])
            self.add(out)
            self.method.copy(to, out)
            return
        if self.draw(st.booleans()):
            out = self.method.like(to)
            self.method.kernel(self.draw(st.sampled_from(_OPERATORS)), to, self.some(), out, out)
            self.add(out)
            self.method.copy(to, out)
            return
        self.method.copy(to, self.method.op(self.some(), nbytes=self.method.at(to).nbytes))

    def update(self) -> None:
        self.method.update(self.draw(st.sampled_from(self.state)), self.some())

    def cond(self, depth: int) -> None:
        before = list(self.known)
        count = self.draw(st.integers(1, 2))
        sizes: list[int] = []

        def side() -> list[int]:
            self.known = list(before)
            self.block(depth + 1)
            if not sizes:
                found = [self.some() for _ in range(count)]
                sizes.extend(found)
                return found
            others.extend(self.matching(value) for value in sizes)
            return others

        others: list[int] = []
        merged = self.method.cond(self.condition(), side, side)
        for value, *ways in zip(merged, sizes, others, strict=True):
            if self.unwritable.intersection(ways):
                self.unwritable.add(value)
        self.known = [*before, *merged]

    def matching(self, value: int) -> int:
        """Return a value of that shape, old or new."""
        wanted = self.method.at(value)
        fitting = [
            other
            for other in [*self.known, *self.state]
            if (self.method.at(other).sizes, self.method.at(other).shape_dynamism)
            == (wanted.sizes, wanted.shape_dynamism)
        ]
        if fitting and self.draw(st.booleans()):
            return self.draw(st.sampled_from(fitting))
        out = self.method.like(value)
        self.method.kernel("aten::mm.out", self.some(), out, out)
        return out

    def counted(self, depth: int) -> None:
        """Add a loop as ``scan`` becomes one: a carried tensor, and rows that are appended."""
        method, times = self.method, self.draw(st.integers(1, 4))
        carry = method.tensor(self.size())
        method.copy(carry, method.op(self.some(), nbytes=method.at(carry).nbytes))
        rows = method.tensor(64, dynamic=True)
        before = [*self.known, carry]
        with method.loop(times) as counter:
            self.known = list(before)
            self.block(depth + 1)
            method.copy(carry, method.op(self.some(), carry, nbytes=method.at(carry).nbytes))
            method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(self.some(), nbytes=16), counter)
        self.known = [*before, rows]

    def carried(self, depth: int) -> None:
        """Add a loop that no compiler emits today: its carried tensors move from iteration to iteration."""
        method = self.method
        first = self.some()
        carry = method.like(first)
        method.move(first, carry)
        self.unwritable.add(carry)
        before = [*self.known, carry]
        start = len(method.calls)
        self.known = list(before)
        self.block(depth + 1)
        method.move(self.matching(carry), carry)
        method.repeat_while_false(self.some(), start)
        self.known = before


@st.composite
def objects(
    draw: st.DrawFn,
    *,
    most_methods: int = 1,
    initial: bool = True,
    delegates: bool = True,
    devices: Sequence[str] = (),
) -> Object:
    """Draw object programs. ``initial``: state may have initial values. ``devices``: places of most of the work."""
    drawn = [
        _Drawn(draw, f"m{index}", "abc", initial=initial, delegates=delegates, devices=devices)
        for index in range(draw(st.integers(1, most_methods)))
    ]
    return program(*(item.method for item in drawn))


@st.composite
def calls(draw: st.DrawFn, methods: Sequence[str]) -> list[Call]:
    """Draw a few calls in order."""
    call = st.builds(
        Call, st.sampled_from(methods), st.integers(0, 100), st.lists(st.booleans(), max_size=6).map(tuple)
    )
    return draw(st.lists(call, min_size=1, max_size=4))
