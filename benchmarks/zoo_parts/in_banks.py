"""Programs of the zoo in memory banks: etdev's links, and files that ExecuTorch plans with ``banked_greedy``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from time import process_time
from unittest import mock

from etdev.errors import CapacityError
from etdev.linker import Linked, LinkOptions, link, link_foreign
from etdev.linker.banks import Banks
from etdev.planner.banks import Bank, BankedPlan, BankedProblem, BanksFullError, banked_greedy, plan_banks
from etdev.program import Program, read
from etdev.program.footprint import planned_memory
from etdev.program.sidecar import Sidecar, read_sidecar
from zoo_parts import plain
from zoo_parts.key import model_facts, versions
from zoo_parts.steps import build_step

ALIGNMENT = 16
"""Alignment in bytes that both planners use."""
COST = 4
"""Cost of a byte in the slow bank. In the fast bank it is 1."""
SHARES = (8, 4, 2)
"""The fast bank has this part of the planned memory of etdev's link without banks."""
_ENOUGH = 1 << 31
"""Size in bytes of a slow bank without a limit."""


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a fast and a slow bank, in bytes."""

    slow: int
    """Size of the slow bank that suffices."""
    traffic: tuple[int, int]
    """Bytes that one call reads and writes in the fast bank and in the slow one."""

    @property
    def cost(self) -> int:
        """Return the cost of the traffic."""
        return self.traffic[0] + COST * self.traffic[1]


@dataclass(frozen=True, slots=True)
class Made:
    """A model that is ready to be linked."""

    name: str
    folder: Path
    """Folder of the benchmark's own files."""
    objects: Path
    peak: int
    """Planned memory in bytes without banks, rounded up to the alignment."""
    plain: dict[int, Use | str]
    """ExecuTorch's own files, by share; the reason if its plan is wrong."""

    def fast(self, share: int) -> int:
        """Return the size of the fast bank."""
        return self.peak // share // ALIGNMENT * ALIGNMENT

    @property
    def plain_file(self) -> Path:
        """ExecuTorch's own file, with its plan for one of the shares."""
        return self.folder / "plain.pte"

    def program(self) -> tuple[Program, Sidecar]:
        """Return the object program."""
        return read(self.objects), read_sidecar(self.objects.with_suffix(".json"))


@dataclass(frozen=True, slots=True)
class Found:
    """A link into banks."""

    linked: Linked | None
    """None if the tensors do not fit."""
    greedy: Use | None
    """The cheapest plan of ExecuTorch's planner for the same tensors; None if they never fit."""
    proved: bool
    """True if no division of the tensors fits."""
    seconds: float
    """Time of the process."""


