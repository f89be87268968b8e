"""Aliases: other names of core operators, with the mapping of their arguments.

A core operator is registered under one name, at its layer. PNNX writes many of them under several: as a module
(``nn.X``), a function (``F.x``, ``torch.x``), a method (``Tensor.x``) or a raw operator (``aten::x``). A file keeps the
name it has.
"""

from __future__ import annotations

from typing import Any, Final

from engine.layers.definition.registry import Registry

_RAW: Final = """
abs neg sign square ceil floor round trunc sqrt rsqrt reciprocal exp expm1 log log10 log1p erf sin cos tan asin acos
atan sinh cosh tanh asinh acosh atanh remainder fmod floor_divide pow atan2 logaddexp maximum minimum mul bitwise_and
bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift positive frac log2 exp2 erfc erfinv lgamma digamma sinc
deg2rad rad2deg i0 special_entr special_ndtr hypot copysign logaddexp2 xlogy special_xlog1py heaviside ldexp gcd lcm
fmax fmin eq ne lt le gt ge isnan isinf isfinite isposinf isneginf isreal logical_not signbit logical_and logical_or
logical_xor add sub div isclose polar conj angle sgn bitwise_not logit nan_to_num frexp lerp addcmul addcdiv
where tril triu scatter scatter_reduce index_add nonzero quantize_per_tensor count_nonzero cummax cummin diff diagonal
trace quantile kthvalue
"""
"""Functions of ``torch`` that are raw operators under the same name, too."""

_SAME: Final[dict[str, str]] = {
    "F.adaptive_avg_pool{}d": "nn.AdaptiveAvgPool{}d", "F.adaptive_max_pool{}d": "nn.AdaptiveMaxPool{}d",
    "F.avg_pool{}d": "nn.AvgPool{}d", "F.batch_norm": "nn.BatchNorm1d nn.BatchNorm2d nn.BatchNorm3d",
    "F.celu": "nn.CELU", "F.channel_shuffle": "nn.ChannelShuffle aten::channel_shuffle",
    "F.conv_transpose{}d": "nn.ConvTranspose{}d", "F.conv{}d": "nn.Conv{}d",
    "F.dropout": (
        "nn.Dropout nn.Dropout1d nn.Dropout2d nn.Dropout3d nn.AlphaDropout nn.FeatureAlphaDropout F.dropout1d "
        "F.dropout2d F.dropout3d F.alpha_dropout F.feature_alpha_dropout"
    ),
    "F.elu": "nn.ELU", "F.fold": "nn.Fold", "F.gelu": "nn.GELU", "F.glu": "nn.GLU", "F.group_norm": "nn.GroupNorm",
    "F.hardshrink": "nn.Hardshrink", "F.hardsigmoid": "nn.Hardsigmoid", "F.hardswish": "nn.Hardswish",
    "F.hardtanh": "nn.Hardtanh", "F.interpolate": "F.upsample F.upsample_nearest nn.Upsample nn.UpsamplingNearest2d",
    "F.layer_norm": "nn.LayerNorm", "F.leaky_relu": "nn.LeakyReLU", "F.linear": "nn.Linear",
    "F.local_response_norm": "nn.LocalResponseNorm", "F.log_softmax": "nn.LogSoftmax",
    "F.logsigmoid": "nn.LogSigmoid", "F.lp_pool{}d": "nn.LPPool{}d", "F.max_pool{}d": "nn.MaxPool{}d",
    "F.mish": "nn.Mish", "F.one_hot": "aten::one_hot", "F.pixel_shuffle": "nn.PixelShuffle",
    "F.pixel_unshuffle": "nn.PixelUnshuffle", "F.prelu": "nn.PReLU", "F.relu": "nn.ReLU", "F.rms_norm": "nn.RMSNorm",
    "F.rrelu": "nn.RReLU", "F.selu": "nn.SELU", "F.sigmoid": "nn.Sigmoid", "F.silu": "nn.SiLU",
    "F.softmax": "nn.Softmax", "F.softmin": "nn.Softmin", "F.softplus": "nn.Softplus",
    "F.softshrink": "nn.Softshrink", "F.softsign": "nn.Softsign", 
    "F.tanhshrink": "nn.Tanhshrink", "F.threshold": "nn.Threshold", "F.unfold": "nn.Unfold",
    "Tensor.expand": "aten::expand_copy aten::broadcast_to", "Tensor.reshape": "Tensor.view aten::view_copy",
    "Tensor.reshape_as": "Tensor.view_as aten::view_as", "Tensor.select": "aten::select_copy",
    "Tensor.size": "aten::size",
    "aten::ScalarImplicit": "prim::NumToTensor aten::IntImplicit aten::FloatImplicit aten::item",
    "aten::contiguous": "aten::clone aten::detach aten::alias aten::alias_copy aten::detach_copy",
    "aten::linalg_det": "aten::det",
    "aten::linalg_matrix_exp": "aten::matrix_exp", "aten::linalg_matrix_power": "aten::matrix_power",
    "aten::linalg_multi_dot": "aten::chain_matmul", "aten::outer": "aten::ger",
    "aten::resolve_conj": "aten::resolve_neg", "aten::unfold": "aten::unfold_copy",
    "nn.quantized.cat": "quantized::cat", "prim::TupleUnpack": "prim::ListUnpack",
    "torch.abs": "torch.absolute aten::absolute", "torch.acos": "torch.arccos aten::arccos",
    "torch.acosh": "torch.arccosh aten::arccosh", "torch.as_strided": "aten::as_strided_copy",
    "torch.asin": "torch.arcsin aten::arcsin", "torch.asinh": "torch.arcsinh aten::arcsinh",
    "torch.atan": "torch.arctan aten::arctan", "torch.atanh": "torch.arctanh aten::arctanh",
    "torch.bitwise_and": "aten::__and__", "torch.bitwise_left_shift": "aten::__lshift__",
    "torch.bitwise_or": "aten::__or__", "torch.bitwise_right_shift": "aten::__rshift__",
    "torch.bitwise_xor": "aten::__xor__", "torch.chunk": "aten::unsafe_chunk", "torch.clamp": "torch.clip",
    "torch.clone": "nn.Identity Tensor.clone", "torch.conj": "aten::_conj aten::conj_physical",
    "torch.dequantize": "nn.quantized.DeQuantize", "torch.diagonal": "aten::diagonal_copy",
    "torch.div": "aten::divide", "torch.fft.fftshift": "aten::fft_fftshift",
    "torch.fft.ifftshift": "aten::fft_ifftshift", "torch.floor_divide": "aten::floordiv",
    "torch.logit": "aten::special_logit", "torch.maximum": "prim::max", "torch.minimum": "prim::min",
    "torch.mul": "torch.multiply aten::multiply", "torch.neg": "torch.negative aten::negative",
    "torch.nonzero": "aten::argwhere", "torch.permute": "Tensor.permute aten::permute_copy",
    "torch.split": "aten::unsafe_split aten::unsafe_split_with_sizes aten::split_copy aten::split_with_sizes_copy",
    "torch.squeeze": "aten::squeeze_copy", "torch.sub": "aten::subtract", "torch.t": "aten::t_copy",
    "torch.tanh": "F.tanh nn.Tanh",
    "torch.transpose": "aten::transpose_copy", "torch.trunc": "torch.fix aten::fix",
    "torch.unbind": "aten::unbind_copy", "torch.unsqueeze": "aten::unsqueeze_copy",
}  # fmt: skip
"""Core operator -> other names with the same arguments; ``{}`` stands for 1, 2 and 3."""

