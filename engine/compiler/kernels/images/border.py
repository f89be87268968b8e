"""Writing of the border around images whose memory was used for something else: zeros, or the zero point of bytes.

The first kernel that writes such an image clears the border as well, in separate chunks: both write different bytes, so
neither waits for the other.

Arguments of ``Border``: the storage of the images. Of ``Bordered``: those of the kernel, then that storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from engine.compiler.codegen.ir import Function, Module, Sizes, Value, as_value, constant, is_dynamic, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.kernel import Kernel, block_of, derived, start
from engine.ir.dims import largest, smallest

# Up to this many vectors are cleared without a loop.
UNROLLED = 8
# Times a byte, it is a word of that byte.
_BYTES = 0x01010101


@dataclass(frozen=True, kw_only=True)
class Border(Kernel):
    """Border of channels-last images.

    Args:
        rows, columns: of an image with its border.
        pitch: floats from pixel to pixel.
        border: (top, left, bottom, right).
        fill: value of each of its bytes.
    """

    kind = "border"
    batch: int
    rows: int
    columns: int
    pitch: int
    border: tuple[int, int, int, int]
    fill: int = 0

    @property
    def sides(self) -> int:
        """Return the pixels from the last of a row to the first of the next."""
        return self.border[1] + self.border[3]

    @property
    def breaks(self) -> int:
        """Return the gaps between rows of pixels."""
        return self.rows - self.border[0] - self.border[2] - 1 if self.sides else 0

    def dynamic(self, sizes: Sizes) -> Self:
        dynamic = self.with_dynamic(sizes, "batch", "rows", "columns")
        return derived(dynamic, parts=sizes.dynamic_count(self.parts))

    @cached_property
    def parts(self) -> int:
        """Return the chunks of an image."""
        clears = 4 * self.breaks * self.sides * self.pitch // self.host.chunk_bytes
        return largest(1, smallest(self.breaks, clears))

    @property
    def chunks(self) -> int:
        return self.batch * self.parts

    def emit(self, module: Module) -> None:
        f, (storage,), chunk = start(module, self, 1)
        top, left, bottom, right = self.border
        row = self.columns * self.pitch
        n, part = f.divmod(chunk, self.parts)
        image = f.at(storage, f.mul(n, self.rows * row))
        with f.when(f.less(part, 1)):
            self._clear(f, image, top * row + left * self.pitch)
            after = bottom * row + right * self.pitch
            self._clear(f, f.at(image, self.rows * row - after), after)
        if self.breaks:
            with f.loop(*block_of(f, part, -(-self.breaks // self.parts), self.breaks)) as each:
                at = f.add(top * row + (self.columns - right) * self.pitch, f.mul(each.index, row))
                self._clear(f, f.at(image, at), self.sides * self.pitch)
        f.finish()

    def _clear(self, f: Function, address: Value, floats: int) -> None:
        clear(f, self.host.lanes, address, floats, self.fill)


@dataclass(frozen=True, kw_only=True)
class Bordered(Kernel):
    """Kernel combined with the clearing of the border of an image it writes.

    Args:
        arguments: number of arguments of ``inner``.
    """

    kind = "bordered"
    inner: Kernel
    border: Border
    arguments: int

    @property
    def reported_kind(self) -> str:
        return self.inner.reported_kind

    @property
    def chunks(self) -> int:
        return self.border.chunks + self.inner.chunks

    @property
    def flops(self) -> int:
        return self.inner.flops

    def dynamic(self, sizes: Sizes) -> Self:
        return self.with_dynamic(sizes, "inner", "border")

    def emit(self, module: Module) -> None:
        for kernel in (self.inner, self.border):
            kernel.write(module)
            module.functions[kernel.name].linkage = "internal "
        f = module.function(self.name, [("ptr", "arguments"), ("i64", "chunk")])
        table, chunk = f.parameters
        is_border = f.less(chunk, self.border.chunks)
        with f.when(is_border):
            f.call(self.border.name, [f.at(table, self.arguments, 8), chunk])
        with f.unless(is_border):
            f.call(self.inner.name, [table, as_value(f.sub(chunk, self.border.chunks))])
        f.finish()


def clear(f: Function, lanes: int, address: Value, floats: int, fill: int = 0) -> None:
    """Emit stores of zeros, or of bytes of another value."""

    def numbers(lanes: int) -> Value:
        return constant(fill * _BYTES, vector(lanes, "i32")) if fill else constant(0.0, vector(lanes))

    whole = floats // lanes
    zero = numbers(lanes)
    if is_dynamic(floats):
        with f.loop(0, whole * lanes, lanes) as each:
            f.store(zero, f.at(address, each.index))
        f.store_lanes(zero, f.at(address, whole * lanes), floats - whole * lanes)
        return
    if whole > UNROLLED:
        with f.loop(0, whole * lanes, lanes) as each:
            f.store(zero, f.at(address, each.index))
    else:
        for k in range(whole):
            f.store(zero, f.at(address, k * lanes))
    if rest := floats - whole * lanes:
        f.store_lanes(numbers(fitting_lanes(rest, lanes)), f.at(address, whole * lanes), rest)
