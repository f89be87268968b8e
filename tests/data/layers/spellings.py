"""Samples of types that only other versions of the converter, or optimisation level 0, write."""

from __future__ import annotations

import torch
from record import Sample
from written import written

X = torch.arange(24.0).reshape(2, 3, 4) % 7 - 3
M = torch.arange(12.0).reshape(3, 4)
NANS = torch.tensor([[1.0, float("nan"), 3.0], [float("inf"), 2.0, -float("inf")]])
INDEX = torch.tensor([[0, 2, 1, 0]])
WAVE = torch.sin(torch.arange(200.0) / 5).reshape(2, 100)
WINDOW = torch.hann_window(16)


def sample(name, call, inputs, *operators, **options):
    return Sample(name, call, tuple(inputs.values()), param=written(inputs, *operators), **options)


def sizes(x: torch.Tensor) -> tuple[object, ...]:
    return 8, 12, 4, True, torch.full((3, 2), 1.0), 2, x.reshape(4, 6), x.sum().item(), torch.tensor(24).half()


def spectrogram(
    wave: torch.Tensor, window: torch.Tensor, power: float | None = 2.0, scale: float = 1.0
) -> torch.Tensor:
    spectrum = torch.stft(wave, 16, 4, 16, window, return_complex=True) / scale
    return spectrum if power is None else spectrum.abs() ** power


