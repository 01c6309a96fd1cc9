"""Pipelines of pretrained models: fill-mask, scores, sentence order, embeddings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from albert_tf import errors
from albert_tf.errors import InputError
from albert_tf.tasks import pipelines
from albert_tf.text.inputs import MASK, cut, encode_masked
from albert_tf.text.tokenization import WORD_MARK, Tokenizer

if TYPE_CHECKING:  # not imported at run time: ONNX Runtime and LiteRT need no Keras
    import keras

# Default number of tokens that `FillMask` predicts for each gap.
_TOP_K = 5


class PretrainedPipeline(pipelines.Pipeline):
    """Base of the pipelines for models without fine-tuning.

    Attributes:
        weight_groups: groups of weights to load: "encoder", and "masked_lm" or
            "sentence" for a head.
    """

    weight_groups: ClassVar[tuple[str, ...]]

    def build_model(self) -> "keras.Model":
        """Creates the model with the global dtype policy."""
        from albert_tf.model import models

        if self.weight_groups == ("encoder",):
            return models.AlbertEncoder(self.config)
        sentence_head = "sentence" in self.weight_groups
        return models.AlbertPretrainer(self.config, sentence_head=sentence_head)


class _MaskedLM(PretrainedPipeline):
    """Base of pipelines that predict tokens of one text with the masked LM head."""

    fields = dict.fromkeys(["text"], pipelines.ONE_TEXT)
    output_names = ("mlm_logits",)
    weight_groups = ("encoder", "masked_lm")

    def _make_inputs(self, ids: list[int], positions: Any) -> dict[str, np.ndarray]:
        """Returns the model's inputs for ids, and for the positions to predict."""
        segment = pipelines.single_segment(ids)
        return {**segment, "masked_lm_positions": np.array(positions, np.int32)}

    def _add_special_ids(self, ids: list[int]) -> list[int]:
        """Returns the ids of [CLS], of as many first tokens as fit, and of [SEP]."""
        cls, sep = self.tokenizer.cls_id, self.tokenizer.sep_id
        return [cls, *ids[: self.max_seq_length - 2], sep]


class FillMask(_MaskedLM):
    """Predicts the most likely tokens for each gap; a gap is a [MASK] in a text."""

    option_names = ("top_k", "targets")

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        self._top_k = options.top_k or _TOP_K
        tokens = [tokenizer.id_to_piece(id) for id in range(tokenizer.vocab_size)]
        # A model may have more ids than its vocabulary has tokens.
        tokens += [""] * (config.vocab_size - len(tokens))
        # The ids that may fill a gap; by default all.
        self._candidates: Any = slice(None)
        if options.targets is not None:
            self._candidates = find_target_ids(tokenizer, options.targets)
        # The token of each candidate.
        self._tokens = np.array(tokens, object)[self._candidates]

    def preprocess(self, row):
        text = row["text"]
        if MASK not in text:
            raise InputError(
                f"no {MASK} in {errors.quote(text)}; expected at least one"
            )
        text = cut(self.tokenizer, text, self.max_seq_length)
        ids = self._add_special_ids(encode_masked(self.tokenizer, text))
        gaps = np.flatnonzero(np.equal(ids, self.tokenizer.mask_id))
        # The model requires a position, even if truncation removed every [MASK].
        model_inputs = self._make_inputs(ids, gaps if gaps.size else [0])
        # The context is the number of gaps within the maximum length.
        return pipelines.Example(row, [model_inputs], context=len(gaps))

    def select(self, inputs, outputs):
        count = len(inputs["masked_lm_positions"])  # without padding
        probabilities = pipelines.softmax(outputs["mlm_logits"][:count])
        probabilities = probabilities[:, self._candidates]
        best = np.argsort(-probabilities, axis=-1, kind="stable")[:, : self._top_k]
        return self._tokens[best], np.take_along_axis(probabilities, best, axis=-1)

    def postprocess(self, example, outputs):
        text, count = example.row["text"], example.context
        # The best tokens and their probabilities, [gaps, top_k] each.
        tokens, probabilities = outputs[0]
        gaps: list[list[dict[str, Any]]] = []
        for gap in range(count):
            floats = pipelines.round_floats(probabilities[gap])
            pairs = zip(tokens[gap], floats, strict=True)
            # "piece" is the former name of the key "token", kept for compatibility.
            gaps.append([{"token": t, "piece": t, "probability": p} for t, p in pairs])
        # Truncation removed the other gaps, which get no tokens.
        num_removed = text.count(MASK) - count
        gaps += [[]] * num_removed
        note = {"beyond_length": num_removed} if num_removed else {}
        return {"gaps": gaps, **note, "filled": fill_masks(text, gaps, self.tokenizer)}