def make(name: str, folder: Path, *, fresh: bool) -> Made:
    """Build a model and let ExecuTorch plan it, unless the folder has both. ``fresh`` builds in any case."""
    facts = folder / "made.json"
    key = json.dumps([model_facts(name), versions()])
    known = json.loads(facts.read_text()) if facts.exists() and not fresh else {}
    if known.get("key") == key:
        uses = {int(share): use if isinstance(use, str) else _use(use) for share, use in known["plain"].items()}
        return Made(name, folder, Path(known["objects"]), known["peak"], uses)
    built = build_step(name, "portable", [], folder)
    linked = link(read(built.object), LinkOptions(), read_sidecar(built.object.with_suffix(".json"))).program
    peak = -(-sum(planned_memory(linked).values()) // ALIGNMENT) * ALIGNMENT
    made = Made(name, folder, built.object, peak, {})
    edge = plain.lower(plain.export(name), "portable")
    for share in SHARES:
        made.plain[share] = _plain_use(edge, made.fast(share), made.plain_file)
    content = {
        "key": key,
        "objects": str(made.objects),
        "peak": peak,
        "plain": {share: use if isinstance(use, str) else asdict(use) for share, use in made.plain.items()},
    }
    facts.write_text(json.dumps(content, indent=1) + "\n")
    return made


def _use(known: dict[str, object]) -> Use:
    slow, (fast_traffic, slow_traffic) = known["slow"], known["traffic"]  # type: ignore[misc]
    return Use(slow, (fast_traffic, slow_traffic))  # type: ignore[arg-type]


def _plain_use(edge: object, fast: int, path: Path) -> Use | str:
    """Emit with ExecuTorch's planner for banks.

    It fills the banks in order. So its plan for a slow bank without a limit is also its plan for every slow bank that
    has room for that plan, and it fails with any smaller one.
    """
    from executorch.exir.banked_memory_planning import Bank as TheirBank
    from executorch.exir.banked_memory_planning import TargetMemoryMap, banked_memory_planning_pass

    from etdev.errors import LinkError
    from etdev.program.analysis.storage import method_memory
    from etdev.program.analysis.traffic import storage_traffic

    target = TargetMemoryMap([TheirBank("fast", fast, 1), TheirBank("slow", _ENOUGH, 2)])
    plain.write_plain(edge, {"memory_planning_pass": banked_memory_planning_pass(target)}, path)  # type: ignore[arg-type]
    (plan,) = read(path).execution_plan
    try:
        memory = method_memory(plan, {})
    except LinkError as error:
        return error.message
    traffic = [0, 0]
    for storage, nbytes in zip(memory.storages, storage_traffic(plan, memory), strict=True):
        traffic[storage.memory_id - 1] += nbytes
    sizes = [*plan.non_const_buffer_sizes, 0, 0]
    return Use(sizes[2], (traffic[0], traffic[1]))


def two_banks(fast: int, slow: int) -> Banks:
    """Return a fast bank and a slow one."""
    return Banks((Bank("fast", fast, ALIGNMENT), Bank("slow", slow, ALIGNMENT, Fraction(COST))), (1, 2))


def greedy_need(made: Made, share: int) -> Use:
    """Return what ExecuTorch's planner uses for the tensors of etdev's link, if the slow bank has no limit."""
    with _recorded(made.fast(share), _ENOUGH, only=True) as problems:
        _link(made, made.fast(share), _ENOUGH)
    found = _greedy_use(problems[0])
    assert found is not None
    return found


def link_in_banks(made: Made, fast: int, slow: int) -> Found:
    """Link a model into two banks."""
    begin = process_time()
    with _recorded(fast, slow) as problems:
        linked = _link(made, fast, slow)
    seconds = process_time() - begin
    uses = [use for use in map(_greedy_use, problems) if use is not None]
    greedy = min(uses, key=lambda use: use.cost, default=None)
    return Found(linked, greedy, linked is None and all(map(_is_impossible, problems)), seconds)


def relink_in_banks(made: Made, fast: int, slow: int) -> Use | None:
    """Relink ExecuTorch's own file into two banks. Return None if the tensors do not fit."""
    try:
        linked = link_foreign(read(made.plain_file), LinkOptions(banks=two_banks(fast, slow), alignment=ALIGNMENT))
    except CapacityError:
        return None
    assert linked.banks is not None
    first, second = linked.banks.banks
    return Use(second.used, (first.traffic, second.traffic))


def _link(made: Made, fast: int, slow: int) -> Linked | None:
    program, sidecar = made.program()
    try:
        return link(program, LinkOptions(banks=two_banks(fast, slow), alignment=ALIGNMENT), sidecar)
    except CapacityError:
        return None


@contextmanager
def _recorded(fast: int, slow: int, *, only: bool = False) -> Iterator[list[BankedProblem]]:
    """Collect the planning problems of all candidates of a link into these banks. ``only`` does not solve them.

    A link that does not fit also tries larger banks, to say which would suffice. Those problems are left out.
    """
    problems: list[BankedProblem] = []

    def plan(problem: BankedProblem, *args: object, **options: object) -> BankedPlan:
        if all(bank.size <= size for bank, size in zip(problem.banks, (fast, slow), strict=True)):
            problems.append(problem)
        if only:
            raise BanksFullError("not solved", bank=0, missing=0, instant=0, buffers=())
        return plan_banks(problem, *args, **options)  # type: ignore[arg-type]

    with mock.patch("etdev.linker.banks.plan_banks", plan):
        yield problems


def _greedy_use(problem: BankedProblem) -> Use | None:
    found = banked_greedy(problem)
    if found is None:
        return None
    traffic = [0, 0]
    end = 0
    for index, (bank, offset) in enumerate(zip(*found, strict=True)):
        traffic[bank] += problem.traffic[index]
        if bank == 1 and problem.buffers[index].occupies:
            end = max(end, offset + problem.buffers[index].size)
    return Use(-(-end // ALIGNMENT) * ALIGNMENT, (traffic[0], traffic[1]))


def _is_impossible(problem: BankedProblem) -> bool:
    from etdev.planner.banks.forced import find_forced
    from etdev.planner.banks.loads import Loads

    return find_forced(Loads(problem)) is None
