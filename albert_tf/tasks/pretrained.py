"""Pipelines of pretrained models: masks, scores, sentence order, embeddings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from albert_tf import errors
from albert_tf.errors import InputError
from albert_tf.tasks import pipelines
from albert_tf.text import inputs
from albert_tf.text.inputs import MASK
from albert_tf.text.tokenization import WORD_MARK, Tokenizer

if TYPE_CHECKING:  # other runtimes need no Keras
    import keras

_TOP_K = 5


class PretrainedPipeline(pipelines.Pipeline):
    """A task type without fine-tuning.

    Attributes:
        parts: parts of the model to load.
    """

    parts: ClassVar[tuple[str, ...]]

    def build_model(self) -> "keras.Model":
        """Creates the model, in the global dtype policy."""
        from albert_tf.model import models

        if self.parts == ("encoder",):
            return models.AlbertEncoder(self.config)
        reads_order = "sentence" in self.parts
        return models.AlbertPretrainer(self.config, sentence_head=reads_order)


class _MaskedLM(PretrainedPipeline):
    """A pipeline of one text and the masked LM head."""

    fields = dict.fromkeys(["text"], False)
    outputs = ("mlm_logits",)
    parts = ("encoder", "masked_lm")

    def _inputs(self, ids: list[int], positions: Any) -> dict[str, np.ndarray]:
        """Returns the model's inputs of one segment, with positions to predict."""
        predicted = {"masked_lm_positions": np.array(positions, np.int32)}
        return {**pipelines.single_segment(ids), **predicted}

    def _cut(self, ids: list[int]) -> list[int]:
        cls, sep = self.tokenizer.cls_id, self.tokenizer.sep_id
        return [cls, *ids[: self.max_seq_length - 2], sep]


class FillMask(_MaskedLM):
    """Tokens for each [MASK] of a text, see `inputs.encode_masked`."""

    options = ("top_k", "targets")

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        self._top_k = options.top_k or _TOP_K
        names = [tokenizer.id_to_piece(id) for id in range(tokenizer.vocab_size)]
        # A model may have more ids than its vocabulary.
        names += [""] * (config.vocab_size - len(names))
        self._scored: Any = slice(None)
        if options.targets is not None:
            self._scored = target_ids(tokenizer, options.targets)
        self._pieces = np.array(names, object)[self._scored]

    def preprocess(self, row):
        text = row["text"]
        if MASK not in text:
            raise InputError(
                f"no {MASK} in {errors.quote(text)}; expected one for each gap"
            )
        cut = inputs.cut(self.tokenizer, text, self.max_seq_length)
        ids = self._cut(inputs.encode_masked(self.tokenizer, cut))
        gaps = np.flatnonzero(np.equal(ids, self.tokenizer.mask_id))
        # The model requires a position.
        read = self._inputs(ids, gaps if gaps.size else [0])
        return pipelines.Example(row, [read], len(gaps))

    def select(self, inputs, outputs):
        count = len(inputs["masked_lm_positions"])
        shares = pipelines.softmax(outputs["mlm_logits"][:count])[:, self._scored]
        best = np.argsort(-shares, axis=-1, kind="stable")[:, : self._top_k]
        return self._pieces[best], np.take_along_axis(shares, best, axis=-1)

    def postprocess(self, example, outputs):
        count, [(pieces, shares)] = example.context, outputs
        shares = pipelines.round_floats(shares[:count])
        gaps = [
            [
                {"piece": piece, "probability": probability}
                for piece, probability in zip(*each, strict=True)
            ]
            for each in zip(pieces[:count], shares, strict=True)
        ]
        text = example.row["text"]
        answer: dict[str, Any] = {"gaps": gaps}
        if overflow := text.count(MASK) - count:
            answer = {"gaps": gaps + [[]] * overflow, "beyond_length": overflow}
        return {**answer, "filled": fill_masks(text, answer["gaps"], self.tokenizer)}


