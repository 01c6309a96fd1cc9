"""ONNX files: the model's graph, written node by node from its weights.

Every layer's nodes name the same initializers, so shared weights are in the file once.
The graph uses standard operators alone.
"""

import tempfile
from pathlib import Path

import keras
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from albert_tf.model import heads, models
from albert_tf.model.layers import MASKED_SCORE, NORM_EPSILON
from albert_tf.serve.runtimes.signatures import Signature

# The first that has Gelu; and the file format of its time.
_OPSET = 20
_IR_VERSION = 9

_ACTIVATIONS = {
    "gelu": ("Gelu", {"approximate": "tanh"}),
    "gelu_erf": ("Gelu", {"approximate": "none"}),
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "linear": ("Identity", {}),
    None: ("Identity", {}),
}


class _Graph:
    """Nodes and initializers that grow.

    Tensors are known by their names, as in ONNX. Letters of shapes: see `layers`.
    """

    def __init__(self):
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def add(self, op: str, *inputs: str, **attributes) -> str:
        """Adds a node and returns its output."""
        return self.add_several(1, op, *inputs, **attributes)[0]

    def add_several(self, count: int, op: str, *inputs: str, **attributes) -> list[str]:
        """Adds a node that has `count` outputs."""
        outputs = [f"{op}_{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs

    def store(self, name: str, array) -> str:
        """Returns the name of an initializer, which is made on its first use."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def integers(self, *values: int) -> str:
        """Returns int64 [n]."""
        return self.store(f"integers{list(values)}", np.array(values, np.int64))

    def number(self, value: float) -> str:
        """Returns float32 []."""
        return self.store(f"number {value}", np.float32(value))

    def variable(self, variable: keras.Variable) -> str:
        """Returns a variable's values."""
        return self.store(variable.path, variable)

    def dense(self, layer: keras.layers.Dense, x: str) -> str:
        """Applies a dense layer without its activation."""
        product = self.add("MatMul", x, self.variable(layer.kernel))
        if not layer.use_bias:
            return product
        return self.add("Add", product, self.variable(layer.bias))

    def norm(self, layer: keras.layers.LayerNormalization, x: str) -> str:
        """Applies a layer normalisation."""
        scale, shift = self.variable(layer.gamma), self.variable(layer.beta)
        return self.add(
            "LayerNormalization", x, scale, shift, axis=-1, epsilon=NORM_EPSILON
        )

    def activation(self, name: str | None, x: str) -> str:
        """Applies one of the activations of `config.hidden_act`."""
        op, attributes = _ACTIVATIONS[name]
        return self.add(op, x, **attributes)

    def first(self, states: str) -> str:
        """Returns the first token's state, [B, H] of [B, T, H]."""
        return self.add("Gather", states, self.store("first", np.int64(0)), axis=1)


def convert(model: keras.Model, signature: Signature, precision: str) -> bytes:
    """Returns an .onnx file's contents."""
    graph = _Graph()
    made = _outputs(graph, model, set(signature.outputs))
    for name in signature.outputs:
        graph.nodes.append(helper.make_node("Identity", [made[name]], [name]))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32, shape)
        for name, shape in signature.inputs.items()
    ]
    outputs = [
        helper.make_tensor_value_info(
            name,
            TensorProto.INT32 if name.endswith("_index") else TensorProto.FLOAT,
            shape,
        )
        for name, shape in signature.outputs.items()
    ]
    whole = helper.make_graph(
        graph.nodes, "albert", inputs, outputs, list(graph.initializers.values())
    )
    made_by = {"producer_name": "albert_tf", "ir_version": _IR_VERSION}
    opsets = [helper.make_opsetid("", _OPSET)]
    file = helper.make_model(whole, opset_imports=opsets, **made_by)
    if precision == "float16":
        _store_in_float16(file.graph)
    if precision == "int8":
        file = _quantize(file)
    return file.SerializeToString()


def _store_in_float16(graph: onnx.GraphProto) -> None:
    """Stores weights in float16 and casts each once, as the graph computes in float32.

    `onnxruntime.transformers.float16` would add a cast for each use of a weight, which
    unfolds the shared block when the casts are folded.
    """
    for weight in graph.initializer:
        array = numpy_helper.to_array(weight)
        if array.dtype == np.float32 and array.ndim:
            name = f"{weight.name} in float16"
            weight.CopyFrom(numpy_helper.from_array(array.astype(np.float16), name))
            cast = helper.make_node(
                "Cast", [name], [name.removesuffix(" in float16")], to=TensorProto.FLOAT
            )
            graph.node.insert(0, cast)