_FIRST_TO_LAST: Final = ("input", "first", "second", "beta", "alpha")


def _row(core: str, types: str, **changes: Any) -> tuple[str, str, dict[str, Any]]:
    return core, types, changes


_OTHER: Final = [
    _row("F.dropout", "aten::dropout aten::feature_dropout aten::alpha_dropout aten::feature_alpha_dropout",
         positional=("input", "p", "training")),
    _row("F.embedding", "nn.Embedding",
         ignored=("num_embeddings", "embedding_dim", "sparse"), shapes={"weight": ("num_embeddings", "embedding_dim")}),
    _row("F.hardtanh", "nn.ReLU6 F.relu6", presets={"min_val": 0.0, "max_val": 6.0}),
    *(
        _row("F.instance_norm", f"nn.InstanceNorm{rank}d", ignored=("num_features",),
             presets={"spatial": rank, "use_input_stats": False},
             flags={"affine": ("weight", "bias"), "track_running_stats": ("running_mean", "running_var")},
             shapes=dict.fromkeys(("weight", "bias", "running_mean", "running_var"), ("num_features",)))
        for rank in (1, 2, 3)
    ),
    _row("F.instance_norm", "aten::instance_norm",
         positional=("input", "weight", "bias",
                     "running_mean", "running_var", "use_input_stats", "momentum", "eps", "cudnn_enabled")),
    _row("F.interpolate", "F.upsample_bilinear nn.UpsamplingBilinear2d",
         presets={"mode": "bilinear", "align_corners": True}),
    _row("F.pad", "nn.ReplicationPad1d nn.ReplicationPad2d nn.ReplicationPad3d",
         positional=(), presets={"mode": "replicate"}, renamed={"padding": "pad"}),
    _row("F.pad", "nn.ReflectionPad1d nn.ReflectionPad2d",
         positional=(), presets={"mode": "reflect"}, renamed={"padding": "pad"}),
    _row("F.pad", "nn.ZeroPad2d nn.ConstantPad1d nn.ConstantPad2d nn.ConstantPad3d",
         positional=(), renamed={"padding": "pad"}),
    _row("F.softmax", "nn.Softmax2d", presets={"dim": -3}),
    _row("Tensor.copy", "aten::copy", renamed={}, positional=("input", "src", "non_blocking")),
    _row("Tensor.new_full", "Tensor.new_ones", presets={"fill_value": 1}),
    _row("Tensor.new_full", "Tensor.new_zeros Tensor.new_empty", presets={"fill_value": 0}),
    _row("aten::atleast_3d", "aten::atleast_2d", presets={"rank": 2}),
    _row("aten::atleast_3d", "aten::atleast_1d", presets={"rank": 1}),
    _row("aten::dsplit", "aten::vsplit", presets={"axis": 0}),
    _row("aten::dsplit", "aten::hsplit", presets={"axis": 1}),
    _row("aten::dstack", "aten::vstack", presets={"rank": 2, "dim": 0}),
    _row("aten::dstack", "aten::hstack", presets={"rank": 1, "dim": 1}),
    _row("aten::linalg_norm", "aten::linalg_matrix_norm", presets={"ord": "fro", "dim": (-2, -1)}),
    _row("engine.DeformConv2d", "torchvision.ops.DeformConv2d",
         flags={"bias": ("bias",)}, positional=("input", "offset", "mask")),
    _row("pnnx.custom_op.torchvision.roi_align", "torchvision.ops.RoIAlign", positional=(), renamed={}),
    _row("torch.baddbmm", "aten::addmv", presets={"ranks": (2, 1)}, renamed={}, positional=_FIRST_TO_LAST),
    _row("torch.baddbmm", "torch.addmm", presets={"ranks": (2, 2)}, renamed={"mat1": "first", "mat2": "second"}),
    _row("torch.clamp", "aten::clamp_min", positional=("input", "min")),
    _row("torch.clamp", "aten::clamp_max", positional=("input", "max")),
    _row("torch.cross", "aten::linalg_cross", positional=("input", "other", "dim")),
    _row("torch.diagonal", "aten::linalg_diagonal", presets={"dim1": -2, "dim2": -1}),
    _row("torch.transpose", "aten::mT", presets={"dim0": -2, "dim1": -1}),
    _row("torch.div", "aten::true_divide", positional=()),
    _row("torch.flatten", "aten::ravel", presets={"start_dim": 0, "end_dim": -1}),
    _row("torch.flip", "aten::flipud", presets={"dims": (0,)}),
    _row("torch.flip", "aten::fliplr", presets={"dims": (1,)}),
    _row("torch.full", "torch.ones", presets={"fill_value": 1.0}),
    _row("torch.full", "torch.zeros torch.empty", presets={"fill_value": 0.0}),
    _row("torch.full_like", "torch.ones_like", presets={"fill_value": 1}),
    _row("torch.full_like", "torch.zeros_like torch.empty_like aten::zero", presets={"fill_value": 0}),
    _row("torch.matmul", "torch.mv", presets={"ranks": (2, 1)}, renamed={"vec": "other"}),
    _row("torch.matmul", "torch.bmm", presets={"ranks": (3, 3)}, renamed={"mat2": "other"}),
    _row("torch.matmul", "torch.mm", presets={"ranks": (2, 2)}, renamed={"mat2": "other"}),
    _row("torch.quantile", "torch.nanquantile aten::nanquantile", presets={"ignores_nan": True}),
    _row("torch.quantize_per_tensor", "nn.quantized.Quantize", positional=("input",)),
    _row("torch.sub", "torch.rsub aten::rsub", positional=("other", "input", "alpha"),
         renamed={"input": "other", "other": "input"}),
    _row("torch.scatter_reduce", "torch.scatter_add", presets={"reduce": "sum"},
         positional=("input", "dim", "index", "src")),
    _row("torch.slice_scatter", "aten::select_scatter",
         renamed={"dim": "dims", "index": "selects"}, positional=("input", "src", "dims", "selects")),
]  # fmt: skip
"""Core operator, other names, and what differs in their signature (engine/layers/definition/signature.py)."""


def add_aliases(registry: Registry) -> None:
    """Register all aliases; every core operator is registered before."""
    for name in _RAW.split():
        registry.alias(f"torch.{name}", f"aten::{name}")
    for core, types in _SAME.items():
        for rank in (1, 2, 3) if "{}" in core else (0,):
            registry.alias(core.format(rank), *types.format(rank).split())
    for core, types, changes in _OTHER:
        registry.alias(core, *types.split(), **changes)
