"""ONNX files: the graph of a model, written node by node from its weights.

Layers that share weights refer to the same initializers, so a file contains these
weights only once. The graph uses only standard operators.

Letters of shapes: B batch, C choices, T tokens of an input, P masked positions of an
input, S start candidates of a span, V vocabulary, H hidden size, N attention heads, and
D = H / N.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from albert_tf.model import heads, models
from albert_tf.model.layers import MASKED_SCORE, NORM_EPSILON
from albert_tf.serve.runtimes.signatures import Signature

# The first operator set with Gelu, and the file format's version for this operator set.
_OPSET = 20
_IR_VERSION = 9
_FLOAT, _INT32 = TensorProto.FLOAT, TensorProto.INT32

_ACTIVATIONS = {
    "gelu": ("Gelu", {"approximate": "tanh"}),
    "gelu_erf": ("Gelu", {"approximate": "none"}),
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "linear": ("Identity", {}),
    None: ("Identity", {}),
}


class _Graph:
    """An ONNX graph. Each operator is a method, which adds a node of this operator.

    `graph.Add(x, 1.0)` returns the name of the node's output. An input is the name of a
    tensor, a Keras variable, a float (stored as float32) or a list of ints (stored as
    int64).
    """

    def __init__(self):
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def __getattr__(self, op: str) -> Callable[..., Any]:
        """Returns a method that adds a node of the ONNX operator `op`.

        The method returns the name of the node's output, or a list of `count` names.
        """

        def add(*inputs: Any, count: int | None = None, **attributes: Any) -> Any:
            outputs = [f"{op}_{len(self.nodes)}_{i}" for i in range(count or 1)]
            names = [self._name(value) for value in inputs]
            self.nodes.append(helper.make_node(op, names, outputs, **attributes))
            return outputs if count else outputs[0]

        return add

    def store(self, name: str, array: Any) -> str:
        """Creates an initializer, unless the name exists; returns the name."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def _name(self, value: Any) -> str:
        """Returns the name of an input; stores variables and constants."""
        if isinstance(value, str):
            return value
        if isinstance(value, keras.Variable):
            return self.store(value.path, value)
        if isinstance(value, float):
            return self.store(f"number {value}", np.float32(value))
        return self.store(f"integers{value}", np.array(value, np.int64))

    def dense(self, layer: keras.layers.Dense, x: str) -> str:
        """Applies a dense layer without its activation."""
        product = self.MatMul(x, layer.kernel)
        return self.Add(product, layer.bias) if layer.use_bias else product

    def norm(self, layer: keras.layers.LayerNormalization, x: str) -> str:
        """Applies a layer normalization."""
        return self.LayerNormalization(
            x, layer.gamma, layer.beta, axis=-1, epsilon=NORM_EPSILON
        )

    def activation(self, name: str | None, x: str) -> str:
        """Applies one of the activations of `config.hidden_act`."""
        op, attributes = _ACTIVATIONS[name]
        return getattr(self, op)(x, **attributes)

    def first_state(self, states: str) -> str:
        """Returns the state of the first token: [B, H] from [B, T, H]."""
        # The index is a scalar, because a list would keep the axis.
        return self.Gather(states, self.store("first", np.int64(0)), axis=1)


def convert(model: keras.Model, signature: Signature, precision: str) -> bytes:
    """Returns the contents of an .onnx file."""
    graph = _Graph()
    tensors = _add_outputs(graph, model, set(signature.outputs))
    # An Identity node gives a tensor the name of an output.
    for name in signature.outputs:
        graph.nodes.append(helper.make_node("Identity", [tensors[name]], [name]))
    make_info = helper.make_tensor_value_info
    inputs = [
        make_info(name, _INT32, shape) for name, shape in signature.inputs.items()
    ]
    outputs = [
        make_info(name, _INT32 if name.endswith("_index") else _FLOAT, shape)
        for name, shape in signature.outputs.items()
    ]
    weights = list(graph.initializers.values())
    file = helper.make_model(
        helper.make_graph(graph.nodes, "albert", inputs, outputs, weights),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        producer_name="albert_tf",
        ir_version=_IR_VERSION,
    )
    if precision == "float16":
        _store_in_float16(file.graph)
    if precision == "int8":
        file = _quantize(file)
    return file.SerializeToString()


