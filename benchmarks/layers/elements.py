"""Element-wise operators, reductions, and operators that move elements."""

from __future__ import annotations

from typing import Any

from benchmarks.layers.case import Case, bools, integers, normal, ordered, uniform, waves

MAPS, ROWS, TABLE = normal(1, 64, 56, 56), normal(1, 197, 768), normal(512, 512)


def _curve(type: str, call: Any, **params: Any) -> Case:
    return Case(family="activation", type=type, call=call, operands=(MAPS,), params=params)


def _unary(family: str, type: str, call: Any, drawn: Any = MAPS, **params: Any) -> Case:
    return Case(family=family, type=type, call=call, operands=(drawn,), params=params)


ACTIVATIONS = (
    _curve("nn.ReLU", lambda t, x: t.relu(x)),
    _curve("nn.GELU", lambda t, x: t.nn.functional.gelu(x)),
    Case(family="activation", type="nn.GELU", note="tanh", operands=(ROWS,), params={"approximate": "tanh"},
         call=lambda t, x: t.nn.functional.gelu(x, approximate="tanh")),
    _curve("nn.SiLU", lambda t, x: t.nn.functional.silu(x)),
    _curve("nn.Sigmoid", lambda t, x: t.sigmoid(x)),
    _curve("nn.Tanh", lambda t, x: t.tanh(x)),
    _curve("nn.Mish", lambda t, x: t.nn.functional.mish(x)),
    _curve("nn.Hardswish", lambda t, x: t.nn.functional.hardswish(x)),
    _curve("nn.Hardsigmoid", lambda t, x: t.nn.functional.hardsigmoid(x)),
    _curve("nn.ReLU6", lambda t, x: t.nn.functional.relu6(x)),
    _curve("nn.ELU", lambda t, x: t.nn.functional.elu(x), alpha=1.0),
    _curve("nn.Softplus", lambda t, x: t.nn.functional.softplus(x)),
    _curve("nn.LogSigmoid", lambda t, x: t.nn.functional.logsigmoid(x)),
    _curve("nn.LeakyReLU", lambda t, x: t.nn.functional.leaky_relu(x, 0.1), negative_slope=0.1),
    _curve("nn.GLU", lambda t, x: t.nn.functional.glu(x, 1), dim=1),
    Case(family="activation", type="nn.PReLU", operands=(MAPS,), attributes={"weight": uniform(64)},
         call=lambda t, x, w: t.nn.functional.prelu(x, w)),
)  # fmt: skip

ELEMENTWISE = (
    Case(family="arithmetic", type="pnnx.Expression", operands=(MAPS, MAPS),
         params={"expr": "mul(add(@0,mul(@1,0.5)),@0)"}, call=lambda t, x, y: (x + y * 0.5) * x),
    Case(family="arithmetic", type="aten::add", operands=(MAPS, MAPS, 2), call=lambda t, x, y, a: t.add(x, y, alpha=a)),
    Case(family="comparison", type="torch.gt", operands=(MAPS, MAPS), call=lambda t, x, y: x > y),
    Case(family="comparison", type="torch.where", operands=(bools(*MAPS.shape), MAPS, MAPS),
         call=lambda t, m, x, y: t.where(m, x, y)),
    Case(family="logical", type="torch.logical_and", operands=(bools(*MAPS.shape), bools(*MAPS.shape)),
         call=lambda t, x, y: t.logical_and(x, y)),
    Case(family="complex", type="torch.complex", operands=(MAPS, MAPS), call=lambda t, x, y: t.complex(x, y)),
    _unary("cast", "Tensor.to", lambda t, x: x.to(t.float64), dtype="torch.double"),
    _unary("identity", "torch.clone", lambda t, x: x.clone()),
    Case(family="comparison", type="torch.clamp", operands=(MAPS,), params={"min": -1.0, "max": 1.0},
         call=lambda t, x: x.clamp(-1, 1)),
    _unary("mathematics", "aten::lgamma", lambda t, x: t.lgamma(x), uniform(1, 16, 56, 56)),
    _unary("mathematics", "aten::erfinv", lambda t, x: t.erfinv(x), uniform(1, 16, 56, 56)),
    Case(family="mathematics", type="aten::addcmul", operands=(MAPS, MAPS, MAPS, 0.5),
         call=lambda t, x, a, b, v: t.addcmul(x, a, b, value=v)),
    Case(family="quantise", type="aten::fake_quantize_per_tensor_affine", operands=(MAPS, 0.05, 3, -128, 127),
         call=lambda t, x, s, z, low, high: t.fake_quantize_per_tensor_affine(x, s, z, low, high)),
    Case(family="creation", type="torch.full_like", operands=(MAPS,), params={"fill_value": 0.5},
         call=lambda t, x: t.full_like(x, 0.5)),
)  # fmt: skip

