"""Vocabulary: the calls that rules and operators are written in, ONNX's operators at opset 21.

A rule says `op: Op` and calls `op.MatMul(a, b)`: an editor completes the names, and a type checker
knows them. Inputs come by position, attributes by keyword. What a call does is told by the reading:
see `readings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from numpy.typing import DTypeLike

Array: TypeAlias = Any
"""A tensor in some reading: a `numpy.ndarray`, a graph value, a tensor, an array of symbols."""

Shape: TypeAlias = tuple[int, ...]

Op: TypeAlias = "Vocabulary"
"""A reading of the vocabulary: `op.MatMul(a, b)` and so on, one method per ONNX operator."""


class Vocabulary(Protocol):
    """What a rule may ask of the reading `op`: one method per ONNX operator, and few things more.

    An operator with several outputs gives a tuple; where they are optional, as many as `outputs`.
    """

    convolves_samples: bool
    """Whether correlations are written as convolutions."""

    recurs: bool
    """Whether a slope is wanted as a function of the output where it is one, in a single form."""

    def cast(self, x: Array, dtype: DTypeLike, /) -> Array:
        """An array in another dtype of NumPy, where it is."""

    def flow(
        self, op_type: str, attrs: Any, inputs: Sequence[Any], run: Any, /
    ) -> Sequence[Any] | None:
        """The outputs of an If, Loop or Scan, where the reading has loops and branches itself."""

    def scanned(
        self, turn: Any, state: Sequence[Array], series: Sequence[Array], backward: bool, /
    ) -> Any:
        """The final state and the rows of a loop, where the reading has loops itself."""

    # -- written by `python -m tests.vocabulary` ---------------------------------------------------

    def Abs(self, X: Array, /) -> Array: ...

    def Acos(self, input: Array, /) -> Array: ...

    def Acosh(self, input: Array, /) -> Array: ...

    def Add(self, A: Array, B: Array, /) -> Array: ...

    def AffineGrid(self, theta: Array, size: Array, /, *, align_corners: int = 0) -> Array: ...

    def And(self, A: Array, B: Array, /) -> Array: ...

    def ArgMax(
        self, data: Array, /, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0,
    ) -> Array: ...  # fmt: skip

    def ArgMin(
        self, data: Array, /, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0,
    ) -> Array: ...  # fmt: skip

    def Asin(self, input: Array, /) -> Array: ...

    def Asinh(self, input: Array, /) -> Array: ...

    def Atan(self, input: Array, /) -> Array: ...

    def Atanh(self, input: Array, /) -> Array: ...

    def AveragePool(
        self, X: Array, /, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET",
        ceil_mode: int = 0, count_include_pad: int = 0, dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
    ) -> Array: ...  # fmt: skip

    def BatchNormalization(
        self, X: Array, scale: Array, B: Array, input_mean: Array, input_var: Array, /, *,
        epsilon: float = 1e-05, momentum: float = 0.9, training_mode: int = 0, outputs: int = 1,
    ) -> Array: ...  # fmt: skip

    def Bernoulli(
        self, input: Array, /, *, dtype: int | None = None, seed: float | None = None,
    ) -> Array: ...  # fmt: skip

    def BitShift(self, X: Array, Y: Array, /, *, direction: str) -> Array: ...

    def BitwiseAnd(self, A: Array, B: Array, /) -> Array: ...

    def BitwiseNot(self, X: Array, /) -> Array: ...

    def BitwiseOr(self, A: Array, B: Array, /) -> Array: ...

    def BitwiseXor(self, A: Array, B: Array, /) -> Array: ...

    def BlackmanWindow(
        self, size: Array, /, *, output_datatype: int = 1, periodic: int = 1,
    ) -> Array: ...  # fmt: skip

    def Cast(self, input: Array, /, *, to: int, saturate: int = 1) -> Array: ...

    def CastLike(self, input: Array, target_type: Array, /, *, saturate: int = 1) -> Array: ...

    def Ceil(self, X: Array, /) -> Array: ...

    def Celu(self, X: Array, /, *, alpha: float = 1.0) -> Array: ...

    def CenterCropPad(
        self, input_data: Array, shape: Array, /, *, axes: Sequence[int] | None = None,
    ) -> Array: ...  # fmt: skip

    def Clip(
        self, input: Array, min: Array | None = None, max: Array | None = None, /,
    ) -> Array: ...  # fmt: skip

    def Col2Im(
        self, input: Array, image_shape: Array, block_shape: Array, /, *,
        dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Array: ...  # fmt: skip

    def Compress(self, input: Array, condition: Array, /, *, axis: int | None = None) -> Array: ...

    def Concat(self, *inputs: Array, axis: int) -> Array: ...

    def ConcatFromSequence(
        self, input_sequence: Array, /, *, axis: int, new_axis: int = 0,
    ) -> Array: ...  # fmt: skip

    def Constant(
        self, *, sparse_value: object | None = None, value: object | None = None,
        value_float: float | None = None, value_floats: Sequence[float] | None = None,
        value_int: int | None = None, value_ints: Sequence[int] | None = None,
        value_string: str | None = None, value_strings: Sequence[str] | None = None,
    ) -> Array: ...  # fmt: skip

    def ConstantOfShape(self, input: Array, /, *, value: object | None = None) -> Array: ...

    def Conv(
        self, X: Array, W: Array, B: Array | None = None, /, *, auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None, group: int = 1,
        kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Array: ...  # fmt: skip

    def ConvInteger(
        self, x: Array, w: Array, x_zero_point: Array | None = None,
        w_zero_point: Array | None = None, /, *, auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None, group: int = 1,
        kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Array: ...  # fmt: skip

    def ConvTranspose(
        self, X: Array, W: Array, B: Array | None = None, /, *, auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None, group: int = 1,
        kernel_shape: Sequence[int] | None = None, output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Array: ...  # fmt: skip

    def Cos(self, input: Array, /) -> Array: ...

    def Cosh(self, input: Array, /) -> Array: ...

    def CumSum(
        self, x: Array, axis: Array, /, *, exclusive: int = 0, reverse: int = 0,
    ) -> Array: ...  # fmt: skip

    def DFT(
        self, input: Array, dft_length: Array | None = None, axis: Array | None = None, /, *,
        inverse: int = 0, onesided: int = 0,
    ) -> Array: ...  # fmt: skip

    def DeformConv(
        self, X: Array, W: Array, offset: Array, B: Array | None = None, mask: Array | None = None,
        /, *, dilations: Sequence[int] | None = None, group: int = 1,
        kernel_shape: Sequence[int] | None = None, offset_group: int = 1,
        pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
    ) -> Array: ...  # fmt: skip

    def DepthToSpace(self, input: Array, /, *, blocksize: int, mode: str = "DCR") -> Array: ...

    def DequantizeLinear(
        self, x: Array, x_scale: Array, x_zero_point: Array | None = None, /, *, axis: int = 1,
        block_size: int = 0,
    ) -> Array: ...  # fmt: skip

    def Det(self, X: Array, /) -> Array: ...

    def Div(self, A: Array, B: Array, /) -> Array: ...

    def Dropout(
        self, data: Array, ratio: Array | None = None, training_mode: Array | None = None, /, *,
        seed: int | None = None, outputs: int = 1,
    ) -> Array: ...  # fmt: skip

    def DynamicQuantizeLinear(self, x: Array, /, *, outputs: int = 3) -> tuple[Array, ...]: ...

    def Einsum(self, *Inputs: Array, equation: str) -> Array: ...

    def Elu(self, X: Array, /, *, alpha: float = 1.0) -> Array: ...

    def Equal(self, A: Array, B: Array, /) -> Array: ...

    def Erf(self, input: Array, /) -> Array: ...

    def Exp(self, input: Array, /) -> Array: ...

    def Expand(self, input: Array, shape: Array, /) -> Array: ...

    def EyeLike(self, input: Array, /, *, dtype: int | None = None, k: int = 0) -> Array: ...

    def Flatten(self, input: Array, /, *, axis: int = 1) -> Array: ...

    def Floor(self, X: Array, /) -> Array: ...

    def GRU(
        self, X: Array, W: Array, R: Array, B: Array | None = None,
        sequence_lens: Array | None = None, initial_h: Array | None = None, /, *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None, activations: Sequence[str] | None = None,
        clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
        layout: int = 0, linear_before_reset: int = 0, outputs: int = 1,
    ) -> Array: ...  # fmt: skip

    def Gather(self, data: Array, indices: Array, /, *, axis: int = 0) -> Array: ...

    def GatherElements(self, data: Array, indices: Array, /, *, axis: int = 0) -> Array: ...

    def GatherND(self, data: Array, indices: Array, /, *, batch_dims: int = 0) -> Array: ...

    def Gelu(self, X: Array, /, *, approximate: str = "none") -> Array: ...

    def Gemm(
        self, A: Array, B: Array, C: Array | None = None, /, *, alpha: float = 1.0,
        beta: float = 1.0, transA: int = 0, transB: int = 0,
    ) -> Array: ...  # fmt: skip

    def GlobalAveragePool(self, X: Array, /) -> Array: ...

    def GlobalLpPool(self, X: Array, /, *, p: int = 2) -> Array: ...

    def GlobalMaxPool(self, X: Array, /) -> Array: ...

    def Greater(self, A: Array, B: Array, /) -> Array: ...

    def GreaterOrEqual(self, A: Array, B: Array, /) -> Array: ...

    def GridSample(
        self, X: Array, grid: Array, /, *, align_corners: int = 0, mode: str = "linear",
        padding_mode: str = "zeros",
    ) -> Array: ...  # fmt: skip

    def GroupNormalization(
        self, X: Array, scale: Array, bias: Array, /, *, num_groups: int, epsilon: float = 1e-05,
        stash_type: int = 1,
    ) -> Array: ...  # fmt: skip

    def HammingWindow(
        self, size: Array, /, *, output_datatype: int = 1, periodic: int = 1,
    ) -> Array: ...  # fmt: skip

    def HannWindow(
        self, size: Array, /, *, output_datatype: int = 1, periodic: int = 1,
    ) -> Array: ...  # fmt: skip

    def HardSigmoid(self, X: Array, /, *, alpha: float = 0.2, beta: float = 0.5) -> Array: ...

    def HardSwish(self, X: Array, /) -> Array: ...

    def Hardmax(self, input: Array, /, *, axis: int = -1) -> Array: ...

    def Identity(self, input: Array, /) -> Array: ...

    def If(
        self, cond: Array, /, *, else_branch: object, then_branch: object, outputs: int = 1,
    ) -> tuple[Array, ...]: ...  # fmt: skip

    def ImageDecoder(self, encoded_stream: Array, /, *, pixel_format: str = "RGB") -> Array: ...

    def InstanceNormalization(
        self, input: Array, scale: Array, B: Array, /, *, epsilon: float = 1e-05,
    ) -> Array: ...  # fmt: skip

    def IsInf(
        self, X: Array, /, *, detect_negative: int = 1, detect_positive: int = 1,
    ) -> Array: ...  # fmt: skip

    def IsNaN(self, X: Array, /) -> Array: ...

    def LRN(
        self, X: Array, /, *, size: int, alpha: float = 0.0001, beta: float = 0.75,
        bias: float = 1.0,
    ) -> Array: ...  # fmt: skip

    def LSTM(
        self, X: Array, W: Array, R: Array, B: Array | None = None,
        sequence_lens: Array | None = None, initial_h: Array | None = None,
        initial_c: Array | None = None, P: Array | None = None, /, *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None, activations: Sequence[str] | None = None,
        clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
        input_forget: int = 0, layout: int = 0, outputs: int = 1,
    ) -> Array: ...  # fmt: skip

    def LayerNormalization(
        self, X: Array, Scale: Array, B: Array | None = None, /, *, axis: int = -1,
        epsilon: float = 1e-05, stash_type: int = 1, outputs: int = 1,
    ) -> Array: ...  # fmt: skip

    def LeakyRelu(self, X: Array, /, *, alpha: float = 0.01) -> Array: ...

    def Less(self, A: Array, B: Array, /) -> Array: ...

    def LessOrEqual(self, A: Array, B: Array, /) -> Array: ...

    def Log(self, input: Array, /) -> Array: ...

    def LogSoftmax(self, input: Array, /, *, axis: int = -1) -> Array: ...

    def Loop(
        self, M: Array | None = None, cond: Array | None = None, /, *v_initial: Array, body: object,
        outputs: int = 1,
    ) -> tuple[Array, ...]: ...  # fmt: skip

    def LpNormalization(self, input: Array, /, *, axis: int = -1, p: int = 2) -> Array: ...

    def LpPool(
        self, X: Array, /, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET",
        ceil_mode: int = 0, dilations: Sequence[int] | None = None, p: int = 2,
        pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
    ) -> Array: ...  # fmt: skip

    def MatMul(self, A: Array, B: Array, /) -> Array: ...

    def MatMulInteger(
        self, A: Array, B: Array, a_zero_point: Array | None = None,
        b_zero_point: Array | None = None, /,
    ) -> Array: ...  # fmt: skip

    def Max(self, *data_0: Array) -> Array: ...

    def MaxPool(
        self, X: Array, /, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET",
        ceil_mode: int = 0, dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None, storage_order: int = 0,
        strides: Sequence[int] | None = None, outputs: int = 1,
    ) -> Array: ...  # fmt: skip

    def MaxRoiPool(
        self, X: Array, rois: Array, /, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0,
    ) -> Array: ...  # fmt: skip

    def MaxUnpool(
        self, X: Array, I_: Array, output_shape: Array | None = None, /, *,
        kernel_shape: Sequence[int], pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Array: ...  # fmt: skip

    def Mean(self, *data_0: Array) -> Array: ...

    def MeanVarianceNormalization(
        self, X: Array, /, *, axes: Sequence[int] = [0, 2, 3],
    ) -> Array: ...  # fmt: skip

    def MelWeightMatrix(
        self, num_mel_bins: Array, dft_length: Array, sample_rate: Array, lower_edge_hertz: Array,
        upper_edge_hertz: Array, /, *, output_datatype: int = 1,
    ) -> Array: ...  # fmt: skip

    def Min(self, *data_0: Array) -> Array: ...

    def Mish(self, X: Array, /) -> Array: ...

    def Mod(self, A: Array, B: Array, /, *, fmod: int = 0) -> Array: ...

    def Mul(self, A: Array, B: Array, /) -> Array: ...

    def Multinomial(
        self, input: Array, /, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None,
    ) -> Array: ...  # fmt: skip

    def Neg(self, X: Array, /) -> Array: ...

    def NegativeLogLikelihoodLoss(
        self, input: Array, target: Array, weight: Array | None = None, /, *,
        ignore_index: int | None = None, reduction: str = "mean",
    ) -> Array: ...  # fmt: skip

    def NonMaxSuppression(
        self, boxes: Array, scores: Array, max_output_boxes_per_class: Array | None = None,
        iou_threshold: Array | None = None, score_threshold: Array | None = None, /, *,
        center_point_box: int = 0,
    ) -> Array: ...  # fmt: skip

    def NonZero(self, X: Array, /) -> Array: ...

    def Not(self, X: Array, /) -> Array: ...

    def OneHot(
        self, indices: Array, depth: Array, values: Array, /, *, axis: int = -1,
    ) -> Array: ...  # fmt: skip

    def Optional(self, input: Array | None = None, /, *, type: object | None = None) -> Array: ...

    def OptionalGetElement(self, input: Array, /) -> Array: ...

    def OptionalHasElement(self, input: Array | None = None, /) -> Array: ...

    def Or(self, A: Array, B: Array, /) -> Array: ...

    def PRelu(self, X: Array, slope: Array, /) -> Array: ...

    def Pad(
        self, data: Array, pads: Array, constant_value: Array | None = None,
        axes: Array | None = None, /, *, mode: str = "constant",
    ) -> Array: ...  # fmt: skip

    def Pow(self, X: Array, Y: Array, /) -> Array: ...

    def QLinearConv(
        self, x: Array, x_scale: Array, x_zero_point: Array, w: Array, w_scale: Array,
        w_zero_point: Array, y_scale: Array, y_zero_point: Array, B: Array | None = None, /, *,
        auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
        kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Array: ...  # fmt: skip

    def QLinearMatMul(
        self, a: Array, a_scale: Array, a_zero_point: Array, b: Array, b_scale: Array,
        b_zero_point: Array, y_scale: Array, y_zero_point: Array, /,
    ) -> Array: ...  # fmt: skip

    def QuantizeLinear(
        self, x: Array, y_scale: Array, y_zero_point: Array | None = None, /, *, axis: int = 1,
        block_size: int = 0, output_dtype: int = 0, saturate: int = 1,
    ) -> Array: ...  # fmt: skip

    def RNN(
        self, X: Array, W: Array, R: Array, B: Array | None = None,
        sequence_lens: Array | None = None, initial_h: Array | None = None, /, *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] = ["Tanh", "Tanh"], clip: float | None = None,
        direction: str = "forward", hidden_size: int | None = None, layout: int = 0,
        outputs: int = 1,
    ) -> Array: ...  # fmt: skip

    def RandomNormal(
        self, *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0,
        seed: float | None = None,
    ) -> Array: ...  # fmt: skip

    def RandomNormalLike(
        self, input: Array, /, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0,
        seed: float | None = None,
    ) -> Array: ...  # fmt: skip

    def RandomUniform(
        self, *, shape: Sequence[int], dtype: int = 1, high: float = 1.0, low: float = 0.0,
        seed: float | None = None,
    ) -> Array: ...  # fmt: skip

    def RandomUniformLike(
        self, input: Array, /, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0,
        seed: float | None = None,
    ) -> Array: ...  # fmt: skip

    def Range(self, start: Array, limit: Array, delta: Array, /) -> Array: ...

    def Reciprocal(self, X: Array, /) -> Array: ...

    def ReduceL1(
        self, data: Array, axes: Array | None = None, /, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array: ...  # fmt: skip

    def ReduceL2(
        self, data: Array, axes: Array | None = None, /, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array: ...  # fmt: skip

    def ReduceLogSum(
        self, data: Array, axes: Array | None = None, /, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array: ...  # fmt: skip

    def ReduceLogSumExp(
        self, data: Array, axes: Array | None = None, /, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array: ...  # fmt: skip

    def ReduceMax(
        self, data: Array, axes: Array | None = None, /, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array: ...  # fmt: skip

    def ReduceMean(
        self, data: Array, axes: Array | None = None, /, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array: ...  # fmt: skip

    def ReduceMin(
        self, data: Array, axes: Array | None = None, /, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array: ...  # fmt: skip

    def ReduceProd(
        self, data: Array, axes: Array | None = None, /, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array: ...  # fmt: skip

    def ReduceSum(
        self, data: Array, axes: Array | None = None, /, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array: ...  # fmt: skip

    def ReduceSumSquare(
        self, data: Array, axes: Array | None = None, /, *, keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array: ...  # fmt: skip

    def RegexFullMatch(self, X: Array, /, *, pattern: str | None = None) -> Array: ...

    def Relu(self, X: Array, /) -> Array: ...

    def Reshape(self, data: Array, shape: Array, /, *, allowzero: int = 0) -> Array: ...

    def Resize(
        self, X: Array, roi: Array | None = None, scales: Array | None = None,
        sizes: Array | None = None, /, *, antialias: int = 0, axes: Sequence[int] | None = None,
        coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
        exclude_outside: int = 0, extrapolation_value: float = 0.0,
        keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
        nearest_mode: str = "round_prefer_floor",
    ) -> Array: ...  # fmt: skip

    def ReverseSequence(
        self, input: Array, sequence_lens: Array, /, *, batch_axis: int = 1, time_axis: int = 0,
    ) -> Array: ...  # fmt: skip

    def RoiAlign(
        self, X: Array, rois: Array, batch_indices: Array, /, *,
        coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
        output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
        spatial_scale: float = 1.0,
    ) -> Array: ...  # fmt: skip

    def Round(self, X: Array, /) -> Array: ...

    def STFT(
        self, signal: Array, frame_step: Array, window: Array | None = None,
        frame_length: Array | None = None, /, *, onesided: int = 1,
    ) -> Array: ...  # fmt: skip

    def Scan(
        self, *initial_state_and_scan_inputs: Array, body: object, num_scan_inputs: int,
        scan_input_axes: Sequence[int] | None = None,
        scan_input_directions: Sequence[int] | None = None,
        scan_output_axes: Sequence[int] | None = None,
        scan_output_directions: Sequence[int] | None = None, outputs: int = 1,
    ) -> tuple[Array, ...]: ...  # fmt: skip

    def ScatterElements(
        self, data: Array, indices: Array, updates: Array, /, *, axis: int = 0,
        reduction: str = "none",
    ) -> Array: ...  # fmt: skip

    def ScatterND(
        self, data: Array, indices: Array, updates: Array, /, *, reduction: str = "none",
    ) -> Array: ...  # fmt: skip

    def Selu(self, X: Array, /, *, alpha: float = 1.6732632, gamma: float = 1.050701) -> Array: ...

    def SequenceAt(self, input_sequence: Array, position: Array, /) -> Array: ...

    def SequenceConstruct(self, *inputs: Array) -> Array: ...

    def SequenceEmpty(self, *, dtype: int | None = None) -> Array: ...

    def SequenceErase(self, input_sequence: Array, position: Array | None = None, /) -> Array: ...

    def SequenceInsert(
        self, input_sequence: Array, tensor: Array, position: Array | None = None, /,
    ) -> Array: ...  # fmt: skip

    def SequenceLength(self, input_sequence: Array, /) -> Array: ...

    def SequenceMap(
        self, input_sequence: Array, /, *additional_inputs: Array, body: object, outputs: int = 1,
    ) -> tuple[Array, ...]: ...  # fmt: skip

    def Shape(self, data: Array, /, *, end: int | None = None, start: int = 0) -> Array: ...

    def Shrink(self, input: Array, /, *, bias: float = 0.0, lambd: float = 0.5) -> Array: ...

    def Sigmoid(self, X: Array, /) -> Array: ...

    def Sign(self, input: Array, /) -> Array: ...

    def Sin(self, input: Array, /) -> Array: ...

    def Sinh(self, input: Array, /) -> Array: ...

    def Size(self, data: Array, /) -> Array: ...

    def Slice(
        self, data: Array, starts: Array, ends: Array, axes: Array | None = None,
        steps: Array | None = None, /,
    ) -> Array: ...  # fmt: skip

    def Softmax(self, input: Array, /, *, axis: int = -1) -> Array: ...

    def SoftmaxCrossEntropyLoss(
        self, scores: Array, labels: Array, weights: Array | None = None, /, *,
        ignore_index: int | None = None, reduction: str = "mean", outputs: int = 1,
    ) -> Array: ...  # fmt: skip

    def Softplus(self, X: Array, /) -> Array: ...

    def Softsign(self, input: Array, /) -> Array: ...

    def SpaceToDepth(self, input: Array, /, *, blocksize: int) -> Array: ...

    def Split(
        self, input: Array, split: Array | None = None, /, *, axis: int = 0,
        num_outputs: int | None = None, outputs: int = 1,
    ) -> tuple[Array, ...]: ...  # fmt: skip

    def SplitToSequence(
        self, input: Array, split: Array | None = None, /, *, axis: int = 0, keepdims: int = 1,
    ) -> Array: ...  # fmt: skip

    def Sqrt(self, X: Array, /) -> Array: ...

    def Squeeze(self, data: Array, axes: Array | None = None, /) -> Array: ...

    def StringConcat(self, X: Array, Y: Array, /) -> Array: ...

    def StringNormalizer(
        self, X: Array, /, *, case_change_action: str = "NONE", is_case_sensitive: int = 0,
        locale: str | None = None, stopwords: Sequence[str] | None = None,
    ) -> Array: ...  # fmt: skip

    def StringSplit(
        self, X: Array, /, *, delimiter: str | None = None, maxsplit: int | None = None,
        outputs: int = 2,
    ) -> tuple[Array, ...]: ...  # fmt: skip

    def Sub(self, A: Array, B: Array, /) -> Array: ...

    def Sum(self, *data_0: Array) -> Array: ...

    def Tan(self, input: Array, /) -> Array: ...

    def Tanh(self, input: Array, /) -> Array: ...

    def TfIdfVectorizer(
        self, X: Array, /, *, max_gram_length: int, max_skip_count: int, min_gram_length: int,
        mode: str, ngram_counts: Sequence[int], ngram_indexes: Sequence[int],
        pool_int64s: Sequence[int] | None = None, pool_strings: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
    ) -> Array: ...  # fmt: skip

    def ThresholdedRelu(self, X: Array, /, *, alpha: float = 1.0) -> Array: ...

    def Tile(self, input: Array, repeats: Array, /) -> Array: ...

    def TopK(
        self, X: Array, K: Array, /, *, axis: int = -1, largest: int = 1, sorted: int = 1,
        outputs: int = 2,
    ) -> tuple[Array, ...]: ...  # fmt: skip

    def Transpose(self, data: Array, /, *, perm: Sequence[int] | None = None) -> Array: ...

    def Trilu(self, input: Array, k: Array | None = None, /, *, upper: int = 1) -> Array: ...

    def Unique(
        self, X: Array, /, *, axis: int | None = None, sorted: int = 1, outputs: int = 1,
    ) -> Array: ...  # fmt: skip

    def Unsqueeze(self, data: Array, axes: Array, /) -> Array: ...

    def Where(self, condition: Array, X: Array, Y: Array, /) -> Array: ...

    def Xor(self, A: Array, B: Array, /) -> Array: ...
