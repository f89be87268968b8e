"""Cases of ONNX operators: the standard's own node tests by name, and models of our own.

A plus behind a name makes all inputs but the first constants. What pnnx leaves as it is comes first; then, written as
pnnx's reader has them, operators and forms that its patterns or its runtime do not let through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from record_onnx import Case

LEFT = """
affine_grid_2d_align_corners+
argmax_no_keepdims_example argmax_default_axis_example
argmin_no_keepdims_example argmin_default_axis_example
bitshift_left_uint8
center_crop_pad_crop center_crop_pad_crop+
clip_example
col2im_pads+ col2im_strides+
compress_0+ compress_default_axis+
conv_with_autopad_same conv_with_autopad_same+
convinteger_without_padding
cumsum_1d_reverse cumsum_1d_reverse+
dft_axis dft_irfft_opset19
basic_deform_conv_with_padding basic_deform_conv_with_padding+
depthtospace_example
dequantizelinear_axis+ dequantizelinear_blocked
det_2d
dynamicquantizelinear_min_adjusted
eyelike_populate_off_main_diagonal eyelike_with_dtype
gru_defaults gru_defaults+
gather_elements_0+
gathernd_example_int32+ gathernd_example_int32_batch_dim1+
hardmax_default_axis hardmax_axis_0
isinf_negative isinf_float16
isnan_float16
lstm_defaults lstm_defaults+
l1normalization_axis_last lpnormalization_default
lppool_1d_default lppool_2d_default
matmulinteger
maxunpool_export_without_output_shape maxunpool_export_without_output_shape+
mean_two_inputs mean_example+
mvn
nonmaxsuppression_iou_threshold_boundary nonmaxsuppression_single_box+
onehot_negative_indices+ onehot_without_axis+
optional_has_element_empty_no_input_optional_input optional_has_element_empty_no_input_name_optional_input
prelu_example
edge_pad
qlinearconv
qlinearmatmul_2D_int8_float32
quantizelinear_blocked_asymmetric quantizelinear_axis
simple_rnn_defaults simple_rnn_defaults+
reduce_log_sum_desc_axes+ reduce_log_sum_default
reduce_max_do_not_keepdims_example+
reduce_min_do_not_keepdims_example+
reduce_sum_empty_axes_input_noop_example reduce_sum_empty_axes_input_noop_example+
gemm_default_matrix_bias+ gemm_default_vector_bias+
layer_normalization_3d_axis0_epsilon layer_normalization_3d_axis0_epsilon+
pow_types_int64_int64+ range_int32_type_negative_delta+
reduce_sum_square_do_not_keepdims_example+
reversesequence_time+
rotary_embedding_interleaved rotary_embedding_no_position_ids+
stft+ stft_with_window+
scatter_without_axis+ scatter_with_axis+
scatter_elements_without_axis+ scatter_elements_with_axis+
scatternd+ scatternd_add+
selu
shrink_soft
size_example
slice_default_axes+
softsign_example
swish
tensorscatter+ tensorscatter_circular
thresholdedrelu thresholdedrelu_default
top_k+ top_k_smallest+
transpose_default
tril_zero tril_out_pos+
unique_sorted_with_axis_3d unique_sorted_without_axis
"""

WRITTEN = """
affine_grid_2d affine_grid_2d+
argmax_default_axis_example_select_last_index
argmin_default_axis_example_select_last_index
attention_4d attention_4d+ attention_4d_scaled attention_4d_scaled+ attention_4d_causal
attention_4d_diff_heads_mask4d_padded_kv attention_4d_diff_heads_mask4d_padded_kv+
attention_4d_gqa_causal_nonpad_decode+ attention_4d_causal_nonpad_continued_prefill
attention_4d_causal_nonpad_negative_offset_structural_empty+ attention_4d_causal_nonpad_attn_mask_composition
averagepool_2d_precomputed_pads averagepool_2d_precomputed_pads_count_include_pad
batchnorm_example batchnorm_example+
bitshift_right_uint8 bitshift_right_uint8+
celu
center_crop_pad_crop_axes_hwc+
clip_example+ clip_default_min+
col2im
compress_0
constantofshape_float_ones
basic_conv_with_padding
convinteger_with_padding
convtranspose convtranspose+
cumprod_1d
cumsum_1d
dft_opset19
deform_conv_with_mask_bias+
depthtospace_crd_mode_example
dequantizelinear
dropout_default dropout_default_ratio
dynamicquantizelinear
elu_example elu_default
expand_dim_changed expand_dim_changed+
flatten_axis0 flatten_default_axis
gru_with_initial_bias+
gather_0 gather_0+
gather_elements_0
gathernd_example_int32
gelu_tanh_1 gelu_default_1
gemm_default_zero_bias gemm_default_zero_bias+
globalaveragepool
globalmaxpool
gridsample gridsample+
group_normalization_example group_normalization_example+
hardsigmoid_example hardsigmoid_default
hardswish
hardmax_example
identity
instancenorm_example instancenorm_example+
isinf
isnan
lrn lrn_default
lstm_with_initial_bias+
layer_normalization_4d_axis0 layer_normalization_4d_axis0+
leakyrelu_example leakyrelu_default
logsoftmax_example_1 logsoftmax_axis_0
l2normalization_axis_0
lppool_2d_same_lower
matmul_2d matmul_2d+
maxpool_2d_uint8 maxpool_with_argmax_2d_precomputed_pads
maxunpool_export_with_output_shape
mean_example
melweightmatrix
mish
mod_mixed_sign_float64 mod_mixed_sign_float64+
nonmaxsuppression_suppress_by_IOU
nonzero_example
onehot_without_axis
optional_get_element_optional_tensor
optional_has_element_tensor_input
prelu_example+
constant_pad+
qlinearmatmul_2D_uint8_float32
quantizelinear
rms_normalization_4d_axis0 rms_normalization_4d_axis0+
simple_rnn_with_initial_bias+
range_float_type_positive_delta range_float_type_positive_delta+
reduce_l1_do_not_keepdims_example reduce_l1_do_not_keepdims_example+
reduce_l2_do_not_keepdims_example reduce_l2_do_not_keepdims_example+
reduce_log_sum_desc_axes
reduce_log_sum_exp_do_not_keepdims_example reduce_log_sum_exp_do_not_keepdims_example+
reduce_max_do_not_keepdims_example reduce_max_default_axes_keepdim_example
reduce_mean_do_not_keepdims_example reduce_mean_do_not_keepdims_example+
reduce_min_do_not_keepdims_example reduce_min_default_axes_keepdims_example
reduce_prod_do_not_keepdims_example reduce_prod_do_not_keepdims_example+
reduce_sum_do_not_keepdims_example reduce_sum_do_not_keepdims_example+
reduce_sum_square_do_not_keepdims_example
relu
reshape_reordered_all_dims reshape_reordered_all_dims+
resize_upsample_scales_nearest resize_upsample_scales_nearest+ resize_upsample_sizes_nearest resize_upsample_sizes_nearest+ resize_upsample_scales_linear resize_upsample_scales_linear+ resize_upsample_scales_linear_align_corners resize_upsample_scales_linear_align_corners+
reversesequence_time
roialign_aligned_false roialign_aligned_false+
rotary_embedding
stft
scatter_without_axis
scatter_elements_without_axis
scatternd
selu_example selu_default
shrink_hard
slice
softmax_example softmax_axis_0
softplus_example
spacetodepth
squeeze squeeze+
tensorscatter
thresholdedrelu_example
tile tile+
top_k
transpose_all_permutations_0
triu
unique_not_sorted_without_axis
unsqueeze_axis_0 unsqueeze_axis_0+
upsample_nearest upsample_nearest+
bitcast_int32_to_float32 cumprod_1d_reverse_exclusive+
blackmanwindow blackmanwindow_symmetric hammingwindow hammingwindow_symmetric hannwindow hannwindow_symmetric
"""

RNG = np.random.default_rng(0)


def of(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Normal numbers; integers between -9 and 9."""
    if np.dtype(dtype).kind in "iu":
        return RNG.integers(-9, 9, shape).astype(dtype)
    return RNG.standard_normal(shape).astype(dtype)


