"""Writes TF-Hub modules: the encoder with its heads, and preprocessing of raw text.

Both modules have TF-Hub's common interface for text encoders
(tensorflow.org/hub/common_saved_model_apis/text), like modules of other publishers.

Letters of shapes: B batch, T tokens of an input, P masked positions of an input, L
layers, V vocabulary, H hidden size.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import keras
import tensorflow as tf

from albert_tf import weights
from albert_tf.errors import InputError
from albert_tf.model import heads, models
from albert_tf.serve import saved_models
from albert_tf.serve.settings import HubSettings
from albert_tf.tasks.serving import check_class
from albert_tf.text import in_graph, tokenization
from albert_tf.text.in_graph import GraphTokenizer
from albert_tf.weights import metadata
from albert_tf.weights.folder import ModelFolder

# {name of an input in TF-Hub: its name in this package}.
_INPUTS = {
    "input_word_ids": "input_ids",
    "input_mask": "input_mask",
    "input_type_ids": "segment_ids",
}
_POSITIONS = "masked_lm_positions"
# Default number of tokens of a preprocessed input, as in other publishers' modules.
SEQ_LENGTH = 128


def export(settings: HubSettings) -> None:
    """Loads weights, writes the two modules, and prints the paths.

    Raises:
        InputError: the weights, the configuration or the vocabulary are missing, or a
            folder cannot be written.
    """
    directory = Path(settings.albert_directory)
    target = settings.export_path.rstrip("/")
    preprocessing = settings.preprocess_export_path or f"{target}_preprocess"
    first, second = Path(target).resolve(), Path(preprocessing).resolve()
    is_nested = first in second.parents or second in first.parents
    if is_nested or first == second or directory.resolve() in (first, second):
        raise InputError(
            f"--export_path={target}, --preprocess_export_path={preprocessing}: must "
            f"be two folders, not one inside the other, and not {directory}"
        )
    saved_models.check_writable(target)
    saved_models.check_writable(preprocessing)
    folder = ModelFolder(
        directory / (settings.checkpoint_name or ""),
        checkpoint=settings.checkpoint,
        files=settings,  # the flags of the configuration and the vocabulary
    )
    source, config, tokenizer = folder.source, folder.config, folder.tokenizer
    model = weights.model_for(source, config)
    # `parts` is for the log line, `only` for `weights.load`. `.mlm` and `.sop` are
    # functions of the module, see `export_encoder`.
    parts, only = "the encoder", None
    if isinstance(model, models.AlbertPretrainer):
        parts += ", .mlm" + (" and .sop" if model.sentence is not None else "")
    else:  # TF-Hub's interface has no other heads
        model, only = models.AlbertEncoder(config), "encoder"
    weights.load(model, source, only=only)
    print(f"read     {source.path}")
    export_encoder(model, tokenizer, target)
    print(f"written  {target}: {parts}, {model.count_params():,} parameters")
    length = min(SEQ_LENGTH, config.max_position_embeddings)
    export_preprocessing(tokenizer, preprocessing, length)
    print(f"written  {preprocessing}: {tokenizer.vocab_size:,} tokens")


def export_encoder(
    model: keras.Model, tokenizer: tokenization.Tokenizer, folder: str | Path
) -> None:
    """Writes an encoder as a trainable TF2 module.

    The module takes a dict of int32 [B, T] `input_word_ids`, `input_mask` and
    `input_type_ids`, and `training`. It returns a dict of float32:
    `pooled_output` [B, H], also under the name `default`; `sequence_output` [B, T, H];
    and `encoder_outputs`, a list of the outputs of the L layers, [B, T, H] each.

    The module of an `AlbertPretrainer` also has the functions `mlm` and `sop`. Both
    take the same inputs, and `mlm` also takes int32 `masked_lm_positions` [B, P]. They
    return the same outputs and the logits of one head: `mlm_logits` [B, P, V] or
    `sop_logits` [B, 2].

    Args:
        model: an `AlbertEncoder`; or an `AlbertPretrainer`, to write its heads, too.
        tokenizer: the vocabulary; its file becomes an asset.
        folder: the folder to create; an older module there is replaced.

    Raises:
        InputError: the folder cannot be written, the model has another class, or the
            sizes of the vocabulary and the model differ.
    """
    check_class(model, models.AlbertEncoder, models.AlbertPretrainer)
    model.config.check_vocabulary(tokenizer.path, tokenizer.vocab_size)
    has_heads = isinstance(model, models.AlbertPretrainer)
    encoder = model.encoder if has_heads else model
    encode = _make_encoder_fn(encoder)
    root = saved_models.make_reusable(encode, [encoder])
    # `keras.layers.TFSMLayer` calls `serve`. With the argument
    # `call_training_endpoint="serve_training"`, it calls `serve_training` in training.
    specs = [_make_specs()]
    root.serve = tf.function(lambda x: encode(x), specs, autograph=False)
    root.serve_training = tf.function(lambda x: encode(x, True), specs, autograph=False)
    if has_heads:

        def predict_masked(inputs, outputs):
            sequence, positions = outputs["sequence_output"], inputs[_POSITIONS]
            states = heads.gather_positions(sequence, positions)
            return {"mlm_logits": model.masked_lm(states, encoder.embeddings.word)}

        def predict_order(inputs, outputs):
            return {"sop_logits": model.sentence(outputs["pooled_output"])}

        layers = [encoder, model.masked_lm]
        root.mlm = _make_head_fn(encode, predict_masked, layers, _POSITIONS)
        if model.sentence is not None:
            root.sop = _make_head_fn(encode, predict_order, [encoder, model.sentence])
    root.do_lower_case = tf.Variable(tokenizer.do_lower_case, trainable=False)
    saved_models.save(
        root,
        folder,
        model=model,
        signatures={"serving_default": _make_signature(encode)},
        assets={
            tokenizer.file_name: tokenizer.contents,
            metadata.VOCABULARY: metadata.to_json(metadata.identify(tokenizer)),
        },
    )


def export_preprocessing(
    tokenizer: tokenization.Tokenizer, folder: str | Path, seq_length: int = SEQ_LENGTH
) -> None:
    """Writes the module that converts raw text to the encoder's inputs.

    It takes texts, string [B], and returns the encoder's three inputs, int32
    [B, `seq_length`]. It also has three functions:

    - `tokenize` returns the ids of each text, ragged int32 [B, None]. The tokenizer in
      Python returns the same ids.
    - `bert_pack_inputs` takes a list of one or two results of `tokenize`, and
      `seq_length`. It returns the encoder's inputs.
    - `tokenize.get_special_tokens_dict` returns the vocabulary size and the special
      ids.

    Args:
        tokenizer: the vocabulary.
        folder: the folder to create; an older module there is replaced.
        seq_length: default number of tokens of an input, T.

    Raises:
        InputError: the folder cannot be written.
    """
    graph = GraphTokenizer(tokenizer)
    special_tokens = {
        "vocab_size": tokenizer.vocab_size,
        "padding_id": tokenizer.pad_id,
        "start_of_sequence_id": tokenizer.cls_id,
        "end_of_segment_id": tokenizer.sep_id,
        "mask_id": tokenizer.mask_id,
    }
    tokenize = saved_models.make_reusable(graph.__call__)
    tokenize.graph = graph  # the SavedModel must have the tables of the graph
    tokenize.get_special_tokens_dict = tf.function(
        lambda: {name: tf.constant(id) for name, id in special_tokens.items()},
        [],
        autograph=False,
    )
    pack = _make_pack_fn(tokenizer, seq_length)
    root = saved_models.make_reusable(
        tf.function(
            lambda texts: pack([graph(texts)], seq_length),
            [tf.TensorSpec([None], tf.string, "sentences")],
            autograph=False,
        )
    )
    root.tokenize = tokenize
    root.bert_pack_inputs = saved_models.make_reusable(pack)
    saved_models.save(root, folder)


def _make_specs(*extra: str) -> dict[str, tf.TensorSpec]:
    """Returns the specs of the encoder's inputs and of the inputs named in `extra`."""
    return {name: tf.TensorSpec([None, None], tf.int32) for name in (*_INPUTS, *extra)}


