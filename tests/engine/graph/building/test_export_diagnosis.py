"""Losses of the converter are reported: files as it writes them for models it cannot express."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import engine
from engine import ExportFinding, GraphError
from tests.engine.pnnx.build import pair

F32 = np.float32
MASK = np.full((2, 5), -np.inf, F32)
# x + torch.zeros_like(mask).masked_fill_(mask, -inf), as nn.TransformerEncoderLayer makes its padding mask.
FILLED = [
    "pnnx.Input pnnx_input_0 0 1 0 #0=(2,5)f32",
    "pnnx.Input pnnx_input_1 0 1 1 #1=(2,5)bool",
    "pnnx.Attribute pnnx_fold_9 0 1 2 @data=(2,5)f32 #2=(2,5)f32",
    "Tensor.masked_fill Tensor.masked_fill_1 2 1 2 1 3 value=-inf #2=(2,5)f32 #1=(2,5)bool #3=(2,5)f32",
    "pnnx.Expression pnnx_expr_0 2 1 0 3 4 expr=add(@0,@1) #0=(2,5)f32 #3=(2,5)f32 #4=(2,5)f32",
    "pnnx.Output pnnx_output_0 1 0 4 #4=(2,5)f32",
]
CONV = (
    "nn.Conv2d {} 1 1 0 1 bias=False dilation=(1,1) groups=1 in_channels=1 kernel_size=(1,1) out_channels=1"
    " padding=(0,0) padding_mode=zeros stride=(1,1) @weight=(1,1,1,1){} #0=(1,1,2,2)f32 #1=(1,1,2,2)f32"
)


def ways(*lines: str, inputs: str = "(3,4)i64") -> list[str]:
    """A model of one input and one output around some operators, whose last result is operand 9."""
    return [f"pnnx.Input pnnx_input_0 0 1 0 #0={inputs}", *lines, "pnnx.Output pnnx_output_0 1 0 9"]


def problems(folder: Path, lines: list[str], strict: bool = False, **weights: np.ndarray) -> list[object]:
    path = pair(folder, lines, {name.replace("__", "."): array.tobytes() for name, array in weights.items()})
    return list(engine.check(path, strict=strict))


def test_a_mask_that_was_filled_in_place_is_reported_with_its_cause(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, FILLED, pnnx_fold_9__data=MASK)
    assert isinstance(problem, ExportFinding)
    assert (problem.operator, problem.operand) == ("Tensor.masked_fill_1 (Tensor.masked_fill)", "3")
    assert "src_key_padding_mask" in problem.cause
    assert str(problem).startswith(
        "Tensor.masked_fill_1 (Tensor.masked_fill): operand '3' does not depend on its mask: 'pnnx_fold_9' is -inf "
        "everywhere, as is the value it is filled with; possible cause: a mask that is filled in place"
    )


def test_a_strict_check_refuses_it(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, FILLED, strict=True, pnnx_fold_9__data=MASK)
    assert isinstance(problem, GraphError)
    assert problem.where == "Tensor.masked_fill_1 (Tensor.masked_fill)"


def test_a_graph_tells_of_it_as_of_other_warnings(tmp_path: Path) -> None:
    graph = engine.load(pair(tmp_path, FILLED, {"pnnx_fold_9.data": MASK.tobytes()}))
    (told,) = graph.describe()["warnings"]
    assert told["computed"] == told["annotated"] == {"shape": None, "dtype": None}
    assert (told["message"], told["cause"]) == (str(graph.warnings[0]), graph.warnings[0].cause)


@pytest.mark.parametrize("constant", [np.zeros((2, 5), F32), np.triu(MASK, 1)])
def test_filling_a_constant_that_is_not_filled_already_is_no_loss(tmp_path: Path, constant: np.ndarray) -> None:
    assert problems(tmp_path, FILLED, pnnx_fold_9__data=np.nan_to_num(constant, nan=0, neginf=-np.inf)) == []


def test_a_constant_the_model_brought_along_may_hold_anything(tmp_path: Path) -> None:
    lines = [line.replace("pnnx_fold_9", "mask") for line in FILLED]
    assert problems(tmp_path, lines, mask__data=MASK) == []


@pytest.mark.parametrize(
    ("name", "code", "count"), [("convbn2d_0", "bf16", 1), ("convbn2d_0", "f32", 0), ("features.0", "bf16", 0)]
)
def test_a_bfloat16_layer_fused_with_batch_normalisation_is_reported(
    tmp_path: Path, name: str, code: str, count: int
) -> None:
    lines = ["pnnx.Input in0 0 1 0 #0=(1,1,2,2)f32", CONV.format(name, code), "pnnx.Output out0 1 0 1"]
    weight = np.ones((1, 1, 1, 1), ml_dtypes.bfloat16 if code == "bf16" else F32)
    found = problems(tmp_path, lines, **{f"{name.replace('.', '__')}__weight": weight})
    assert ["removed without changing the weights" in str(problem) for problem in found] == [True] * count


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param(
            ways("pnnx.Expression e 1 1 0 9 expr=add(mul(div(@0,2),2),1) #9=(3,4)i64"),
            "is [3, 4] float32, the file says [3, 4] int64; possible cause: div(rounding_mode='floor') is exported "
            "as a plain division",
            id="floor division of integers within an expression",
        ),
        pytest.param(
            ways("torch.cat cat 2 1 0 0 9 dim=0 #9=(6,4)f32"),
            "possible cause: multiplying integers by 1.0, or dividing them by 1, is dropped although it "
            "changes the dtype",
            id="integers times 1.0",
        ),
        pytest.param(
            ways("Tensor.index i 1 1 0 9 expr=[None,[0,1]] #0=(4,4,4)f32 #9=(4,2,2,4)f32", inputs="(4,4,4)f32"),
            "expr has only the first row of a multidimensional constant index: found a result of shape [4, 2, 4]"
            ", expected [4, 2, 2, 4]",
            id="constant index of two dimensions",
        ),
        pytest.param(
            ways(
                "Tensor.slice s 1 1 0 9 dims=(0,0) ends=(0,0) selects=(1,2) starts=(0,0) steps=(0,0) #9=(4)f32",
                inputs="(4,4,4)f32",
            ),
            "a dim is given twice: found [0, 0]",
            id="select and select from the end",
        ),
        pytest.param(
            ways("Tensor.to t 1 1 0 9 copy=False $input=0 #0=(3,4)i64 #9=(3,4)null"),
            "is of a dtype unknown to the converter; possible cause: a cast to uint16, float8 or the like is lost",
            id="cast to a dtype the converter does not know",
        ),
        pytest.param(
            ways("aten::Bool b 1 1 0 8", "prim::If i 1 1 8 9"),
            "'prim::If' (i; the branches and loops of a scripted model are not exported: trace it)",
            id="scripted control flow",
        ),
    ],
)
def test_a_loss_that_shows_in_the_file_is_told(tmp_path: Path, lines: list[str], message: str) -> None:
    assert message in str(problems(tmp_path, lines)[0])


IN_PLACE = {
    "squeeze_": ("(2,1,4)", "(2,4)", [("torch.squeeze", "dim=1")]),
    "unsqueeze_": ("(2,3,4)", "(2,1,3,4)", [("torch.unsqueeze", "dim=1")]),
    "transpose_": ("(2,3,4)", "(2,4,3)", [("torch.transpose", "dim0=1 dim1=2")]),
    "t_": ("(2,3)", "(3,2)", [("torch.t", "")]),
    "squeeze_, relu_, unsqueeze_": (
        "(2,1,4)",
        "(1,2,4)",
        [("torch.squeeze", "dim=1"), ("F.relu", ""), ("torch.unsqueeze", "dim=0")],
    ),
}


def changed_in_place(before: str, after: str, steps: list[tuple[str, str]], annotated: str) -> list[str]:
    """Operand 1 and all that is made of it in place are annotated as what they are in the end."""
    return [
        f"pnnx.Input pnnx_input_0 0 1 0 #0={before}f32",
        f"F.sigmoid sigmoid 1 1 0 1 #1={annotated}f32",
        *(f"{type} op{k} 1 1 {k} {k + 1} {params} #{k + 1}={after}f32" for k, (type, params) in enumerate(steps, 1)),
        f"pnnx.Output pnnx_output_0 1 0 {len(steps) + 1}",
    ]


@pytest.mark.parametrize(("before", "after", "steps"), IN_PLACE.values(), ids=IN_PLACE)
def test_a_shape_changed_in_place_is_no_loss(
    before: str, after: str, steps: list[tuple[str, str]], tmp_path: Path
) -> None:
    assert problems(tmp_path, changed_in_place(before, after, steps, after), strict=True) == []


@pytest.mark.parametrize(("before", "after", "steps"), IN_PLACE.values(), ids=IN_PLACE)
def test_a_shape_that_nothing_gives_it_later_is(
    before: str, after: str, steps: list[tuple[str, str]], tmp_path: Path
) -> None:
    assert len(problems(tmp_path, changed_in_place(before, after, steps, "(2,12)"))) == 1


def test_a_squeeze_that_is_missing_is_named(tmp_path: Path) -> None:
    lines = ways("F.sigmoid sigmoid 1 1 0 9 #9=(2,3)f32", inputs="(2,3,1,1)f32")
    (problem,) = problems(tmp_path, lines)
    assert isinstance(problem, engine.Mismatch)
    assert "squeeze_" in str(problem.cause)
