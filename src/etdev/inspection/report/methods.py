"""The page's part about a method: its planned buffers, instructions and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from etdev.inspection.lifetimes import TensorLife, bytes_in_use, tensor_lives
from etdev.inspection.provenance import Provenance
from etdev.inspection.report.dataflow import data_flow
from etdev.inspection.report.graph import graph
from etdev.inspection.report.modules import module_paths, modules
from etdev.inspection.report.reasons import reasons
from etdev.inspection.report.tables import method_tables
from etdev.inspection.report.tensors import Tensor, columns, tensors
from etdev.inspection.report.timeline import timeline
from etdev.page.model import BufferPage, Instructions, MethodPage, Storages, Texts
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import instruction_name
from etdev.program.analysis.storage import MethodMemory, Storage
from etdev.program.info import BufferInfo, MethodInfo, Peak
from etdev.program.sidecar import MethodNotes, Source


def method_page(
    program: Program,
    plan: m.ExecutionPlan,
    memory: MethodMemory | str,
    info: MethodInfo,
    known: Provenance,
    texts: Texts,
) -> MethodPage:
    """Return the part of the page that describes a method.

    ``memory`` is the method's use of planned memory, or the reason why this use is unknown.
    """
    notes = known.notes.get(plan.name)
    found = data_flow(program, plan, memory)
    paths = module_paths(plan, found.operands, known)
    return MethodPage(
        name=plan.name,
        unknown=memory if isinstance(memory, str) else None,
        instants=info.instructions + 2,
        instructions=_instructions(plan, notes.sources if notes is not None else {}, texts),
        buffers=() if isinstance(memory, str) else _buffers(plan, memory, info, known, texts),
        graph=graph(plan, found, memory, paths, _input_names(known, plan.name), texts),
        modules=modules(program, plan, found, paths, notes or MethodNotes(), info.peaks, texts),
        timeline=timeline(plan, texts),
        tables=method_tables(info, known.method(plan.name)),
    )


def _input_names(known: Provenance, method: str) -> tuple[str, ...]:
    """Return the names of a method's inputs in the config; empty if they are unknown."""
    built = known.method(method)
    return built.input_names if built is not None else ()


def _instructions(plan: m.ExecutionPlan, sources: Mapping[int, Source], texts: Texts) -> Instructions:
    lines = [sources.get(position) for position in range(len(plan.instructions))]
    return Instructions(
        operator=tuple(texts.number(instruction_name(plan, call)) for call in plan.instructions),
        source=tuple(texts.number(None if line is None else str(line)) for line in lines),
    )


def _buffers(
    plan: m.ExecutionPlan, memory: MethodMemory, info: MethodInfo, known: Provenance, texts: Texts
) -> tuple[BufferPage, ...]:
    built = known.method(plan.name)
    names = _input_names(known, plan.name)
    why = reasons(plan, info.inplace, built)
    every = tensors(plan, memory, tensor_lives(memory), names, why)
    greedy = {buffer.index: buffer.greedy for buffer in built.buffers} if built is not None else {}
    peaks = {peak.buffer: peak for peak in info.peaks}
    return tuple(
        _buffer(replace(item, greedy=greedy.get(item.index)), every, memory, peaks.get(item.index), texts)
        for item in info.buffers
    )


def _buffer(
    info: BufferInfo, every: Sequence[Tensor], memory: MethodMemory, peak: Peak | None, texts: Texts
) -> BufferPage:
    mine = [tensor for tensor in every if memory.storages[tensor.life.storage].memory_id == info.index]
    shared = _shared([tensor.life for tensor in mine], memory)
    storages = [memory.storages[number] for number in shared]
    return BufferPage(
        info=info,
        tensors=columns(mine, {number: row for row, number in enumerate(shared)}, texts),
        storages=_storages(storages),
        live=bytes_in_use(storage for storage in memory.storages if storage.memory_id == info.index),
        peak=peak,
    )


def _shared(lives: Sequence[TensorLife], memory: MethodMemory) -> list[int]:
    """Return the indices of the storages that several tensors share."""
    return [
        number for number in dict.fromkeys(life.storage for life in lives) if len(memory.storages[number].values) > 1
    ]


def _storages(storages: Sequence[Storage]) -> Storages:
    return Storages(
        offset=tuple(storage.offset for storage in storages),
        size=tuple(storage.size for storage in storages),
        start=tuple(storage.start for storage in storages),
        end=tuple(storage.end for storage in storages),
    )
