"""Sliding windows along one axis, and along the planes of volumes.

Numbers are Python numbers where sizes are static, and IR values where they depend on the window. A volume is stored as
consecutive image planes. Planes are not padded; taps of a window outside the volume are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.compiler.codegen.ir import Function, Index, Sizes, Value, as_value, is_at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAxis:
    """Sliding windows along one axis.

    Args:
        size, count: number of elements and of windows.
        kernel, stride, dilation, padding: as in PyTorch; the padding applies before and after.
        after: padding after the last element, if it differs.
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

    def dynamic(self, sizes: Sizes) -> WindowAxis:
        """Return these windows with dynamic size and count."""
        return replace(self, size=sizes.dynamic(self.size), count=sizes.dynamic(self.count))

    @property
    def extent(self) -> int:
        """Return the distance from the first to the last tap, both included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def reach(self) -> int:
        """Return the number of taps of a window; the average where windows differ."""
        return -(-self.size // self.count) if self.is_adaptive else self.kernel

    @property
    def is_inside(self) -> bool:
        """Return whether no window is known to reach into the padding."""
        end = (self.count - 1) * self.stride + self.extent
        return not (self.is_adaptive or self.padding) and is_at_most(end, self.size)

    def first(self, f: Function, window: Index) -> Index:
        """Return the start of a window, padding included."""
        if self.is_adaptive:
            return f.divmod(f.mul(window, self.size), self.count)[0]
        return f.sub(f.mul(window, self.stride), self.padding)

    def end(self, f: Function, window: Index) -> Index:
        """Return the end of a window, padding included."""
        if self.is_adaptive:
            return f.divmod(f.add(f.mul(window, self.size), self.size + self.count - 1), self.count)[0]
        return f.add(self.first(f, window), self.extent)

    def clip(self, f: Function, window: Index) -> tuple[Index, Index]:
        """Return the first tap of a window inside the image and the number of taps inside."""
        first = self.first(f, window)
        if self.is_inside:
            return first, self.kernel
        if self.is_adaptive:
            return first, f.sub(self.end(f, window), first)
        skipped, count = self.inside(f, window)
        return f.add(first, f.mul(skipped, self.dilation)), count

    def inside(self, f: Function, window: Index) -> tuple[Index, Index]:
        """Return the number of taps before the image and the number of taps inside it."""
        if self.is_inside:
            return 0, self.kernel
        first, gap = self.first(f, window), self.dilation
        skipped = f.divmod(f.add(f.maximum(f.sub(0, first), 0), gap - 1), gap)[0]
        room = f.maximum(f.sub(self.size, first), 0)
        stop = f.minimum(f.divmod(f.add(room, gap - 1), gap)[0], self.kernel)
        return skipped, f.maximum(f.sub(stop, skipped), 0)

    def divisor(self, f: Function, window: Index, counts_padding: bool) -> Index:
        """Return the divisor of average pooling: elements inside the image, or also those in the padding.

        The padding counts if ``counts_padding``. Dilated windows count their taps.
        """
        if self.is_inside:
            return self.kernel
        first, end = self.first(f, window), self.end(f, window)
        if self.is_adaptive:
            return f.sub(end, first)
        behind = self.size + (self.padding if self.after is None else self.after)
        if self.dilation > 1:
            return self._taps(f, window, behind) if counts_padding else f.maximum(self.inside(f, window)[1], 1)
        if counts_padding:
            return f.sub(f.minimum(end, behind), first)
        return f.maximum(f.sub(f.minimum(end, self.size), f.maximum(first, 0)), 1)

    def _taps(self, f: Function, window: Index, behind: int) -> Index:
        """Return the number of taps of a window before the position ``behind``."""
        room = f.add(f.sub(behind, self.first(f, window)), self.dilation - 1)
        return f.minimum(f.divmod(room, self.dilation)[0], self.kernel)


def is_clipped(depth: WindowAxis | None) -> bool:
    """Return whether some windows cross the first or the last plane."""
    return depth is not None and not depth.is_inside


def clip_parameters(depth: WindowAxis | None) -> list[tuple[str, str]]:
    """Return the parameters of an inner function for clipped windows: planes of taps to skip, and to take."""
    return [("i64", "skipped"), ("i64", "taken")] if is_clipped(depth) else []


def first_plane(f: Function, depth: WindowAxis | None, n: Index) -> tuple[Index, list[Value]]:
    """Emit the first plane an output plane reads, counted through all volumes, and the clipped windows' arguments."""
    if depth is None:
        return n, []
    volume, window = f.divmod(n, depth.count)
    first, _ = depth.clip(f, window)
    inside = [as_value(each) for each in depth.inside(f, window)] if is_clipped(depth) else []
    return f.add(f.mul(volume, depth.size), first), inside