class Score(_MaskedLM):
    """The pseudo-log-likelihood of texts (Salazar et al. 2020).

    It is the sum of the log probability of each token when only that token is masked.
    """

    def preprocess(self, row):
        all_ids = self.tokenizer.encode(row["text"])
        ids = self._cut(all_ids)
        read = []
        for position in range(1, len(ids) - 1):
            masked = [*ids[:position], self.tokenizer.mask_id, *ids[position + 1 :]]
            right = {"masked_lm_ids": np.array([ids[position]])}
            read.append({**self._inputs(masked, [position]), **right})
        return pipelines.Example(row, read, len(all_ids) - len(read))

    def select(self, inputs, outputs):
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
        return answer | ({"beyond_length": example.context} if example.context else {})


class SentenceOrder(PretrainedPipeline):
    """The probability that two texts are in order."""

    fields = dict.fromkeys(["text_a", "text_b"], False)
    outputs = ("sop_logits",)
    parts = ("encoder", "sentence")

    def preprocess(self, row):
        # An exported model also computes the masked LM, at one unused position.
        unused = {"masked_lm_positions": np.zeros(1, np.int32)}
        read = self.join(row["text_a"], row["text_b"])
        return pipelines.Example(row, [{**read, **unused}])

    def postprocess(self, example, outputs):
        chances = pipelines.softmax(outputs[0]["sop_logits"])
        return {"in_order": pipelines.round_floats(chances[0])}


class Embedding(PretrainedPipeline):
    """The vector of a text, from any layer."""

    options = ("layer", "pooling")
    fields = dict.fromkeys(["text"], False)
    parts = ("encoder",)

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        layer = -1 if options.layer is None else options.layer
        count = config.num_hidden_layers * config.inner_group_num
        if not (1 <= layer <= count or -count <= layer <= -1):
            raise InputError(
                f"--layer={layer}: must be 1 to {count}, or -1 for the last"
            )
        self._layer = layer - 1 if layer > 0 else layer
        self._pooling = options.pooling or "mean"
        # Other runtimes only have the last layer.
        self.outputs = ("encoder_outputs",)
        if self._pooling == "pooled":
            self.outputs = ("pooled_output",)
        elif self._layer in (-1, count - 1):
            self.outputs = ("sequence_output",)

    def preprocess(self, row):
        return pipelines.Example(row, [self.join(row["text"])])

    def select(self, inputs, outputs):
        [output] = (outputs[name] for name in self.outputs)
        if self._pooling == "pooled":
            return output
        states = output if output.ndim == 2 else output[self._layer]  # [T, H]
        if self._pooling == "first":
            return states[0]
        return states[: len(inputs["input_ids"])].mean(0)

    def postprocess(self, example, outputs):
        return {"embedding": pipelines.round_floats(outputs[0])}


def target_ids(tokenizer: Tokenizer, targets: Sequence[str]) -> list[int]:
    """Returns the ids of words.

    Raises:
        InputError: a word is not one token.
    """
    ids = [tokenizer.encode(target) for target in targets]
    for target, each in zip(targets, ids, strict=True):
        if len(each) != 1 or each == [tokenizer.unk_id]:
            raise InputError(
                f"target {target!r}: must be one token of the vocabulary, not "
                f"{tokenizer.tokenize(target)}"
            )
    return [id for [id] in ids]


def fill_masks(
    text: str, gaps: Sequence[Sequence[Mapping[str, Any]]], tokenizer: Tokenizer
) -> str:
    """Replaces each [MASK] of a text by the most likely token.

    A token within a word has no space before it.

    Args:
        text: a text with one or more [MASK].
        gaps: tokens for each [MASK]; one without tokens stays.
        tokenizer: the vocabulary.
    """
    marks_words = tokenizer.piece_to_id(WORD_MARK) != tokenizer.unk_id
    result, *others = text.split(MASK)
    for number, after in enumerate(others):
        piece = gaps[number][0]["piece"] if number < len(gaps) and gaps[number] else ""
        if piece.startswith(WORD_MARK):
            piece = piece[len(WORD_MARK) :]
            result += " " if result and not result[-1].isspace() else ""
        elif piece.startswith("##") or (piece and marks_words):
            piece, result = piece.removeprefix("##"), result.rstrip()
        result += (piece or MASK) + after
    return result
