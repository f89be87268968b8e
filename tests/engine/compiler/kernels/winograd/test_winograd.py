"""Winograd convolution: every size, blocking and processor level against the sum written out in float64."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.windows import WindowAxis
from engine.compiler.kernels.winograd.blocking import STACK_BYTES, Blocking, choose_blocking
from engine.compiler.kernels.winograd.transforms import Filtering
from engine.compiler.kernels.winograd.winograd import Winograd
from engine.errors import CompileError
from tests.combining import together
from tests.engine.compiler.kernels.convolution.summed import convolved
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, dense, run
from tests.engine.compiler.machines import MACHINES, choose_whole
from tests.nightly import IS_NIGHTLY

# Largest rounding error, relative to the largest output.
TOLERANCES = {(1, 2): 3e-6, (1, 4): 5e-6, (1, 6): 5e-5, (2, 2): 3e-6, (2, 3): 3e-6, (2, 4): 5e-6}
FILTERINGS = [Filtering(tile, stride) for stride, tile in TOLERANCES]
FOUR = Filtering(4)
ROWS = [
    Filtering(2, kernel=(1, 3), taps=3),
    Filtering(6, kernel=(1, 3), taps=3),
    Filtering(5, kernel=(1, 7), taps=4),
    Filtering(4, kernel=(1, 13), taps=5),
    Filtering(4, kernel=(5, 5), taps=5),
    Filtering(7, kernel=(2, 3), taps=2),
    Filtering(6, kernel=(3, 3), taps=3),
]

every_filtering = pytest.mark.parametrize("filtering", FILTERINGS, ids=str)


def check(
    level: str,
    shape: tuple[int, int, int],
    channels: tuple[int, int],
    *,
    filtering: Filtering = FOUR,
    blocking: Blocking | None = None,
    gaps: tuple[int, int] = (0, 0),
    residual: bool = False,
    at_end: bool = True,
    dilation: int = 1,
) -> None:
    """Run a kernel on images between guard pages; pixels of image and target lie ``gaps`` floats apart."""
    (n, rows, columns), (count, wanted) = shape, channels
    random = np.random.default_rng(11)
    stride = filtering.stride
    sizes = zip((rows, columns), filtering.kernel, strict=True)
    height, width = (stride * (size - 1) + 1 + (taps - 1) * dilation for size, taps in sizes)
    image = np.zeros((n, height, width, count + gaps[0]), np.float32)
    top = min(1, height - 1)
    image[:, top:, 1:] = random.standard_normal((n, height - top, width - 1, count + gaps[0]), np.float32)
    weight = random.standard_normal((wanted, count, *filtering.kernel), np.float32)
    bias = random.standard_normal(wanted, np.float32)
    other = random.standard_normal((n, rows, columns, wanted), np.float32)
    host, pitch, wide = describe(level), count + gaps[0], wanted + gaps[1]
    flat = dense(rows, columns, wanted)
    code = Winograd(
        batch=n,
        rows=rows,
        columns=columns,
        in_channels=count,
        out_channels=wanted,
        source=dense(height, width, pitch),
        target=dense(rows, columns, wide),
        filtering=filtering,
        blocking=blocking
        or choose_blocking(host, filtering, -(-rows // dilation), columns // dilation, count, wanted, n * dilation**2),
        dilation=dilation,
        host=host,
        epilogue=Epilogue(apply("relu", apply("add", Operand(0), Operand(1))), (flat,)) if residual else Epilogue(),
    )
    # No gap follows the last pixel: image and target end with their last channel.
    memory = guarded_array(image.reshape(-1)[: image.size - gaps[0]], at_end=at_end)
    result = guarded_array(np.full(n * rows * columns * wide - gaps[1], np.nan, np.float32), at_end=at_end)
    packed = guarded_array(code.pack(weight, bias), at_end=at_end)
    extras = [guarded_array(other, at_end=at_end)] if residual else []
    fault_flag = np.zeros(1, np.int32)
    run(code, level, [memory, packed, result, *extras, fault_flag])
    assert not fault_flag
    pixels = np.append(result, np.full(gaps[1], np.nan, np.float32)).reshape(n, rows, columns, wide)
    sums = convolved(image[..., :count], weight, bias, (stride, stride), (dilation, dilation))
    tolerance = (
        TOLERANCES.get((stride, filtering.output_tile) if not filtering.is_row else (), 8e-6) * np.abs(sums).max()
    )
    if residual:
        sums = np.maximum(sums + other, 0)
    np.testing.assert_allclose(pixels[..., :wanted], sums, rtol=0, atol=tolerance)
    assert np.isnan(pixels[..., wanted:]).all()


def check_volume(
    level: str, axis: WindowAxis, size: tuple[int, int], channels: tuple[int, int], filtering: Filtering
) -> None:
    """Run a kernel on two volumes between guard pages, whose planes already have borders."""
    random, (rows, columns), (count, wanted) = np.random.default_rng(12), size, channels
    height, width = (filtering.stride * (each - 1) + taps for each, taps in zip(size, filtering.kernel, strict=True))
    image = random.standard_normal((2, axis.size, height, width, count), np.float32)
    weight = random.standard_normal((wanted, count, axis.kernel, *filtering.kernel), np.float32)
    bias, host = random.standard_normal(wanted, np.float32), describe(level)
    batch = 2 * axis.count
    code = Winograd(
        batch=batch,
        rows=rows,
        columns=columns,
        in_channels=count,
        out_channels=wanted,
        source=dense(height, width, count),
        target=dense(rows, columns, wanted),
        filtering=filtering,
        blocking=choose_blocking(host, filtering, rows, columns, count, wanted, batch, planes=axis.kernel),
        depth=axis,
        host=host,
    )
    sums = np.zeros((2, axis.count, rows, columns, wanted)) + bias
    for window, plane in product(range(axis.count), range(axis.kernel)):
        at = window * axis.stride - axis.padding + plane * axis.dilation
        if 0 <= at < axis.size:
            strides = (filtering.stride,) * 2
            sums[:, window] += convolved(image[:, at], weight[:, :, plane], np.zeros(wanted), strides)
    packed = code.pack(weight.reshape(wanted, count, -1, filtering.kernel[1]), bias)
    result, fault_flag = guarded_array(np.full(sums.shape, np.nan, np.float32)), np.zeros(1, np.int32)
    run(code, level, [guarded_array(image), guarded_array(packed), result, fault_flag])
    assert not fault_flag
    np.testing.assert_allclose(result.reshape(sums.shape), sums, rtol=0, atol=8e-6 * np.abs(sums).max())


@together(
    ("level", LEVELS),
    ("filtering", [Filtering(4), Filtering(3, 2), Filtering(5, kernel=(1, 7), taps=4)]),
    (
        "axis",
        [
            WindowAxis(size=4, count=4, kernel=3, padding=1),
            WindowAxis(size=1, count=1, kernel=3, padding=1),
            WindowAxis(size=5, count=3, kernel=3),
            WindowAxis(size=7, count=4, kernel=3, stride=2, padding=1),
            WindowAxis(size=6, count=6, kernel=3, dilation=2, padding=2),
            WindowAxis(size=2, count=5, kernel=2, padding=2),
            WindowAxis(size=5, count=3, kernel=1, stride=2),
        ],
    ),
    ("size,channels", [((2, 3), (5, 20)), ((13, 9), (33, 16)), ((4, 30), (16, 40))]),
)
def test_volumes(
    level: str, axis: WindowAxis, filtering: Filtering, size: tuple[int, int], channels: tuple[int, int]
) -> None:
    check_volume(level, axis, size, channels, filtering)


@together(("level", LEVELS), ("filtering", FILTERINGS), ("size", [(1, 1), (2, 3), (5, 7), (7, 7), (13, 17)]))
def test_any_size(level: str, filtering: Filtering, size: tuple[int, int]) -> None:
    check(level, (1, *size), (24, 40), filtering=filtering)


@together(
    ("level", LEVELS),
    ("stride", [1, 2]),
    ("channels", [(1, 65), (3, 24), (16, 16), (24, 3), (40, 1), (65, 40), (116, 58)]),
)
def test_any_number_of_channels(level: str, stride: int, channels: tuple[int, int]) -> None:
    check(level, (1, 6, 9), channels, filtering=Filtering(4, stride))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("stride", [1, 2])
def test_a_batch_with_a_residual_and_relu_into_a_slice_of_a_wider_image(level: str, stride: int) -> None:
    check(level, (2, 9, 11), (40, 24), filtering=Filtering(4, stride), gaps=(8, 19), residual=True)


@together(("level", LEVELS), ("filtering", FILTERINGS), ("size", [(1, 4), (3, 3), (8, 5)]))
def test_nothing_before_the_images_is_touched(level: str, filtering: Filtering, size: tuple[int, int]) -> None:
    check(level, (2, *size), (19, 21), filtering=filtering, residual=True, at_end=False)


@together(
    ("level", LEVELS),
    ("dilation,size", [(2, (2, 4)), (2, (26, 20)), (3, (3, 33)), (4, (24, 24)), (12, (36, 24))]),
    ("output_tile", [2, 4]),
)
def test_a_dilated_one(level: str, dilation: int, size: tuple[int, int], output_tile: int) -> None:
    check(level, (2, *size), (20, 40), filtering=Filtering(output_tile), dilation=dilation, residual=True)


@together(("level", LEVELS), ("filtering", ROWS), ("size,channels", [((2, 1), (24, 40)), ((1, 33), (33, 5))]))
def test_filters_that_are_transformed_by_rows(
    level: str, filtering: Filtering, size: tuple[int, int], channels: tuple[int, int]
) -> None:
    at_end = size[0] == 1
    check(level, (2, *size), channels, filtering=filtering, gaps=(3, 8), residual=True, at_end=at_end)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("dilation", "columns"), [(2, 12), (5, 31), (3, 38)])
def test_dilated_ones_of_every_width(level: str, dilation: int, columns: int) -> None:
    filtering = ROWS[{2: -1, 5: 1, 3: 2}[dilation]]
    check(level, (2, 2, columns), (20, 24), filtering=filtering, dilation=dilation, residual=True)


def test_a_dilation_that_leaves_images_of_two_sizes_is_refused() -> None:
    with pytest.raises(CompileError, match="not a multiple of the dilation"):
        check(LEVELS[0], (1, 9, 8), (16, 16), dilation=2)


@together(
    (
        "blocking",
        [
            Blocking(tiles=1, at_once=1, vectors=1, panels=1, depth=32),
            Blocking(tiles=5, at_once=3, vectors=2, panels=1, depth=80),
            Blocking(tiles=6, at_once=3, vectors=2, panels=2, depth=32),
            Blocking(tiles=4, at_once=2, vectors=3, panels=1, depth=16),
            Blocking(tiles=15, at_once=5, vectors=4, panels=3, depth=48),
        ],
    ),
    ("out_channels", [64, 77]),
    ("stride", [1, 2]),
)
def test_any_blocking(blocking: Blocking, out_channels: int, stride: int) -> None:
    check(LEVELS[0], (1, 11, 18), (70, out_channels), filtering=Filtering(4, stride), blocking=blocking)


def test_weights_larger_than_the_caches_are_fetched_ahead() -> None:
    check(LEVELS[0], (1, 14, 14), (128, 160))


def test_tiles_that_would_be_added_twice_are_refused() -> None:
    with pytest.raises(CompileError, match="tiles overlap"):
        check(LEVELS[0], (1, 11, 18), (70, 64), blocking=Blocking(tiles=5, at_once=3, vectors=1, panels=1, depth=32))


@pytest.mark.parametrize("level", ["avx512", "avx2", "sse", "neon"])
@pytest.mark.parametrize("channels", [3, 64, 512, 5000])
@pytest.mark.parametrize("size", [1, 7, 56, 224])
def test_a_chunk_needs_a_megabyte_of_stack_at_most(level: str, channels: int, size: int) -> None:
    host = describe(level)
    for filtering in FILTERINGS:
        b = choose_blocking(host, filtering, size, size, channels, channels, 1)
        lines = 2 + (min(b.depth, channels) + min(b.vectors * b.panels * host.lanes, channels + host.lanes)) // 16
        assert 64 * filtering.positions * b.tiles * lines <= 1.2 * 2**20


def test_a_convolution_of_many_channels_is_offered_the_larger_tile() -> None:
    assert choose_whole(describe("avx512"), 1, 56, 56, 64, 64, 1) == Filtering(4)
    assert choose_whole(describe("avx512"), 2, 56, 56, 64, 64, 1) == Filtering(4, stride=2)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("channels", "size"), [((512, 1024), 16), ((1024, 512), 32), ((1280, 1280), 32)])
def test_where_weights_would_take_much_memory_a_form_of_half_as_many_is_chosen(
    machine: str, channels: tuple[int, int], size: int
) -> None:
    found = choose_whole(MACHINES[machine], 1, size, size, *channels, 1)
    assert found is None or found == Filtering(2)
    assert choose_whole(MACHINES[machine], 1, 64, 64, 256, 256, 1) in (Filtering(4), None)


def test_a_single_pixel_is_left_to_the_direct_convolution() -> None:
    assert all(choose_whole(describe("avx512"), stride, 1, 1, 64, 64, 1) is None for stride in (1, 2))


@every_filtering
def test_the_order_of_chunks_changes_no_bit(filtering: Filtering) -> None:
    level, (rows, columns, channels) = LEVELS[0], (13, 11, 16)
    random = np.random.default_rng(5)
    height, width = (filtering.stride * (size - 1) + 3 for size in (rows, columns))
    image = random.standard_normal((height, width, channels), np.float32)
    code = Winograd(
        batch=1,
        rows=rows,
        columns=columns,
        in_channels=channels,
        out_channels=channels,
        source=Strides(0, width * channels, channels),
        target=Strides(0, columns * channels, channels),
        filtering=filtering,
        blocking=Blocking(tiles=1, at_once=1, vectors=1, panels=1, depth=channels),
        host=describe(level),
    )
    packed = code.pack(random.standard_normal((channels, channels, 3, 3), np.float32), None)
    results = [np.empty((rows, columns, channels), np.float32) for _ in range(2)]
    for result, is_reversed in zip(results, (False, True), strict=True):
        run(code, level, [image, packed, result, np.zeros(1, np.int32)], is_reversed=is_reversed)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("place", [(0, 0, 0), (8, 12, 19), (4, 7, 3)])
def test_the_fault_flag_reports_numbers_that_tiles_would_spread(
    level: str, number: float, place: tuple[int, int, int]
) -> None:
    rows, columns, channels = 7, 11, 20
    random = np.random.default_rng(3)
    image = random.standard_normal((rows + 2, columns + 2, channels), np.float32)
    image[place] = number
    strides = Strides(0, (columns + 2) * channels, channels)
    host = describe(level)
    code = Winograd(
        batch=1,
        rows=rows,
        columns=columns,
        in_channels=channels,
        out_channels=channels,
        source=strides,
        target=Strides(0, columns * channels, channels),
        filtering=FOUR,
        blocking=choose_blocking(host, FOUR, rows, columns, channels, channels, 1),
        host=host,
    )
    packed = code.pack(3 * random.standard_normal((channels, channels, 3, 3), np.float32), None)
    fault_flag = np.zeros(1, np.int32)
    run(code, level, [image, packed, np.empty((rows, columns, channels), np.float32), fault_flag])
    assert fault_flag


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_chosen_for_any_machine_fits_its_threads_stack(machine: str) -> None:
    host, sizes = MACHINES[machine], [(7, 512), (14, 256), (14, 1024), (28, 128), (56, 40), (224, 3), (301, 70)]
    cases = list(product((1, 8), sizes, [*FILTERINGS, *ROWS]))  # of an odd number of forms: every second has all
    for batch, (rows, channels), filtering in cases if IS_NIGHTLY else cases[::2]:
        blocking = choose_blocking(host, filtering, rows, rows, channels, channels, batch)
        kernel = Winograd(
            host=host, batch=batch, rows=rows, columns=rows, in_channels=channels, out_channels=channels,
            source=dense(rows + 2, rows + 2, channels), target=dense(rows, rows, channels),
            filtering=filtering, blocking=blocking,
        )  # fmt: skip
        floats = filtering.positions * (kernel.scratch.step + kernel.scratch.sum_step)
        assert 4 * floats <= STACK_BYTES, (rows, channels, batch, blocking)
