"""The frame around a kernel: where it stores, what joins it, and the step and definition that come of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.kernels.kernel import Epilogue, Kernel
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.fusion import Fused, ImageOf, image_of
from engine.compiler.lowering.steps import KernelStep, Made, Pointer, image_strides, pointer
from engine.compiler.storage import View
from engine.ir.strided import Strided, empty


@dataclass(frozen=True, slots=True)
class Result:
    """A result about to be computed, or the part of it that one kernel computes.

    Args:
        fused: the operators it is the result of.
        target: where all of it lies.
        image: where the kernel stores, as (n, c, h, w).
        operands: what the epilogue reads, seen in the same way.
        alarm: where kernels say that they met what is not finite.
    """

    fused: Fused
    target: View
    image: View
    operands: tuple[View, ...]
    alarm: View

    @classmethod
    def seen(cls, fused: Fused, target: View, as_image: ImageOf, alarm: View) -> Result:
        """The result as a kernel sees it, or the part that a kernel sees.

        Raises:
            NotLoweredError: it does not lie in the kernel's order.
        """
        image = target.derive(as_image(target.phantom))
        operands = [image_of(view, target.shape, as_image) for view in fused.views]
        seen = tuple(view for view in operands if view is not None)
        if image is None or len(seen) < len(operands):
            raise NotLoweredError("its result does not lie in rows")
        return cls(fused, target, image, seen, alarm)

    def part(self, as_image: ImageOf) -> Result:
        """The part that one of several kernels computes."""
        return Result.seen(self.fused, self.target, as_image, self.alarm)

    @property
    def epilogue(self) -> Epilogue:
        """What the kernel does to every element before it stores it."""
        return Epilogue(self.fused.tree, tuple(map(image_strides, self.operands)))

    def step(
        self, kernel: Kernel, reads: Sequence[View] = (), *, after: Sequence[View] = (), origin: int = 0
    ) -> KernelStep:
        """A kernel that stores here. Its pointers: what it reads, where it stores, what its epilogue reads, the alarm.

        Args:
            after: what it reads, too, if its pointers come after that of where it stores.
            origin: bytes from the first element of what it reads to the one it begins with.
        """
        alarm = [self.alarm] if kernel.sets_alarm else []
        first, *others = map(pointer, (*reads, self.image, *after, *self.operands, *alarm))
        moved = sum(view.phantom.nbytes for view in (*reads, self.image, *after))
        pairs = zip(self.fused.views, self.operands, strict=True)
        return KernelStep(
            kernel=kernel,
            pointers=(Pointer(first.storage, first.offset + origin), *others),
            operators=self.fused.operators,
            bytes=moved + sum(min(whole.phantom.nbytes, part.phantom.nbytes) for whole, part in pairs),
        )

    def made(self, *steps: KernelStep) -> Made:
        """What these steps make: the result, with all operators that joined."""
        return Made(views={self.fused.operand.name: self.target}, steps=steps, fusions=self.fused.fusions)


def as_image(array: Strided) -> Strided:
    """(C, W), (C, H, W), (N, C, W) seen as (N, C, H, W); which of the two of rank 3 is for the caller to know.

    Volumes (N, C, D, H, W) are their planes, (N * D, C, H, W); where those do not lie at one distance, other memory.
    """
    if array.ndim == 5:
        return _planes(array)
    return array[:, :, None, :] if array.ndim == 3 else array


def lines_as_image(array: Strided, columns: int) -> Strided:
    """(..., columns) as (1, columns, rows, 1): kernels of rows address what they store so."""
    return array.reshape(-1, columns).transpose()[None, :, :, None]


def _planes(array: Strided) -> Strided:
    n, c, d, h, w = array.shape
    if n > 1 and d > 1 and array.strides[0] != d * array.strides[2]:
        return empty((n * d, c, h, w), array.dtype)
    # Strides stay what they are along a dimension of one element, too: its border lies there.
    steps = array.strides
    return array.as_strided((n * d, c, h, w), (steps[2] if d > 1 or n == 1 else steps[0], steps[1], *steps[3:]))
