"""The simplest convolution, for tests of blocking, chunks and kernel selection."""

from __future__ import annotations

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import ConvTile
from tests.engine.compiler.kernels.running import dense


def pointwise(host: Host, size: tuple[int, int], channels: tuple[int, int], tile: ConvTile) -> Conv:
    """Return a 1×1 convolution of an image of these rows and columns."""
    return Conv(
        batch=1,
        rows=size[0],
        columns=size[1],
        in_channels=channels[0],
        out_channels=channels[1],
        groups=1,
        kernel=(1, 1),
        stride=(1, 1),
        dilation=(1, 1),
        source=dense(*size, channels[0]),
        target=dense(*size, channels[1]),
        tile=tile,
        host=host,
    )
