"""How windows lie along one axis: numbers where they are known, code where they depend on the window."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.compiler.codegen.ir import Function, Index, Sizes, is_at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAxis:
    """The windows along one axis.

    Args:
        size, count: elements, windows.
        kernel, stride, dilation, padding: as PyTorch has them; the padding is that before and after.
        after: the padding after, where it is another one.
        is_adaptive: window i is [floor(i*size/count), ceil((i+1)*size/count)) instead.
    """

    size: int
    count: int
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    padding: int = 0
    after: int | None = None
    is_adaptive: bool = False

    def opened(self, sizes: Sizes) -> WindowAxis:
        """The same windows along axes of any length."""
        return replace(self, size=sizes.open(self.size), count=sizes.open(self.count))

    @property
    def extent(self) -> int:
        """From the first tap to the last, both included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def reach(self) -> int:
        """Taps of a window, roughly where they differ."""
        return -(-self.size // self.count) if self.is_adaptive else self.kernel

    @property
    def is_inside(self) -> bool:
        """Whether no window is clipped, as far as that is known."""
        end = (self.count - 1) * self.stride + self.extent
        return not (self.is_adaptive or self.padding) and is_at_most(end, self.size)

    def first(self, f: Function, window: Index) -> Index:
        """Where a window begins, padding included."""
        if self.is_adaptive:
            return f.divmod(f.mul(window, self.size), self.count)[0]
        return f.sub(f.mul(window, self.stride), self.padding)

    def end(self, f: Function, window: Index) -> Index:
        """Where a window ends, padding included."""
        if self.is_adaptive:
            return f.divmod(f.add(f.mul(window, self.size), self.size + self.count - 1), self.count)[0]
        return f.add(self.first(f, window), self.extent)

    def clip(self, f: Function, window: Index) -> tuple[Index, Index]:
        """The first tap of a window on the image and the number of taps there."""
        first = self.first(f, window)
        if self.is_inside:
            return first, self.kernel
        if self.is_adaptive:
            return first, f.sub(self.end(f, window), first)
        skipped, count = self.met(f, window)
        return f.add(first, f.mul(skipped, self.dilation)), count

    def met(self, f: Function, window: Index) -> tuple[Index, Index]:
        """Which of a window's taps are on the image: how many come before them, and how many they are."""
        if self.is_inside:
            return 0, self.kernel
        first, gap = self.first(f, window), self.dilation
        skipped = f.divmod(f.add(f.maximum(f.sub(0, first), 0), gap - 1), gap)[0]
        room = f.maximum(f.sub(self.size, first), 0)
        stop = f.minimum(f.divmod(f.add(room, gap - 1), gap)[0], self.kernel)
        return skipped, f.maximum(f.sub(stop, skipped), 0)

    def divisor(self, f: Function, window: Index, counts_padding: bool) -> Index:
        """Elements a window counts: those on the image, or on the image and its padding; of a dilated one, its taps."""
        if self.is_inside:
            return self.kernel
        first, end = self.first(f, window), self.end(f, window)
        if self.is_adaptive:
            return f.sub(end, first)
        behind = self.size + (self.padding if self.after is None else self.after)
        if self.dilation > 1:
            return self._taps(f, window, behind) if counts_padding else f.maximum(self.met(f, window)[1], 1)
        if counts_padding:
            return f.sub(f.minimum(end, behind), first)
        return f.maximum(f.sub(f.minimum(end, self.size), f.maximum(first, 0)), 1)

    def _taps(self, f: Function, window: Index, behind: int) -> Index:
        """Taps of a window before an end."""
        room = f.add(f.sub(behind, self.first(f, window)), self.dilation - 1)
        return f.minimum(f.divmod(room, self.dilation)[0], self.kernel)
