"""Checks that a compiled plan stays inside its memory.

Kernels write through plain addresses, so a wrong plan overwrites memory behind an array. Every plan is checked before
its code is called, whether it was just compiled or comes from the cache or from a bundle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from engine.compiler.addresses import MemorySpace, address_in, block_in, block_of, offset_of, port_of, space_of
from engine.compiler.executable import Executable, NativeSteps, Region
from engine.errors import CompileError
from engine.ir.dims import hint, is_at_most, is_same, is_symbolic, terms_of
from engine.tensor import TensorSpec, named_dtype


def check_plan(plan: Executable, inputs: Sequence[TensorSpec]) -> None:
    """Check that every address and every tensor of a plan lies inside its memory.

    Args:
        inputs: specs of the arrays that a run is given, in the order of the graph's inputs.

    Raises:
        CompileError: names the output, operator or kernel and the memory that it would leave.
    """
    sizes = {
        (MemorySpace.ARENA, 0): plan.arena_bytes,
        (MemorySpace.CONSTANT, 0): plan.constants.nbytes,
        (MemorySpace.WEIGHT, 0): plan.weights.nbytes,
        **{(MemorySpace.INPUT, port): _bytes(spec) for port, spec in enumerate(inputs)},
    }
    for number, region in enumerate(plan.outputs):
        if isinstance(region, Region) and region.is_whole_output:
            _check_whole_output(number, region)
            sizes[MemorySpace.OUTPUT, number] = _region_bytes(region)
    for number, region in enumerate(plan.outputs):
        if isinstance(region, Region):
            _check_region(f"output {number}", region, sizes)
    for call in (each.call for each in plan.segments if each.call is not None):
        for each in (*call.inputs, *call.outputs):
            if each is not None:
                _check_region(f"operator '{call.operator}'", each, sizes)
    _check_arguments(plan.steps, sizes)


def open_bounds(plan: Executable, numbers: Sequence[int], inputs: Sequence[TensorSpec]) -> list[int]:
    """Return the symbolic numbers that must not be negative for a template to stay inside its memory.

    Those that algebra shows not to be negative for any sizes are left out: each set of sizes has to check the others.

    Args:
        numbers: the symbolic numbers that the plan has indices of.
        inputs: specs of the inputs over symbolic sizes.

    Raises:
        CompileError: one is negative for all sizes.
    """
    sizes = {
        block_of(MemorySpace.ARENA, 0): numbers[plan.arena_bytes],
        block_of(MemorySpace.CONSTANT, 0): plan.constants.nbytes,
        block_of(MemorySpace.WEIGHT, 0): plan.weights.nbytes,
        **{
            block_of(MemorySpace.INPUT, port): math.prod(spec.sizes) * spec.dtype.itemsize
            for port, spec in enumerate(inputs)
        },
    }
    outputs = [each for each in plan.outputs if isinstance(each, Region)]
    calls = [each.call for each in plan.segments if each.call is not None]
    operands = [each for call in calls for each in (*call.inputs, *call.outputs) if each is not None]
    found: list[int] = []
    for region in outputs:
        if region.is_whole_output:
            sizes[block_in(region.address)] = _dense_bytes(region, numbers)
            found += _dense_bounds(region, numbers)
    found += _argument_bounds(plan.steps, numbers, sizes)
    for region in (*outputs, *operands):
        found += _region_bounds(region, numbers, sizes.get(block_in(region.address), -1))
    if any(not is_symbolic(each) and each < 0 for each in found):
        raise CompileError("a plan does not stay inside its memory")
    distinct = {terms_of(each): each for each in found}.values()
    return [each for each in distinct if is_symbolic(each) and not is_at_most(0, each)]


def _dense_bytes(region: Region, numbers: Sequence[int]) -> int:
    return math.prod((numbers[size] for size in region.shape), start=named_dtype(region.dtype).itemsize)


def _dense_bounds(region: Region, numbers: Sequence[int]) -> list[int]:
    """Return what must not be negative for an output to be one dense array from its first byte."""
    found = [-numbers[offset_of(region.address)]]
    shape = [numbers[size] for size in region.shape]
    dense = named_dtype(region.dtype).itemsize
    for size, stride in zip(reversed(shape), reversed(region.strides), strict=True):
        if not (_is_empty(shape) or is_same(size, 1)):
            found += [numbers[stride] - dense, dense - numbers[stride]]
        dense *= size
    return found


def _argument_bounds(steps: NativeSteps, numbers: Sequence[int], sizes: Mapping[int, int]) -> list[int]:
    """Return what must not be negative for the arguments of kernels to begin inside their memory."""
    places = {(int(block), int(offset)) for block, offset in zip(steps.blocks, steps.offsets, strict=True)}
    in_memory = [each for each in sorted(places) if space_of(address_in(each[0], 0)) is not MemorySpace.NUMBER]
    return [bound for block, offset in in_memory for bound in (numbers[offset], sizes.get(block, -1) - numbers[offset])]


def _region_bounds(region: Region, numbers: Sequence[int], available: int) -> list[int]:
    """Return what must not be negative for a tensor to lie inside a memory of so many bytes."""
    first = last = numbers[offset_of(region.address)]
    if _is_empty([numbers[size] for size in region.shape]):
        return [first, available - last]
    found: list[int] = []
    for size, stride in zip(region.shape, region.strides, strict=True):
        reach = (numbers[size] - 1) * numbers[stride]
        is_backward = hint(numbers[stride]) < 0
        found.append(-numbers[stride] if is_backward else numbers[stride])
        first, last = (first + reach, last) if is_backward else (first, last + reach)
    return [*found, first, available - last - named_dtype(region.dtype).itemsize]


def _is_empty(shape: Sequence[int]) -> bool:
    """Return whether a tensor has no elements for any sizes."""
    return any(is_same(size, 0) for size in shape)


def check_output_shapes(plan: Executable, shapes: Mapping[int, tuple[int, ...]]) -> None:
    """Check that the outputs of a plan have the shapes that inference found.

    Args:
        shapes: by number of the output; numbers that are missing are not compared.

    Raises:
        CompileError: names the output.
    """
    for number, shape in shapes.items():
        output = plan.outputs[number]
        if isinstance(output, Region) and output.shape != shape:
            where = f"output {number}"
            raise CompileError("an output has a different shape", where=where, found=output.shape, expected=shape)


def _check_whole_output(number: int, region: Region) -> None:
    """Check that an array for the caller belongs to one output, and holds nothing else."""
    if port_of(region.address) != number:
        problem = "two outputs share an array"
        raise CompileError(problem, where=f"output {number}", found=f"that of output {port_of(region.address)}")
    width = named_dtype(region.dtype).itemsize
    dense = [width * math.prod(region.shape[k + 1 :]) for k in range(len(region.shape))]
    strides = zip(region.shape, region.strides, dense, strict=True)
    is_dense = 0 in region.shape or all(size == 1 or stride == wanted for size, stride, wanted in strides)
    if offset_of(region.address) or not is_dense:
        found = f"offset {offset_of(region.address)}, strides {region.strides} of shape {region.shape}"
        raise CompileError("an output is not one dense array", where=f"output {number}", found=found)


def _check_region(where: str, region: Region, sizes: Mapping[tuple[MemorySpace, int], int]) -> None:
    first, last = _extent(region)
    available = sizes.get((space_of(region.address), port_of(region.address)), -1)
    if first < 0 or last > available:
        raise CompileError(
            "a tensor is outside its memory",
            where=where,
            found=f"bytes {first} to {last} of {space_of(region.address).name.lower()} {port_of(region.address)}",
            expected=f"at most {max(available, 0)}",
        )


def _check_arguments(steps: NativeSteps, sizes: Mapping[tuple[MemorySpace, int], int]) -> None:
    """Check where the arguments of kernels begin; how far a kernel goes from there is in its code."""
    blocks, offsets = steps.blocks, steps.offsets
    limits = np.full(int(blocks.max(initial=0)) + 1, -1, np.int64)
    for (space, port), size in sizes.items():
        if (block := block_of(space, port)) < len(limits):
            limits[block] = size
    limits = limits[blocks]
    is_outside = ((offsets < 0) | (offsets > limits)) & (blocks != block_of(MemorySpace.NUMBER, 0))
    if not is_outside.any():
        return
    bad = int(np.flatnonzero(is_outside)[0])
    step = int(np.searchsorted(steps.ends[:, 0], bad, side="right")) - 1
    place = address_in(int(blocks[bad]), int(offsets[bad]))
    raise CompileError(
        "an argument of a kernel lies outside its memory",
        where=f"operator '{steps[step].operators[0]}'",
        found=f"byte {offsets[bad]} of {space_of(place).name.lower()} {port_of(place)}",
        expected=f"at most {max(int(limits[bad]), 0)}",
    )


def _bytes(spec: TensorSpec) -> int:
    return (spec.size or 0) * spec.dtype.itemsize


def _region_bytes(region: Region) -> int:
    return math.prod(region.shape) * named_dtype(region.dtype).itemsize


def _extent(region: Region) -> tuple[int, int]:
    """Return the first byte of a tensor in its memory block, and the byte after its last."""
    first = last = offset_of(region.address)
    if 0 in region.shape:
        return first, last
    for size, stride in zip(region.shape, region.strides, strict=True):
        first += min(0, (size - 1) * stride)
        last += max(0, (size - 1) * stride)
    return first, last + named_dtype(region.dtype).itemsize