def _store_in_float16(graph: onnx.GraphProto) -> None:
    """Stores weights in float16. A node casts each weight to float32 once.

    `onnxruntime.transformers.float16` would add a cast for each use of a weight. Then
    constant folding would store a shared block once for each layer.
    """
    for weight in graph.initializer:
        name, array = weight.name, numpy_helper.to_array(weight)
        if array.dtype == np.float32 and array.ndim:
            half = f"{name} in float16"
            weight.CopyFrom(numpy_helper.from_array(array.astype(np.float16), half))
            cast = helper.make_node("Cast", [half], [name], to=_FLOAT)
            graph.node.insert(0, cast)


def _quantize(file: onnx.ModelProto) -> onnx.ModelProto:
    """Rounds weights to 8 bits, with a scale for each column of a matrix.

    The inputs of matrix products are rounded at run time. CPUs without VNNI add two
    products in 16 bits. `reduce_range` limits weights to 7 bits, so that these sums do
    not overflow.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # The library warns if a model was not pre-processed. This entry says that it was,
    # because the graph has no constants to fold.
    file.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        quantize_dynamic(
            file,
            path,
            op_types_to_quantize=["Gather", "MatMul"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(path)


def _add_outputs(graph: _Graph, model: keras.Model, names: set[str]) -> dict[str, str]:
    """Adds a model to the graph.

    Returns:
        {name of an output in Keras: name of its tensor}, for at least `names`.
    """
    inputs = {name: name for name in ("input_ids", "input_mask", "segment_ids")}
    if isinstance(model, models.AlbertMultipleChoice):
        # From [B, C, T] to [B * C, T].
        flat_shape = graph.Concat([-1], graph.Shape("input_ids", start=2), axis=0)
        inputs = {name: graph.Reshape(name, flat_shape) for name in inputs}
    encoder = model if isinstance(model, models.AlbertEncoder) else model.encoder
    # If all outputs need only the first token's state, the last layer computes only it.
    first_only = names <= {"logits", "pooled_output", "sop_logits"} and not (
        isinstance(model, models.AlbertTokenClassifier)
    )
    states = _encode(graph, encoder, inputs, first_only)
    pooled = graph.Tanh(graph.dense(encoder.pooler, graph.first_state(states)))
    outputs = {"sequence_output": states, "pooled_output": pooled}
    match model:
        case models.AlbertPretrainer():
            if model.sentence is not None:
                outputs["sop_logits"] = graph.dense(model.sentence.output_dense, pooled)
            # The MLM head needs the input `masked_lm_positions`, which exists only if
            # `mlm_logits` is requested.
            if "mlm_logits" in names:
                outputs["mlm_logits"] = _add_masked_lm(graph, model, states)
        case models.AlbertClassifier():
            outputs["logits"] = graph.dense(model.head.output_dense, pooled)
        case models.AlbertTokenClassifier():
            outputs["logits"] = graph.dense(model.head.output_dense, states)
        case models.AlbertMultipleChoice():
            logits = graph.dense(model.head.output_dense, pooled)
            shape = graph.Shape("input_ids", end=2)
            # A choice without tokens is padding: its logit is masked.
            choice_mask = graph.ReduceMax("input_mask", [-1], keepdims=0)
            logits = graph.Reshape(logits, shape)
            outputs["logits"] = graph.Add(logits, _add_mask_scores(graph, choice_mask))
        case models.AlbertSpanLabeler():
            logits = graph.dense(model.head.output_dense, states)
            parts = graph.Split(logits, axis=-1, num_outputs=2, count=2)
            for name, part in zip(("start_logits", "end_logits"), parts, strict=True):
                outputs[name] = graph.Squeeze(part, [-1])
        case models.AlbertConditionalSpanLabeler():
            outputs |= _add_spans(graph, model.head, states)
    return outputs


def _encode(graph: _Graph, encoder, inputs: dict[str, str], first_only: bool) -> str:
    """Adds the encoder.

    With `first_only`, the last layer computes only the first token.

    Returns:
        The last layer's output, float32 [B, T, H]; [B, 1, H] if `first_only`.
    """
    tables, ids = encoder.embeddings, inputs["input_ids"]
    words = graph.Gather(tables.word, ids)
    segments = graph.Gather(tables.segment, inputs["segment_ids"])
    positions = graph.Slice(tables.position, [0], graph.Shape(ids, start=1))
    hidden = graph.norm(tables.norm, graph.Add(graph.Add(words, segments), positions))
    if encoder.projection is not None:
        hidden = graph.dense(encoder.projection, hidden)
    mask_scores = graph.Unsqueeze(_add_mask_scores(graph, inputs["input_mask"]), [1, 2])
    blocks = list(encoder.blocks_in_order())
    for index, block in enumerate(blocks):
        skips_tokens = first_only and index == len(blocks) - 1
        hidden = _add_block(graph, block, hidden, mask_scores, first_only=skips_tokens)
    return hidden


def _add_mask_scores(graph: _Graph, mask: str) -> str:
    """Returns float32 0 where a mask is 1, and `MASKED_SCORE` where it is 0."""
    padding = graph.Sub(1.0, graph.Cast(mask, to=_FLOAT))
    return graph.Mul(padding, MASKED_SCORE)


def _add_block(graph: _Graph, block, hidden, mask_scores: str, first_only: bool) -> str:
    """Adds a block. With `first_only`, it computes the output of only the first token.

    `mask_scores` is float32 [B, 1, 1, T], from `_add_mask_scores`.
    """
    attention, feed_forward, config = block.attention, block.feed_forward, block.config
    inputs = graph.Slice(hidden, [0], [1], [1]) if first_only else hidden
    query = graph.dense(attention.query, inputs)
    query = graph.Mul(query, config.head_size**-0.5)
    query = _split(graph, config, query, [0, 2, 1, 3])
    key = _split(graph, config, graph.dense(attention.key, hidden), [0, 2, 3, 1])
    value = _split(graph, config, graph.dense(attention.value, hidden), [0, 2, 1, 3])
    scores = graph.Add(graph.MatMul(query, key), mask_scores)
    mixed = graph.MatMul(graph.Softmax(scores, axis=-1), value)
    mixed = graph.Transpose(mixed, perm=[0, 2, 1, 3])
    mixed = graph.Reshape(mixed, [0, 0, config.hidden_size])
    output = graph.dense(attention.output_dense, mixed)
    attended = graph.norm(attention.norm, graph.Add(inputs, output))
    inner = graph.dense(feed_forward.intermediate, attended)
    inner = graph.activation(config.hidden_act, inner)
    output = graph.dense(feed_forward.output_dense, inner)
    return graph.norm(feed_forward.norm, graph.Add(attended, output))


def _split(graph: _Graph, config, x: str, order: list[int]) -> str:
    """Splits [B, T, H] into heads [B, T, N, D], and permutes the axes to `order`."""
    # In ONNX, 0 keeps the size of an axis.
    sizes = [0, 0, config.num_attention_heads, config.head_size]
    return graph.Transpose(graph.Reshape(x, sizes), perm=order)


def _add_masked_lm(graph: _Graph, model, states: str) -> str:
    """Adds the masked LM head; returns the logits, float32 [B, P, V]."""
    head, table = model.masked_lm, model.encoder.embeddings.word
    hidden = _gather_positions(graph, states, "masked_lm_positions")
    hidden = graph.dense(head.transform, hidden)
    hidden = graph.activation(head.config.hidden_act, hidden)
    hidden = graph.norm(head.norm, hidden)
    logits = graph.MatMul(hidden, graph.Transpose(table, perm=[1, 0]))
    return graph.Add(logits, head.output_bias)


def _gather_positions(graph: _Graph, states: str, positions: str) -> str:
    """Gathers [B, P, H] from states [B, T, H] at positions, int [B, P]."""
    indices = graph.Unsqueeze(graph.Cast(positions, to=TensorProto.INT64), [-1])
    return graph.GatherND(states, indices, batch_dims=1)


def _add_spans(
    graph: _Graph, head: heads.ConditionalSpanHead, states: str
) -> dict[str, str]:
    """Adds the SQuAD 2.0 head.

    Returns:
        {name of an output of the head's `call`: name of its tensor}.
    """
    p_mask = graph.Cast("p_mask", to=_FLOAT)
    start_logits = graph.Squeeze(graph.dense(head.start, states), [-1])
    start_logits = _mask_logits(graph, start_logits, p_mask)
    log_probs = graph.LogSoftmax(start_logits, axis=-1)
    start_top, start_index = graph.TopK(log_probs, [head.start_n_top], count=2)
    end_log_probs = _add_end_log_probs(graph, head, states, start_index, p_mask)
    end_top, end_index = graph.TopK(end_log_probs, [head.end_n_top], count=2)
    shape = [-1, head.start_n_top * head.end_n_top]
    end_index = graph.Reshape(end_index, shape)
    probabilities = graph.Unsqueeze(graph.Softmax(start_logits), [1])
    mean_state = graph.Squeeze(graph.MatMul(probabilities, states), [1])
    pair = graph.Concat(mean_state, graph.first_state(states), axis=-1)
    hidden = graph.Tanh(graph.dense(head.answer_hidden, pair))
    cls_logits = graph.Squeeze(graph.dense(head.answer, hidden), [-1])
    return {
        "start_log_probs": log_probs,
        "start_top_log_probs": start_top,
        "start_top_index": graph.Cast(start_index, to=_INT32),
        "end_top_log_probs": graph.Reshape(end_top, shape),
        "end_top_index": graph.Cast(end_index, to=_INT32),
        "cls_logits": cls_logits,
    }


def _add_end_log_probs(
    graph: _Graph, head, states: str, start_index: str, p_mask: str
) -> str:
    """Adds the log-probability of each end for each start, float32 [B, S, T]."""
    starts = _gather_positions(graph, states, start_index)
    # The input of `end_hidden` is the state of a token, concatenated with the state of
    # the start token. The upper half of the kernel multiplies the state, the lower half
    # multiplies the start.
    layer = head.end_hidden
    upper, lower = np.split(np.asarray(layer.kernel), 2)
    state_kernel = graph.store(f"{layer.kernel.path} of the state", upper)
    start_kernel = graph.store(f"{layer.kernel.path} of the start", lower)
    from_state = graph.MatMul(states, state_kernel)
    from_start = graph.Add(graph.MatMul(starts, start_kernel), layer.bias)
    from_state = graph.Unsqueeze(from_state, [1])
    hidden = graph.Add(from_state, graph.Unsqueeze(from_start, [2]))
    hidden = graph.norm(head.end_norm, graph.Tanh(hidden))
    logits = graph.Squeeze(graph.dense(head.end, hidden), [-1])
    p_mask = graph.Unsqueeze(p_mask, [1])
    return graph.LogSoftmax(_mask_logits(graph, logits, p_mask), axis=-1)


def _mask_logits(graph: _Graph, logits: str, p_mask: str) -> str:
    """Returns the logits, with `IMPOSSIBLE_LOGIT` where `p_mask` is 1."""
    masked = graph.Mul(logits, graph.Sub(1.0, p_mask))
    return graph.Add(masked, graph.Mul(p_mask, heads.IMPOSSIBLE_LOGIT))