REDUCTIONS = (
    _unary("reduction", "torch.sum", lambda t, x: x.sum((2, 3)), dim=(2, 3), keepdim=False),
    _unary("reduction", "torch.mean", lambda t, x: x.mean(1), dim=(1,), keepdim=False),
    _unary("reduction", "torch.amax", lambda t, x: x.amax(1), dim=(1,), keepdim=False),
    _unary("reduction", "torch.var", lambda t, x: x.var((2, 3)), dim=(2, 3), keepdim=False, unbiased=True),
    _unary("reduction", "torch.prod", lambda t, x: x.prod(1), dim=(1,), keepdim=False),
    _unary("reduction", "torch.logsumexp", lambda t, x: x.logsumexp((1,)), dim=(1,), keepdim=False),
    _unary("reduction", "torch.norm", lambda t, x: t.norm(x, 2, (1,)), dim=(1,), keepdim=False, p=2),
    _unary("reduction", "torch.argmax", lambda t, x: x.argmax(1), dim=1, keepdim=False),
    _unary("reduction", "aten::median", lambda t, x: x.median(), TABLE),
    _unary("scan", "torch.cumsum", lambda t, x: x.cumsum(1), dim=1),
    Case(family="scan", type="aten::cummax", operands=(TABLE, 1), call=lambda t, x, d: t.cummax(x, d)),
    Case(family="scan", type="aten::logcumsumexp", operands=(TABLE, 1), call=lambda t, x, d: t.logcumsumexp(x, d)),
    Case(
        family="loss",
        type="aten::mse_loss",
        operands=(MAPS, MAPS, 1),
        call=lambda t, x, y, _: t.nn.functional.mse_loss(x, y),
    ),
    _unary("softmax", "nn.Softmax", lambda t, x: x.softmax(-1), normal(1, 12, 197, 197), dim=-1),
    _unary("softmax", "nn.LogSoftmax", lambda t, x: x.log_softmax(1), dim=1),
)

PLACES = (
    Case(family="join", type="torch.cat", operands=(MAPS, MAPS, MAPS), params={"dim": 1},
         call=lambda t, *x: t.cat(x, 1)),
    Case(family="join", type="torch.stack", operands=(ROWS, ROWS), params={"dim": 1}, call=lambda t, *x: t.stack(x, 1)),
    _unary("shape", "Tensor.repeat", lambda t, x: x.repeat(1, 2, 2, 1), sizes=(1, 2, 2, 1)),
    _unary("shape", "torch.roll", lambda t, x: x.roll((3, 3), (2, 3)), shifts=(3, 3), dims=(2, 3)),
    _unary("shape", "torch.flip", lambda t, x: x.flip((2, 3)), dims=(2, 3)),
    _unary("shape", "torch.repeat_interleave", lambda t, x: x.repeat_interleave(2, 1), repeats=2, dim=1),
    _unary("shape", "aten::tril", lambda t, x: x.tril(), TABLE),
    _unary("shuffle", "nn.PixelShuffle", lambda t, x: t.pixel_shuffle(x, 2), upscale_factor=2),
    _unary("shuffle", "nn.ChannelShuffle", lambda t, x: t.channel_shuffle(x, 4), groups=4),
    Case(family="indexing", type="Tensor.index", operands=(TABLE, [integers(512, 4096), integers(512, 4096)]),
         call=lambda t, x, i: x[i[0], i[1]]),
    Case(family="indexing", type="torch.gather", operands=(TABLE, integers(512, 512, 256)), params={"dim": 1},
         call=lambda t, x, i: x.gather(1, i)),
    Case(family="indexing", type="torch.index_select", operands=(TABLE, integers(512, 4096)), params={"dim": 0},
         call=lambda t, x, i: x.index_select(0, i)),
    Case(family="indexing", type="Tensor.masked_fill", operands=(TABLE, bools(512, 512)), params={"value": 0.5},
         call=lambda t, x, m: x.masked_fill(m, 0.5)),
    Case(family="scatter", type="torch.scatter_add", operands=(TABLE, integers(512, 512, 256), normal(512, 256)),
         params={"dim": 1}, call=lambda t, x, i, s: x.scatter_add(1, i, s)),
    Case(family="scatter", type="aten::masked_scatter", operands=(TABLE, bools(512, 512), TABLE),
         call=lambda t, x, m, s: x.masked_scatter(m, s)),
    Case(family="scatter", type="Tensor.index_put", params={"accumulate": True},
         operands=(TABLE, [integers(512, 4096), integers(512, 4096)], normal(4096)),
         call=lambda t, x, i, v: x.index_put(tuple(i), v, accumulate=True)),
    _unary("sorting", "torch.topk", lambda t, x: x.topk(10, 1), TABLE, k=10, dim=1, largest=True, sorted=True),
    Case(family="sorting", type="aten::sort", operands=(TABLE, 1, False), call=lambda t, x, d, r: t.sort(x, d, r)),
    Case(family="sorting", type="aten::kthvalue", operands=(TABLE, 100, 1, False),
         call=lambda t, x, k, d, keep: t.kthvalue(x, k, d, keep)),
    Case(family="sorting", type="aten::bucketize", operands=(TABLE, ordered(200), False, False),
         call=lambda t, x, b, i, r: t.bucketize(x, b)),
    _unary("complex", "torch.view_as_real", lambda t, x: t.view_as_real(x), waves(*TABLE.shape)),
)  # fmt: skip

CASES = (*ACTIVATIONS, *ELEMENTWISE, *REDUCTIONS, *PLACES)
