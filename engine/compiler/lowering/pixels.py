"""The kernel that makes one number of all pixels of a channel."""

from __future__ import annotations

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.kernel import Epilogue
from engine.compiler.kernels.pooling.global_average import GlobalAverage, Of
from engine.compiler.lowering.steps import dense_strides
from engine.compiler.storage import View


def fold(image: View, target: View, of: Of, host: Host, epilogue: Epilogue | None = None) -> GlobalAverage:
    """A number for every item and channel of a channels-last image (n, c, h, w), stored to (n, c, 1, 1)."""
    n, channels, rows, columns = image.shape
    return GlobalAverage(
        batch=n,
        rows=rows,
        columns=columns,
        channels=channels,
        source=dense_strides(image),
        target=dense_strides(target),
        of=of,
        host=host,
        epilogue=epilogue or Epilogue(),
    )