def _trace(call: Callable, *extra: str) -> Callable:
    """Returns `call` as a `tf.function`, traced for both values of `training`.

    Args:
        call: a function with two arguments, a dict of inputs and `training`.
        *extra: names of inputs in addition to the encoder's.
    """

    # `hub.KerasLayer` requires an argument with the name `training`.
    @tf.function(autograph=False)
    def traced(inputs, training=False):
        return call(inputs, training)

    for training in (False, True):
        traced.get_concrete_function(_make_specs(*extra), training=training)
    return traced


def _make_encoder_fn(encoder: models.AlbertEncoder) -> Callable:
    """Returns the function of the encoder's module, see `export_encoder`."""

    def call(inputs, training):
        features = {name: inputs[key] for key, name in _INPUTS.items()}
        outputs = encoder(features, training=training)
        pooled = tf.cast(outputs["pooled_output"], tf.float32)
        layer_outputs = [tf.cast(x, tf.float32) for x in outputs["encoder_outputs"]]
        return {
            "default": pooled,
            "pooled_output": pooled,
            "sequence_output": layer_outputs[-1],
            "encoder_outputs": layer_outputs,
        }

    return _trace(call)


def _make_head_fn(
    encode: Callable, head: Callable, layers: Sequence[keras.Layer], *extra: str
) -> tf.train.Checkpoint:
    """Returns a function of the module that computes the encoder and a head.

    Args:
        encode: the result of `_make_encoder_fn`.
        head: a function that takes the inputs and the outputs of the module's encoder,
            and returns a dict of logits.
        layers: the layers whose variables the function uses.
        *extra: names of the inputs that only the head reads.
    """

    def call(inputs, training):
        outputs = encode({name: inputs[name] for name in _INPUTS}, training)
        return {**outputs, **head(inputs, outputs)}

    return saved_models.make_reusable(_trace(call, *extra), layers)