def _quantize(file: onnx.ModelProto) -> onnx.ModelProto:
    """Rounds weights to 8 bits, with a scale for each output of a matrix.

    What is multiplied with them is rounded as the model runs. `reduce_range`: CPUs
    without VNNI add two products in 16 bits, which overflow unless weights have 7 bits.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # The graph has nothing to fold, and so needs no pre-processing.
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


def _outputs(graph: _Graph, model: keras.Model, wanted: set[str]) -> dict[str, str]:
    """Adds a model, and returns its tensors by their names in Keras."""
    inputs = {name: name for name in ("input_ids", "input_mask", "segment_ids")}
    if isinstance(model, models.AlbertMultipleChoice):
        length = graph.add("Shape", "input_ids", start=2)
        rows = graph.add("Concat", graph.integers(-1), length, axis=0)
        inputs = {name: graph.add("Reshape", name, rows) for name in inputs}
    encoder = model if isinstance(model, models.AlbertEncoder) else model.encoder
    # What is made of the first token's state alone needs no other in the last layer.
    first_only = wanted <= {"logits", "pooled_output", "sop_logits"} and not (
        isinstance(model, models.AlbertTokenClassifier)
    )
    states = _encoder(graph, encoder, inputs, first_only)
    first = graph.first(states)
    pooled = graph.add("Tanh", graph.dense(encoder.pooler, first))
    outputs = {"sequence_output": states, "pooled_output": pooled}
    match model:
        case models.AlbertPretrainer():
            if model.sentence is not None:
                outputs["sop_logits"] = graph.dense(model.sentence.output_dense, pooled)
            if "mlm_logits" in wanted:
                outputs["mlm_logits"] = _masked_lm(graph, model, states)
        case models.AlbertClassifier():
            outputs["logits"] = graph.dense(model.head.output_dense, pooled)
        case models.AlbertTokenClassifier():
            outputs["logits"] = graph.dense(model.head.output_dense, states)
        case models.AlbertMultipleChoice():
            logits = graph.dense(model.head.output_dense, pooled)
            shape = graph.add("Shape", "input_ids", end=2)
            last = graph.integers(-1)
            is_there = graph.add("ReduceMax", "input_mask", last, keepdims=0)
            logits = graph.add("Reshape", logits, shape)
            scores = _mask_scores(graph, is_there)
            outputs["logits"] = graph.add("Add", logits, scores)
        case models.AlbertSpanLabeler():
            logits = graph.dense(model.head.output_dense, states)
            parts = graph.add_several(2, "Split", logits, axis=-1, num_outputs=2)
            for name, part in zip(("start_logits", "end_logits"), parts, strict=True):
                outputs[name] = graph.add("Squeeze", part, graph.integers(-1))
        case models.AlbertConditionalSpanLabeler():
            outputs |= _conditional_spans(graph, model.head, states)
    return outputs


def _encoder(graph: _Graph, encoder, inputs: dict[str, str], first_only: bool) -> str:
    """Adds the encoder.

    Returns:
        the last layer's output, float32 [B, T, H]; [B, 1, H] if `first_only`.
    """
    tables = encoder.embeddings
    ids = inputs["input_ids"]
    words = graph.add("Gather", graph.variable(tables.word), ids)
    segments = graph.add(
        "Gather", graph.variable(tables.segment), inputs["segment_ids"]
    )
    length = graph.add("Shape", ids, start=1)
    positions = graph.add(
        "Slice", graph.variable(tables.position), graph.integers(0), length
    )
    summed = graph.add("Add", graph.add("Add", words, segments), positions)
    hidden = graph.norm(tables.norm, summed)
    if encoder.projection is not None:
        hidden = graph.dense(encoder.projection, hidden)

    scores = _mask_scores(graph, inputs["input_mask"])
    scores = graph.add("Unsqueeze", scores, graph.integers(1, 2))
    blocks = list(encoder.layers_in_order())
    for i, block in enumerate(blocks):
        last = first_only and i == len(blocks) - 1
        hidden = _block(graph, block, hidden, scores, last)
    return hidden


def _mask_scores(graph: _Graph, mask: str) -> str:
    """Returns 0 where a mask is 1, and `MASKED_SCORE` where it is 0."""
    mask = graph.add("Cast", mask, to=TensorProto.FLOAT)
    padding = graph.add("Sub", graph.number(1.0), mask)
    return graph.add("Mul", padding, graph.number(MASKED_SCORE))


def _block(graph: _Graph, block, hidden: str, mask: str, first_only: bool) -> str:
    """Adds one layer; `first_only` computes its first token's output alone."""
    attention, feed_forward = block.attention, block.feed_forward
    config = block.config
    asking = hidden
    if first_only:
        begin, end = graph.integers(0), graph.integers(1)
        asking = graph.add("Slice", hidden, begin, end, graph.integers(1))
    query = graph.dense(attention.query, asking)
    query = graph.add("Mul", query, graph.number(config.head_size**-0.5))
    query = _heads(graph, config, query, [0, 2, 1, 3])
    key = _heads(graph, config, graph.dense(attention.key, hidden), [0, 2, 3, 1])
    value = _heads(graph, config, graph.dense(attention.value, hidden), [0, 2, 1, 3])
    scores = graph.add("Add", graph.add("MatMul", query, key), mask)
    mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
    mixed = graph.add("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = graph.add("Reshape", mixed, graph.integers(0, 0, config.hidden_size))
    output = graph.dense(attention.output_dense, mixed)
    attended = graph.norm(attention.norm, graph.add("Add", asking, output))

    inner = graph.dense(feed_forward.intermediate, attended)
    inner = graph.activation(config.hidden_act, inner)
    output = graph.dense(feed_forward.output_dense, inner)
    return graph.norm(feed_forward.norm, graph.add("Add", attended, output))


def _heads(graph: _Graph, config, x: str, order: list[int]) -> str:
    """Splits [B, T, H] into heads [B, T, N, D], and puts the axes into an order."""
    sizes = graph.integers(0, 0, config.num_attention_heads, config.head_size)
    return graph.add("Transpose", graph.add("Reshape", x, sizes), perm=order)


def _masked_lm(graph: _Graph, model, states: str) -> str:
    head, table = model.masked_lm, model.encoder.embeddings.word
    picked = _gather_positions(graph, states, "masked_lm_positions")
    narrowed = graph.dense(head.transform, picked)
    narrowed = graph.activation(head.config.hidden_act, narrowed)
    narrowed = graph.norm(head.norm, narrowed)
    kernel = graph.add("Transpose", graph.variable(table), perm=[1, 0])
    logits = graph.add("MatMul", narrowed, kernel)
    return graph.add("Add", logits, graph.variable(head.output_bias))


def _gather_positions(graph: _Graph, states: str, positions: str) -> str:
    """Picks [B, P, H] of states [B, T, H] at int [B, P]."""
    wide = graph.add("Cast", positions, to=TensorProto.INT64)
    wide = graph.add("Unsqueeze", wide, graph.integers(-1))
    return graph.add("GatherND", states, wide, batch_dims=1)


def _conditional_spans(
    graph: _Graph, head: heads.ConditionalSpanHead, states: str
) -> dict[str, str]:
    """Adds the head of SQuAD 2.0 as it predicts; its docstring has the shapes."""
    impossible = graph.add("Cast", "p_mask", to=TensorProto.FLOAT)
    start = graph.add("Squeeze", graph.dense(head.start, states), graph.integers(-1))
    start = _mask(graph, start, impossible)
    log_probs = graph.add("LogSoftmax", start, axis=-1)
    top, index = graph.add_several(
        2, "TopK", log_probs, graph.integers(head.start_n_top)
    )
    end = _end_log_probs(graph, head, states, index, impossible)
    end_top, end_index = graph.add_several(
        2, "TopK", end, graph.integers(head.end_n_top)
    )
    spans = graph.integers(-1, head.start_n_top * head.end_n_top)
    end_index = graph.add("Reshape", end_index, spans)

    weights = graph.add("Unsqueeze", graph.add("Softmax", start), graph.integers(1))
    expected = graph.add("MatMul", weights, states)
    expected = graph.add("Squeeze", expected, graph.integers(1))
    both = graph.add("Concat", expected, graph.first(states), axis=-1)
    hidden = graph.add("Tanh", graph.dense(head.answer_hidden, both))
    answer = graph.add("Squeeze", graph.dense(head.answer, hidden), graph.integers(-1))
    return {
        "start_log_probs": log_probs,
        "start_top_log_probs": top,
        "start_top_index": graph.add("Cast", index, to=TensorProto.INT32),
        "end_top_log_probs": graph.add("Reshape", end_top, spans),
        "end_top_index": graph.add("Cast", end_index, to=TensorProto.INT32),
        "cls_logits": answer,
    }


def _end_log_probs(
    graph: _Graph, head, states: str, start_index: str, impossible: str
) -> str:
    """Returns float32 [B, S, T]: for each start, each token's log-probability."""
    starts = _gather_positions(graph, states, start_index)
    layer = head.end_hidden
    path = layer.kernel.path
    upper, lower = np.split(np.asarray(layer.kernel), 2)
    of_states = graph.store(f"{path} of the state", upper)
    from_states = graph.add("MatMul", states, of_states)
    of_starts = graph.store(f"{path} of the start", lower)
    from_starts = graph.add("MatMul", starts, of_starts)
    from_starts = graph.add("Add", from_starts, graph.variable(layer.bias))
    hidden = graph.add(
        "Add",
        graph.add("Unsqueeze", from_states, graph.integers(1)),
        graph.add("Unsqueeze", from_starts, graph.integers(2)),
    )
    hidden = graph.norm(head.end_norm, graph.add("Tanh", hidden))
    logits = graph.add("Squeeze", graph.dense(head.end, hidden), graph.integers(-1))
    impossible = graph.add("Unsqueeze", impossible, graph.integers(1))
    return graph.add("LogSoftmax", _mask(graph, logits, impossible), axis=-1)


def _mask(graph: _Graph, logits: str, impossible: str) -> str:
    possible = graph.add("Sub", graph.number(1.0), impossible)
    kept = graph.add("Mul", logits, possible)
    taken = graph.add("Mul", impossible, graph.number(heads.IMPOSSIBLE_LOGIT))
    return graph.add("Add", kept, taken)