def model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[np.ndarray], outputs: int) -> onnx.ModelProto:
    """A model whose inputs are x0, x1, ... and whose outputs are y0, y1, ..."""
    values = [
        helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for k, each in enumerate(inputs)
    ]
    results = [helper.make_tensor_value_info(f"y{k}", TensorProto.UNDEFINED, None) for k in range(outputs)]
    for each in results:
        each.ClearField("type")
    graph = helper.make_graph(list(nodes), "case", values, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def one(
    name: str, kind: str, inputs: Sequence[np.ndarray | None], outputs: Sequence[str] = ("y0",), **attributes: Any
) -> Case:
    """A model of one operator; None leaves an operand out, an empty name a result."""
    written, rtol = attributes.pop("written", True), attributes.pop("rtol", 1e-4)
    constants = attributes.pop("constants", False)
    given = [each for each in inputs if each is not None]
    names = iter(f"x{k}" for k in range(len(given)))
    wires = ["" if each is None else next(names) for each in inputs]
    node = helper.make_node(kind, wires, list(outputs), **attributes)
    made = model([node], given, sum(map(bool, outputs)))
    return Case(name, constants=constants, written=written, model=made, inputs=given, rtol=rtol)


def sequence(name: str, *nodes: onnx.NodeProto, outputs: int = 1) -> Case:
    """A model that makes the sequence ``s`` of three inputs first; pnnx reads it."""
    inputs = [of(2, 3), of(2, 3), of(2, 3)]
    return Case(
        name, model=model([helper.make_node("SequenceConstruct", ["x0", "x1", "x2"], ["s"]), *nodes], inputs, outputs),
        inputs=inputs,
    )  # fmt: skip


def number(value: int, name: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=helper.make_tensor("v", TensorProto.INT64, [], [value]))


def of_shape(name: str, *nodes: onnx.NodeProto) -> Case:
    """A model that takes the shape ``s`` of its input first; pnnx drops the operator that does."""
    inputs = [of(2, 7, 4)]
    return Case(name, model=model([helper.make_node("Shape", ["x0"], ["s"]), *nodes], inputs, 1), inputs=inputs)


STATES = ("y0", "y1", "y2")
LENGTHS = np.array([5, 2, 3], np.int32)
BOXES = np.sort(RNG.random((2, 9, 2, 2)).astype(np.float32), axis=2).reshape(2, 9, 4)

OWN = [
    one("lstm_lengths", "LSTM", (of(5, 3, 4), of(2, 24, 4), of(2, 24, 6), of(2, 48), LENGTHS, of(2, 3, 6), of(2, 3, 6)),
        STATES, hidden_size=6, direction="bidirectional", written=False),
    one("lstm_states", "LSTM", (of(5, 3, 4), of(1, 24, 4), of(1, 24, 6), None, None, of(1, 3, 6), of(1, 3, 6)),
        ("", "y0", "y1"), hidden_size=6, direction="reverse", clip=0.5, written=False),
    one("lstm_peepholes", "LSTM", (of(4, 2, 3), of(1, 20, 3), of(1, 20, 5), of(1, 40), None, of(1, 2, 5), of(1, 2, 5),
        of(1, 15)), STATES, hidden_size=5, input_forget=1,
        activations=["HardSigmoid", "Softsign", "Relu"], written=False),
    one("gru_reset", "GRU", (of(5, 3, 4), of(2, 18, 4), of(2, 18, 6), of(2, 36), LENGTHS, of(2, 3, 6)), ("y0", "y1"),
        hidden_size=6, direction="bidirectional", linear_before_reset=1, written=False),
    one("gru_last", "GRU", (of(5, 3, 4), of(1, 18, 4), of(1, 18, 6), None, LENGTHS), ("", "y0"), hidden_size=6,
        written=False),
    one("rnn_affine", "RNN", (of(5, 3, 4), of(2, 6, 4), of(2, 6, 6), of(2, 12)), ("y0", "y1"), hidden_size=6,
        direction="bidirectional", activations=["Affine", "LeakyRelu"], activation_alpha=[0.5, 0.1],
        activation_beta=[0.25], written=False),
    one("conv_asymmetric", "Conv", (of(2, 4, 9, 8), of(6, 2, 3, 2), of(6)), group=2, pads=[1, 0, 2, 1],
        strides=[2, 1], dilations=[1, 2], constants=True, written=False),
    one("conv_same_lower", "Conv", (of(1, 3, 9, 8), of(4, 3, 4, 3)), auto_pad="SAME_LOWER", strides=[2, 3]),
    one("conv_same_upper_1d", "Conv", (of(1, 3, 9), of(4, 3, 4)), auto_pad="SAME_UPPER", constants=True),
    one("conv_valid_3d", "Conv", (of(1, 2, 5, 6, 4), of(3, 2, 2, 3, 2), of(3)), auto_pad="VALID", constants=True),
    one("conv_same_strided", "Conv", (of(1, 4, 9, 8), of(6, 2, 3, 4), of(6)), auto_pad="SAME_UPPER", strides=[2, 3],
        group=2, constants=True, written=False),
    one("conv_same_strided_signal", "Conv", (of(2, 3, 10), of(4, 3, 3)), auto_pad="SAME_UPPER", strides=[2],
        constants=True, written=False),
    one("conv_plain", "Conv", (of(1, 3, 9, 8), of(4, 3, 3, 3), of(4)), kernel_shape=[3, 3], pads=[1, 1, 1, 1],
        constants=True),
    one("conv_transpose_asymmetric", "ConvTranspose", (of(1, 4, 5, 4), of(4, 3, 3, 2), of(6)), group=2,
        pads=[1, 0, 0, 1], strides=[2, 3], output_padding=[1, 0], constants=True),
    one("conv_transpose_plain", "ConvTranspose", (of(1, 4, 5), of(4, 3, 3)), strides=[2], pads=[1, 1], constants=True),
    one("conv_transpose_sizes", "ConvTranspose", (of(1, 2, 3, 3), of(2, 3, 3, 3)), strides=[3, 2], output_shape=[10, 8]),
    one("max_pool_places", "MaxPool", (of(2, 3, 7, 6),), ("y0", "y1"), kernel_shape=[3, 2], strides=[2, 2],
        pads=[1, 0, 0, 1]),
    one("max_pool_columns", "MaxPool", (of(2, 2, 5, 6),), ("y0", "y1"), kernel_shape=[2, 2], storage_order=1),
    one("max_pool_places_converted", "MaxPool", (of(2, 3, 7, 6),), ("y0", "y1"), kernel_shape=[3, 2], strides=[2, 2],
        pads=[1, 0, 1, 0], written=False),
    one("max_pool_places_of_a_signal", "MaxPool", (of(2, 3, 9),), ("y0", "y1"), kernel_shape=[3], written=False),
    one("max_pool_plain", "MaxPool", (of(2, 3, 7, 6),), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
        ceil_mode=1),
    one("average_pool_plain", "AveragePool", (of(2, 3, 7, 6),), kernel_shape=[3, 2], strides=[2, 2]),
    one("average_pool_asymmetric", "AveragePool", (of(2, 3, 7, 6),), kernel_shape=[3, 2], pads=[0, 1, 2, 0],
        count_include_pad=1),
    one("average_pool_dilated", "AveragePool", (of(1, 2, 9, 8),), kernel_shape=[2, 3], dilations=[2, 2],
        pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=1),
    one("global_average_pool_volume", "GlobalAveragePool", (of(2, 3, 4, 5, 2),)),
    one("global_lp_pool", "GlobalLpPool", (of(2, 3, 4, 5),), p=3),
    one("global_max_pool_signal", "GlobalMaxPool", (of(2, 3, 4),)),
    one("max_roi_pool", "MaxRoiPool", (of(2, 2, 8, 9), np.array([[0, 1, 2, 7, 6], [1, 0, 0, 8, 7]], np.float32)),
        pooled_shape=[2, 3], spatial_scale=0.8),
    one("cast_to_int", "Cast", (3 * of(2, 3),), to=TensorProto.INT32),
    one("cast_to_double", "Cast", (of(2, 3, dtype=np.float16),), to=TensorProto.DOUBLE),
    one("cast_like", "CastLike", (3 * of(2, 3), of(2, dtype=np.int64))),
    one("reduce_mean_whole", "ReduceMean", (of(3, 4, 5, dtype=np.int32), np.array([0, -1])), keepdims=0, constants=True),
    one("reduce_sum_whole", "ReduceSum", (of(3, 4, 5, dtype=np.int32), np.array([1])), keepdims=0, constants=True),
    one("reduce_mean_image", "ReduceMean", (of(2, 3, 4, 5), np.array([2, 3])), keepdims=1, constants=True),
    one("reduce_sum_image", "ReduceSum", (of(2, 3, 4, 5), np.array([2, 3])), keepdims=1, constants=True),
    one("reduce_max_all", "ReduceMax", (of(3, 4, 5, dtype=np.float64),), keepdims=0),
    one("arg_max_rows", "ArgMax", (of(3, 4, 5, dtype=np.float64),), axis=-1, keepdims=0),
    one("top_k_middle", "TopK", (of(3, 7, 2), np.array([4])), ("y0", "y1"), axis=1, largest=0, constants=True),
    one("gather_matrix", "Gather", (of(4, 5), np.array([[-1, 0], [2, -4]])), axis=0, constants=True),
    one("gather_elements_whole", "GatherElements", (of(4, 5), np.array([[-1, 0], [2, -4]])), axis=1, constants=True),
    one("gather_nd_batch", "GatherND", (of(2, 3, 4), np.array([[[-1], [0]], [[2], [1]]])), batch_dims=1, constants=True),
    one("scatter_nd_max", "ScatterND", (of(4, 3), np.array([[-1], [0], [-1]]), of(3, 3)), reduction="max",
        constants=True),
    one("scatter_elements_mul", "ScatterElements", (of(4, 3), np.array([[-1, 0, 1], [3, 2, 1]]), of(2, 3)),
        reduction="mul", axis=0, constants=True),
    one("boxes_of_classes", "NonMaxSuppression", (BOXES, RNG.random((2, 3, 9)).astype(np.float32), np.array([4]),
        np.array([0.3], np.float32), np.array([0.2], np.float32)), written=False, constants=True),
    one("roi_align_max", "RoiAlign", (of(2, 3, 8, 9), np.array([[1, 2, 7, 6], [0, 0.5, 8, 7.5]], np.float32),
        np.array([1, 0])), output_height=2, output_width=3, mode="max", sampling_ratio=2,
        coordinate_transformation_mode="output_half_pixel"),
    one("roi_align_adaptive", "RoiAlign", (of(2, 3, 8, 9), np.array([[1, 2, 7, 6], [0, 0.5, 8, 7.5]], np.float32),
        np.array([1, 0])), output_height=3, output_width=2, spatial_scale=0.7),
    one("clip_both", "Clip", (of(2, 3), np.array(-0.5, np.float32), np.array(0.5, np.float32)), constants=True),
    one("batch_norm", "BatchNormalization", (of(2, 3, 4, 4), of(3), of(3), of(3), np.abs(of(3)))),
    one("instance_norm_volume", "InstanceNormalization", (of(2, 3, 4, 4, 2), of(3), of(3)), epsilon=0.01),
    one("layer_norm_plain", "LayerNormalization", (of(2, 3, 4), of(4), of(4)), axis=-1, constants=True),
    one("layer_norm_statistics", "LayerNormalization", (of(2, 3, 4), of(3, 4)), STATES, axis=1),
    one("gemm_scaled", "Gemm", (of(3, 4), of(5, 3), of(1, 5)[:, :1]), transA=1, transB=1, alpha=0.5, beta=2.0),
    one("gemm_row_of_biases", "Gemm", (of(3, 4), of(4, 5), of(1, 5)), constants=True, written=False),
    one("gemm_column_of_biases", "Gemm", (of(3, 4), of(5, 4), of(3, 1)), transB=1, constants=True, written=False),
    one("split_default_axis", "Split", (of(6, 4), np.array([2, 4])), ("y0", "y1"), constants=True, written=False),
    one("split_equal_parts", "Split", (of(6, 4),), ("y0", "y1"), num_outputs=2, written=False),
    one("add_whole_numbers", "Add", (of(2, 3, dtype=np.int32), np.array([4, -5, 6], np.int32)), constants=True,
        written=False),
    of_shape("zeros_of_a_shape", helper.make_node("ConstantOfShape", ["s"], ["y0"])),
    of_shape("numbers_of_a_shape", helper.make_node("ConstantOfShape", ["s"], ["y0"], value=helper.make_tensor(
        "v", TensorProto.INT32, [1], [3]))),
    one("resize_linear_bytes", "Resize", (of(1, 2, 4, 5), None, np.array([1, 1, 1.6, 0.7], np.float32)), mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel", constants=True),
    one("resize_cubic_f64", "Resize", (of(1, 2, 4, 5), None, None, np.array([1, 2, 7, 9])), mode="cubic",
        coordinate_transformation_mode="half_pixel", constants=True, rtol=1e-3),
    one("constant_floats", "Constant", (), value_floats=[1.0, -2.5, 3.0]),
    one("random_normal_narrow", "RandomNormal", (), mean=2.0, scale=1e-9, shape=[2, 3]),
    one("random_normal_like_narrow", "RandomNormalLike", (of(2, 3),), mean=-2.0, scale=1e-9),
    one("random_uniform_narrow", "RandomUniform", (), low=2.0, high=2.000001, shape=[2, 3], dtype=TensorProto.DOUBLE),
    one("random_uniform_like_narrow", "RandomUniformLike", (of(2, 3),), low=-1.0, high=-0.999999),
    one("multinomial_certain", "Multinomial", (np.array([[-1e9, 0], [0, -1e9]], np.float32),), sample_size=3),
    sequence("sequence_at", number(-1, "p"), helper.make_node("SequenceAt", ["s", "p"], ["y0"])),
    sequence("sequence_insert", number(1, "p"), helper.make_node("Neg", ["x0"], ["n"]),
             helper.make_node("SequenceInsert", ["s", "n", "p"], ["t"]),
             helper.make_node("ConcatFromSequence", ["t"], ["y0"], axis=1)),
    sequence("sequence_erase", number(0, "p"), helper.make_node("SequenceErase", ["s", "p"], ["t"]),
             helper.make_node("ConcatFromSequence", ["t"], ["y0"], axis=0, new_axis=1),
             helper.make_node("SequenceLength", ["t"], ["y1"]), outputs=2),
    sequence("sequence_split", helper.make_node("SplitToSequence", ["x0"], ["t"], axis=1, keepdims=0), number(1, "p"),
             helper.make_node("SequenceAt", ["t", "p"], ["y0"])),
    one("average_pool_dilated_converted", "AveragePool", (of(1, 2, 9, 8),), kernel_shape=[2, 3], dilations=[2, 2],
        pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=1, written=False),
    one("average_pool_dilated_with_padding", "AveragePool", (of(1, 2, 9),), kernel_shape=[3], dilations=[2],
        pads=[2, 2], count_include_pad=1, written=False),
    one("average_pool_dilated_volume", "AveragePool", (of(1, 2, 5, 6, 7),), kernel_shape=[2, 2, 2],
        dilations=[2, 1, 2], pads=[1] * 6, written=False),
    one("average_pool_wide_padding", "AveragePool", (of(2, 3, 9, 8),), kernel_shape=[3, 3], pads=[2] * 4,
        written=False),
    one("average_pool_wide_padding_counted", "AveragePool", (of(2, 3, 9, 8),), kernel_shape=[3, 4],
        pads=[2, 3, 2, 3], strides=[2, 3], count_include_pad=1, written=False),
    one("max_pool_wide_padding", "MaxPool", (of(2, 3, 9, 8),), kernel_shape=[3, 3], pads=[2] * 4, written=False),
    one("max_pool_wide_padding_dilated", "MaxPool", (of(2, 3, 9, 8),), kernel_shape=[3, 3], pads=[2] * 4,
        dilations=[2, 2], strides=[2, 1], written=False),
    *(one(f"{kind.lower()}_a_list", kind, (of(4, 3, dtype=np.int64) % 3, np.array([0, 1, 2])), constants=True,
          written=False) for kind in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "BitwiseAnd",
                                      "BitwiseOr", "BitwiseXor")),
    one("equal_a_list_i32", "Equal", (of(4, 3, dtype=np.int32) % 3, np.array([0, 1, 2], np.int32)), constants=True,
        written=False),
    one("clip_without_bounds", "Clip", (of(2, 3),), written=False),
    *(one(f"prelu_of_{'x'.join(map(str, slope))}", "PRelu", (of(2, 3, 5, 4), of(*slope)), constants=True,
          written=False) for slope in ((4,), (5, 1), (5, 4), (3, 1, 4), (3, 5, 4), (2, 3, 5, 4))),
    one("prelu_of_a_vector", "PRelu", (of(3), of(3)), constants=True, written=False),
    one("prelu_of_a_given_row", "PRelu", (of(2, 3, 5, 4), of(4)), written=False),
    one("layer_norm_of_all", "LayerNormalization", (of(2, 3, 4), of(4), of(4)), STATES, written=False),
    one("gru_linear", "GRU", (of(5, 3, 4), of(2, 18, 4), of(2, 18, 6), of(2, 36)), ("y0", "y1"), hidden_size=6,
        direction="bidirectional", linear_before_reset=1, constants=True, written=False),
]  # fmt: skip


def named(names: str, written: bool) -> list[Case]:
    return [
        Case(
            name.removesuffix("+"),
            constants=name.endswith("+"),
            written=written,
            runtime=not name.startswith(UNKNOWN),
            atol=1e-3 if "dft" in name or "stft" in name or "roialign" in name else 1e-5,
        )
        for name in names.split()
    ]


# What onnxruntime does not know, or answers otherwise than the standard's own reference.
UNKNOWN = (
    "attention_4d_causal_nonpad", "attention_4d_diff_heads_mask4d_padded", "attention_4d_gqa_causal_nonpad", "bitcast", "cumprod", "maxunpool_export_with_output_shape", "roialign")

CASES = [*named(LEFT, False), *named(WRITTEN, True), *OWN]