def _make_signature(encode: Callable) -> Callable:
    """Returns a signature with all outputs of the encoder except `encoder_outputs`.

    `encoder_outputs` is a list, and a signature can only return tensors.
    """

    def call(**inputs):
        outputs = {**encode(inputs)}
        del outputs["encoder_outputs"]
        return outputs

    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in _INPUTS}
    return tf.function(call, autograph=False).get_concrete_function(**specs)


def _make_pack_fn(tokenizer: tokenization.Tokenizer, default_length: int) -> Callable:
    """Returns `bert_pack_inputs`, see `export_preprocessing`.

    `bert_pack_inputs` takes texts as ragged int32 [B, tokens], the result of
    `tokenize`. It also takes [B, words, tokens], the result of `tokenize` in modules of
    other publishers.
    """
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id

    @tf.function(autograph=False)
    def pack(inputs, seq_length=default_length):
        texts = [x.merge_dims(1, -1) if x.ragged_rank > 1 else x for x in inputs]
        second = texts[1] if len(texts) > 1 else None
        ids, first_lengths = in_graph.join(texts[0], second, seq_length, cls, sep)
        features = in_graph.pad(ids, first_lengths, pad, seq_length)
        return {key: features[name] for key, name in _INPUTS.items()}

    for num_texts in (1, 2):
        for ragged_rank in (1, 2):
            spec = tf.RaggedTensorSpec([None] * (ragged_rank + 1), tf.int32)
            pack.get_concrete_function([spec] * num_texts, tf.TensorSpec([], tf.int32))
    return pack