SAMPLES = [
    sample("view", lambda x: x.view(4, 6), {"x": X}, "Tensor.view x -> y shape=(4,6)"),
    sample("view_as", lambda x, m: x.view_as(m), {"x": M, "m": torch.zeros(6, 2)}, "Tensor.view_as x m -> y"),
    sample("permute", lambda x: x.permute(2, 0, 1), {"x": X}, "torch.permute x -> y dims=(2,0,1)"),
    sample(
        "reductions",
        lambda x: (x.any(1), x.all(2, True), x.count_nonzero(0), x.any()),
        {"x": X},
        "torch.any x -> a dim=1",
        "torch.all x -> b dim=(2) keepdim=True",
        "torch.count_nonzero x -> c dim=0",
        "torch.any x -> d",
    ),
    sample(
        "extremes_raw",
        lambda x, y: (x.max(), torch.max(x, y), *x.max(1), x.min(), torch.min(x, y), *x.min(2, True)),
        {"x": X, "y": X.flip(0)},
        "aten::max x -> a",
        "aten::max x y -> b",
        "aten::max x 1 False -> c ci",
        "aten::min x -> d",
        "aten::min x y -> e",
        "aten::min x 2 True -> f fi",
    ),
    sample(
        "diagonals",
        lambda m: (m.diagonal(1), m.trace(), m.tril(-1), m.triu(1)),
        {"m": M},
        "torch.diagonal m -> a offset=1",
        "torch.trace m -> b",
        "torch.tril m -> c diagonal=-1",
        "torch.triu m -> d diagonal=1",
    ),
    sample(
        "shifts",
        lambda x: (torch.fft.fftshift(x), torch.fft.ifftshift(x, (1,))),
        {"x": X},
        "torch.fft.fftshift x -> a",
        "torch.fft.ifftshift x -> b dim=(1)",
    ),
    sample("nonzero", lambda x: x.nonzero(), {"x": X}, "torch.nonzero x -> a"),
    sample(
        "copy",
        lambda x, m: x.clone().copy_(m[:, :1]),
        {"x": X, "m": M},
        "Tensor.slice m -> s dim=1 start=0 end=1",
        "aten::copy x s False -> a",
    ),
    sample(
        "mathematics",
        lambda m: (torch.logit(m / 20, 0.1), torch.special.logit(m / 20, 0.1), *torch.frexp(m)),
        {"m": M},
        "pnnx.Expression m -> p expr=div(@0,20)",
        "torch.logit p -> a eps=0.1",
        "aten::special_logit p 0.1 -> b",
        "torch.frexp m -> c e",
        rtol=1e-4,
    ),
    sample(
        "nan_to_num",
        lambda x: (x.nan_to_num(5.0), x.isclose(x, equal_nan=True)),
        {"x": NANS},
        "torch.nan_to_num x -> a nan=5.0",
        "torch.isclose x x -> b equal_nan=True",
    ),
    sample(
        "ternary",
        lambda m: (
            m.clip(2, 5),
            torch.lerp(m, m * m, 0.25),
            torch.addcmul(m, m, m, value=2),
            torch.addcdiv(m, m, m + 1, value=3),
        ),
        {"m": M},
        "torch.clip m -> a min=2 max=5",
        "pnnx.Expression m -> q expr=mul(@0,@0)",
        "torch.lerp m q -> b weight=0.25",
        "torch.addcmul m m m -> c value=2",
        "pnnx.Expression m -> o expr=add(@0,1)",
        "torch.addcdiv m m o -> d value=3",
    ),
    sample("polar", lambda m: torch.polar(m, m * 1), {"m": M}, "torch.polar m m -> a"),
    sample("resolve", lambda m: m + 1, {"m": M}, "aten::resolve_neg m -> a", "pnnx.Expression a -> b expr=add(@0,1)"),
    sample(
        "created",
        lambda m: (torch.zeros_like(m), m.new_full((2, 2), 7)),
        {"m": M},
        "torch.empty_like m -> a",
        "Tensor.new_full m -> b size=(2,2) fill_value=7",
    ),
    sample(
        "copies_of_views",
        lambda x, m: (
            torch.alias_copy(m),
            torch.detach_copy(m),
            torch.expand_copy(m, (2, 3, 4)),
            torch.permute_copy(x, (2, 0, 1)),
            torch.transpose_copy(x, 0, 2),
            torch.t_copy(m),
            torch.view_copy(x, (4, 6)),
            torch.squeeze_copy(torch.unsqueeze_copy(m, 1), 1),
            torch.as_strided_copy(m, (2, 3), (4, 1), 1),
            torch.diagonal_copy(m, 1, 0, 1),
            *torch.split_copy(x, 2, 1),
            *torch.split_with_sizes_copy(x, (1, 2), 1),
            *torch.unbind_copy(m, 0),
            torch.select_copy(x, 1, 2),
            torch.unfold_copy(x, 2, 3, 1),
        ),
        {"x": X, "m": M},
        "aten::alias_copy m -> a",
        "aten::detach_copy m -> b",
        "aten::expand_copy m [2,3,4] False -> c",
        "aten::permute_copy x [2,0,1] -> d",
        "aten::transpose_copy x 0 2 -> e",
        "aten::t_copy m -> f",
        "aten::view_copy x [4,6] -> g",
        "aten::unsqueeze_copy m 1 -> h",
        "aten::squeeze_copy h 1 -> i",
        "aten::as_strided_copy m [2,3] [4,1] 1 -> j",
        "aten::diagonal_copy m 1 0 1 -> k",
        "aten::split_copy x 2 1 -> l1 l2",
        "aten::split_with_sizes_copy x [1,2] 1 -> m1 m2",
        "aten::unbind_copy m 0 -> n1 n2 n3",
        "aten::select_copy x 1 2 -> o",
        "aten::unfold_copy x 2 3 1 -> p",
    ),
    sample(
        "sums_to_a_size",
        lambda x, m: (x.sum_to_size(3, 1), x.sum_to_size(1, 3, 4), m.sum_to_size(3, 4), x.long().sum_to_size(1)),
        {"x": X, "m": M},
        "aten::sum_to_size x [3,1] -> a",
        "aten::sum_to_size x [1,3,4] -> b",
        "aten::sum_to_size m [3,4] -> c",
        "Tensor.to x -> l dtype=torch.int64",
        "aten::sum_to_size l [1] -> d",
    ),
    sample("one_hot", lambda i: torch.nn.functional.one_hot(i, 4), {"i": INDEX}, "F.one_hot i -> a num_classes=4"),
    sample(
        "ordered",
        lambda m: (*m.sort(0, True), *m.kthvalue(2, 1), m.quantile(0.3, 1), m.nanquantile(0.3)),
        {"m": M},
        "torch.sort m -> a ai dim=0 descending=True",
        "torch.kthvalue m -> b bi k=2 dim=1",
        "torch.quantile m -> c q=0.3 dim=1",
        "torch.nanquantile m -> d q=0.3",
    ),
    sample(
        "scans",
        lambda m: (*m.cummax(1), *m.cummin(0), m.diff(dim=0)),
        {"m": M.flip(0)},
        "torch.cummax m -> a ai dim=1",
        "torch.cummin m -> b bi dim=0",
        "torch.diff m -> c dim=0",
    ),
    sample(
        "scattered",
        lambda m, i: (
            m.scatter(0, i, m),
            m.scatter(1, i, 5.0),
            m.scatter_reduce(0, i, m, "amax"),
            m.index_add(0, i[0, :2], m[:2]),
            m.scatter(0, i, m, reduce="add"),
            m.scatter(0, i, 2.0, reduce="multiply"),
        ),
        {"m": M, "i": INDEX},
        "torch.scatter m i m -> a dim=0 $input=m $index=i $src=m",
        "torch.scatter m i -> b dim=1 value=5.0 $input=m $index=i",
        "torch.scatter_reduce m i m -> c dim=0 reduce=amax $input=m $index=i $src=m",
        "Tensor.slice i -> r dims=(0,1) starts=(0,0) ends=(0,2) steps=(0,1) selects=(0,2147483647)",
        "Tensor.slice m -> s dim=0 start=0 end=2",
        "torch.index_add m r s -> d dim=0 $input=m $index=r $source=s",
        "aten::scatter m 0 i m add -> e",
        "aten::scatter m 0 i 2.0 multiply -> f",
    ),
    sample(
        "numbers",
        sizes,
        {"x": X},
        "aten::numel x -> n",
        "Tensor.size x -> a dim=1",
        "aten::size x -> shape",
        "aten::__getitem__ shape -1 -> last",
        "prim::NumToTensor n -> t",
        "aten::floor_divide t a -> d",
        "aten::Int d -> di",
        "aten::mul last a -> e",
        "aten::ScalarImplicit last -> g",
        "aten::Bool n -> h",
        "aten::dim x -> rank",
        "aten::len x -> items",
        "prim::ListConstruct rank items -> two",
        "aten::Float 1 -> one",
        "aten::FloatImplicit one -> onef",
        "torch.full two onef -> k $size=two $fill_value=onef",
        "aten::IntImplicit items -> l",
        "Tensor.reshape x -> y shape=(4,6)",
        "torch.sum x -> sum",
        "aten::item sum -> number",
        "Tensor.to n -> rounded dtype=torch.half",
    ),
    sample(
        "quantised",
        lambda m: (
            torch.quantize_per_tensor(m, 0.5, 1, torch.qint8).dequantize(),
            torch.quantize_per_tensor(m, 0.7, 0, torch.quint8).dequantize(),
        ),
        {"m": M},
        "nn.quantized.Quantize m -> q scale=0.5 zero_point=1 dtype=torch.qint8",
        "nn.quantized.DeQuantize q -> a",
        "torch.quantize_per_tensor m -> r scale=0.7 zero_point=0 dtype=torch.quint8",
        "torch.dequantize r -> b",
    ),
    sample(
        "spectrogram",
        lambda x, w: (
            spectrogram(x, w),
            spectrogram(x, w, 1.0, 4.0),
            spectrogram(x, w, None, float((w * w).sum().sqrt())),
            spectrogram(torch.nn.functional.pad(x, (3, 3)), w),
        ),
        {"x": WAVE, "w": WINDOW},
        *(
            f"torchaudio.functional.spectrogram x w -> {name} n_fft=16 hop_length=4 win_length=16 center=True pad_mode=reflect onesided=True {rest} $waveform=x $window=w"
            for name, rest in (
                ("a", "pad=0 power=2.0 normalized=False"),
                ("b", "pad=0 power=1.0 normalized=frame_length"),
                ("c", "pad=0 power=None normalized=window"),
                ("d", "pad=3 power=2 normalized=False"),
            )
        ),
        atol=1e-4,
    ),
    sample(
        "inverse_spectrogram",
        lambda z, w: (torch.istft(z, 16, 4, 16, w), torch.istft(z * 4, 16, 4, 16, w, length=96)[:, 2:-2]),
        {"z": torch.stft(WAVE, 16, 4, 16, WINDOW, return_complex=True), "w": WINDOW},
        "torchaudio.functional.inverse_spectrogram z w -> a n_fft=16 hop_length=4 win_length=16 center=True onesided=True pad=0 length=None normalized=False $spectrogram=z $window=w",
        "torchaudio.functional.inverse_spectrogram z w -> b n_fft=16 hop_length=4 win_length=16 center=True onesided=True pad=2 length=92 normalized=frame_length $spectrogram=z $window=w",
        atol=1e-4,
    ),
]