class Score(_MaskedLM):
    """Computes the pseudo-log-likelihood of a text (Salazar et al. 2020).

    The score is the sum of the log probabilities of all tokens. For each token, the
    model reads a variant of the text in which only this token is masked.
    """

    def preprocess(self, row):
        all_ids = self.tokenizer.encode(row["text"])
        ids = self._add_special_ids(all_ids)
        variants = []
        for position in range(1, len(ids) - 1):
            masked_ids = [*ids[:position], self.tokenizer.mask_id, *ids[position + 1 :]]
            # The correct id, which only `select` reads, not the model.
            label = {"masked_lm_ids": np.array([ids[position]])}
            variants.append({**self._make_inputs(masked_ids, [position]), **label})
        # The context is the number of tokens that truncation removed.
        return pipelines.Example(row, variants, context=len(all_ids) - len(variants))

    def select(self, inputs, outputs):
        """Returns the log probability of the masked token."""
        logits = outputs["mlm_logits"][0].astype(float)
        shifted = logits - logits.max()
        return shifted[inputs["masked_lm_ids"][0]] - np.log(np.exp(shifted).sum())

    def postprocess(self, example, outputs):
        count, total = len(outputs), sum(outputs)
        answer = {
            "score": pipelines.round_floats(total),
            "per_token": pipelines.round_floats(total / max(count, 1)),
            "tokens": count,
        }
        if example.context:
            answer["beyond_length"] = example.context
        return answer


class SentenceOrder(PretrainedPipeline):
    """Predicts the probability that two texts are in the correct order."""

    fields = dict.fromkeys(["text_a", "text_b"], pipelines.ONE_TEXT)
    output_names = ("sop_logits",)
    weight_groups = ("encoder", "sentence")

    def preprocess(self, row):
        # An exported model also computes the masked LM, and requires positions. The
        # result at this one position is not used.
        positions = {"masked_lm_positions": np.zeros(1, np.int32)}
        pair = self.join(row["text_a"], row["text_b"])
        return pipelines.Example(row, [{**pair, **positions}])

    def postprocess(self, example, outputs):
        probabilities = pipelines.softmax(outputs[0]["sop_logits"])
        return {"in_order": pipelines.round_floats(probabilities[0])}


class Embedding(PretrainedPipeline):
    """Computes the embedding of a text from any layer."""

    option_names = ("layer", "pooling")
    fields = dict.fromkeys(["text"], pipelines.ONE_TEXT)
    weight_groups = ("encoder",)

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        layer = -1 if options.layer is None else options.layer
        num_layers = config.num_hidden_layers * config.inner_group_num
        if not (1 <= layer <= num_layers or -num_layers <= layer <= -1):
            raise InputError(
                f"--layer={layer}: must be 1 to {num_layers}, or -1 for the last"
            )
        # An index from 0, or from the end.
        self._layer = layer - 1 if layer > 0 else layer
        self._pooling = options.pooling or "mean"
        # Only TensorFlow offers `encoder_outputs`, the outputs of all layers. So this
        # output is used only if no other output has the layer.
        self.output_names = ("encoder_outputs",)
        if self._pooling == "pooled":
            self.output_names = ("pooled_output",)
        elif self._layer in (-1, num_layers - 1):
            self.output_names = ("sequence_output",)

    def preprocess(self, row):
        return pipelines.Example(row, [self.join(row["text"])])

    def select(self, inputs, outputs):
        output = outputs[self.output_names[0]]
        if self._pooling == "pooled":
            return output
        # The states of T tokens, [T, H]. `encoder_outputs` has L layers, [L, T, H].
        states = output if output.ndim == 2 else output[self._layer]
        if self._pooling == "first":
            return states[0]
        return states[: len(inputs["input_ids"])].mean(0)

    def postprocess(self, example, outputs):
        return {"embedding": pipelines.round_floats(outputs[0])}


def find_target_ids(tokenizer: Tokenizer, targets: Sequence[str]) -> list[int]:
    """Returns the id of each target word.

    Raises:
        InputError: a word is not exactly one token of the vocabulary.
    """
    result: list[int] = []
    for target in targets:
        ids = tokenizer.encode(target)
        if len(ids) != 1 or ids == [tokenizer.unk_id]:
            raise InputError(
                f"target {target!r}: must be one token of the vocabulary, not "
                f"{tokenizer.tokenize(target)}"
            )
        result += ids
    return result


def fill_masks(
    text: str, gaps: Sequence[Sequence[Mapping[str, Any]]], tokenizer: Tokenizer
) -> str:
    """Replaces each [MASK] of a text by the most likely token.

    A token that continues a word has no space before it.

    Args:
        text: a text with one or more [MASK].
        gaps: for each [MASK] its tokens, most likely first. A [MASK] without tokens
            stays.
        tokenizer: the model's tokenizer.
    """
    is_sentencepiece = tokenizer.piece_to_id(WORD_MARK) != tokenizer.unk_id
    result, *parts = text.split(MASK)
    for gap, part in zip(gaps, parts, strict=True):
        token = gap[0]["token"] if gap else ""
        # A SentencePiece token begins a word if it has the word mark. A WordPiece token
        # continues a word if it begins with "##".
        if token.startswith(WORD_MARK):
            token = token.removeprefix(WORD_MARK)
            result += " " if result and not result[-1].isspace() else ""
        elif token.startswith("##") or (token and is_sentencepiece):
            token, result = token.removeprefix("##"), result.rstrip()
        result += (token or MASK) + part
    return result
