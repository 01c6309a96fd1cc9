"""Pretraining: masked LM and sentence order, or next sentence (paper 3.1)."""

import dataclasses
import itertools
import math
import os
from collections.abc import Mapping
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from albert_tf import batches, flags, graph_masking, heads, records, weights
from albert_tf.batches import Records
from albert_tf.config import PUBLISHED, AlbertConfig
from albert_tf.corpus import files, manifest
from albert_tf.errors import InputError
from albert_tf.models import AlbertPretrainer
from albert_tf.tasks import base


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """What to pretrain, on what.

    Raises:
        InputError: a value is out of range, or is read by nothing.
    """

    albert_config_file: str = flags.field(
        "The model: an albert_config.json, or a published name (albert_base_v2 ...)."
    )
    input_file: tuple[str, ...] = flags.field(
        "Records to train on: TFRecord files or patterns, comma-separated."
    )
    eval_input_file: tuple[str, ...] = flags.field(
        "Records to evaluate on, likewise; with --do_eval alone those of --input_file, "
        "as released.",
        (),
    )
    max_seq_length: int | None = flags.field(
        "Tokens of a record; by default as in the records.", None
    )
    max_predictions_per_seq: int | None = flags.field(
        "Most predictions of a record; by default as in the records, or with "
        "--dynamic_masking by --masked_lm_prob.",
        None,
    )
    objective: Literal["sop", "nsp", "none"] | None = flags.field(
        "The sentence loss: order, next sentence, or none beside the masked LM; by "
        "default what the records were made for.",
        None,
    )
    dynamic_masking: bool = flags.field(
        "Mask anew in every epoch, and redraw the sentence order.", False
    )
    masked_lm_prob: float = flags.field(
        "With --dynamic_masking: share of tokens to predict.", 0.15
    )
    ngram: int = flags.field("With --dynamic_masking: most words in a masked span.", 3)
    output_bias_from_data: bool = flags.field(
        "Start the masked LM's output bias at the log frequencies of the pieces: short "
        "runs learn sooner. Not as released.",
        False,
    )
    parameter_sharing: Literal["all", "attention", "ffn", "none"] | None = flags.field(
        "What layers share (paper, table 4); by default as the model's file says.", None
    )
    recompute: Literal["none", "block"] | None = flags.field(
        "block keeps only each block's input for the backward pass; by default as the "
        "model's file says.",
        None,
    )
    masked_lm_budget: float = flags.field(
        "Read by nothing in the released code: refused unless 0.", 0.0
    )

    def __post_init__(self) -> None:
        if self.masked_lm_budget:
            raise InputError(
                f"--masked_lm_budget={self.masked_lm_budget}: the released code reads "
                f"it nowhere; use --dynamic_masking and --masked_lm_prob"
            )
        if not 0 < self.masked_lm_prob < 1:
            raise InputError(
                f"--masked_lm_prob={self.masked_lm_prob}: expected a number in (0, 1)"
            )
        for name in ("masked_lm_prob", "ngram"):
            default = type(self).__dataclass_fields__[name].default
            if getattr(self, name) != default and not self.dynamic_masking:
                raise InputError(
                    f"--{name}={getattr(self, name)}: expected --dynamic_masking with "
                    f"it; the records are masked already"
                )
        for name in ("max_seq_length", "max_predictions_per_seq", "ngram"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name}={value}: expected at least 1")


_EXAMPLES_TO_COUNT = 50_000


class Pretraining(base.Task):
    """Masked LM, and the order of two segments or whether they belong together.

    The released metrics: `masked_lm_loss`, `masked_lm_accuracy`, `sentence_order_loss`,
    `sentence_order_accuracy`, `loss` (their sum), and `perplexity`, which is e to the
    masked LM loss.

    Args:
        settings: what to pretrain, on what.
        evaluate: whether to evaluate even where no files were named for it.

    Raises:
        InputError: files cannot be read, or do not fit each other, the flags or the
            model.
    """

    key_metric = "masked_lm_accuracy"

    def __init__(self, settings: PretrainingConfig, evaluate: bool = False):
        self.config = _model_config(settings)
        self._data = _Records(settings, "input_file", self.config)
        self.training = self._data.source
        self.evaluation = None
        if settings.eval_input_file:
            held_out = _Records(settings, "eval_input_file", self.config)
            self.evaluation = held_out.source
            if "vocabulary" in self._data.traits and "vocabulary" in held_out.traits:
                _check_alike(
                    {
                        "--eval_input_file": held_out.traits,
                        "--input_file": self._data.traits,
                    }
                )
        elif evaluate:
            self.evaluation = self.training
        self._settings = settings
        self._objective = settings.objective or self._data.traits["objective"]
        self.tokens_per_example = self._data.source.spec["input_ids"].length

    def build_model(self) -> keras.Model:
        """Creates the encoder with the heads of the objective."""
        return AlbertPretrainer(self.config, sentence_head=self._objective != "none")

    def load(self, model: keras.Model, path: str, init_from_group0: bool) -> str:
        """Loads the encoder, and those heads that are in the file."""
        if self._settings.output_bias_from_data:
            raise InputError(
                "--output_bias_from_data and --init_checkpoint: give one of them"
            )
        only = ("encoder", "masked_lm") if model.sentence is None else None
        report = weights.load(
            model,
            path,
            only=only,
            allow_missing=("masked_lm", "sentence")[: 1 if only else 2],
            init_from_group0=init_from_group0,
        )
        absent = sorted({name.split(".")[0] for name in report.missing})
        heads_left = f"; not in the file: {', '.join(absent)}" if absent else ""
        return f"{len(report.loaded)} weights ({report.format}){heads_left}"

    def initialize(self, model: keras.Model) -> str | None:
        """Sets the masked LM's output bias to the log frequencies of the pieces.

        A model that starts at 0 learns them first, and does so by writing one vector
        to every position, in which what the positions hold is lost for long.
        """
        if not self._settings.output_bias_from_data:
            return None
        counts = np.ones(self.config.vocab_size)
        source = self._data.source
        count = min(len(source), _EXAMPLES_TO_COUNT)
        share = batches.Share(min(count, 1000))
        read = source.training(share, seed=0)
        for batch in read.take(count // share.batch_size):
            used = batch["masked_lm_weights"].numpy() > 0
            counts += np.bincount(
                batch["masked_lm_ids"].numpy()[used], minlength=counts.size
            )
        frequencies = np.log(counts)
        model.masked_lm.output_bias.assign(frequencies - frequencies.mean())
        counted = count // share.batch_size * share.batch_size
        return f"the output bias from {counted:,} examples"

    def weights(self, batch: base.Batch) -> dict[str, Any]:
        """Returns the number of predictions and of examples."""
        found = {"masked_lm_loss": ops.sum(_prediction_weights(batch))}
        if self._objective != "none":
            found["sentence_order_loss"] = ops.sum(_example_weights(batch))
        return found

    def sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the summed cross-entropies."""
        predicted = _prediction_weights(batch)
        _, each = heads.masked_lm_loss(
            outputs["mlm_logits"], batch["masked_lm_ids"], predicted
        )
        found = {"masked_lm_loss": ops.sum(each * predicted)}
        if self._objective != "none":
            labels = batch["next_sentence_labels"][:, 0]
            _, each = heads.classification_loss(outputs["sop_logits"], labels)
            found["sentence_order_loss"] = ops.sum(each * _example_weights(batch))
        return found

    def loss(self, sums: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
        """Returns the sum of both losses, that of masked LM divided as released."""
        predictions = weights["masked_lm_loss"] + heads.MASKED_LM_EPSILON
        return super().loss(sums, {**weights, "masked_lm_loss": predictions})

    def metrics(
        self, outputs: base.Outputs, batch: base.Batch
    ) -> dict[str, tuple[Any, Any]]:
        """Returns the accuracies' sums and weights."""
        predicted, rows = _prediction_weights(batch), _example_weights(batch)
        right = _hits(outputs["mlm_logits"], batch["masked_lm_ids"])
        found = {"masked_lm_accuracy": (ops.sum(right * predicted), ops.sum(predicted))}
        if self._objective != "none":
            right = _hits(outputs["sop_logits"], batch["next_sentence_labels"][:, 0])
            found["sentence_order_accuracy"] = (ops.sum(right * rows), ops.sum(rows))
        return found

    def figures(self, means: Mapping[str, float]) -> dict[str, float]:
        """Adds the perplexity."""
        return {**means, "perplexity": math.exp(min(means["masked_lm_loss"], 700.0))}

    @property
    def chance_losses(self) -> dict[str, float]:
        """Guessing evenly among V pieces: ln V."""
        return {"masked_lm_loss": math.log(self.config.vocab_size)}


class _Records:
    """The record files of one flag, checked against the flags and the model."""

    def __init__(self, settings: PretrainingConfig, flag: str, config: AlbertConfig):
        patterns = getattr(settings, flag)
        self._flag = flag
        found = {path for pattern in patterns for path in files.glob(pattern)}
        # A pattern for record files often takes in the description beside them.
        found -= {files.description_of(path) for path in found}
        self._paths = tuple(sorted(found))
        if not self._paths:
            raise InputError(f"--{flag}={','.join(patterns)}: no such file")
        features = records.features_of(self._paths[0])
        self._check_lengths(features, settings, config)
        descriptions = {path: manifest.of(path) for path in self._paths}
        for path, description in descriptions.items():
            if description is not None:
                self._check_description(path, description, settings, config)
        _check_alike(
            {path: _traits(known) for path, known in descriptions.items() if known}
        )
        described = next(filter(None, descriptions.values()), None)
        self.traits = {"objective": "sop"}
        if described:
            self.traits = _traits(described)
        if settings.dynamic_masking:
            masking = graph_masking.for_records(
                self._paths,
                masked_lm_prob=settings.masked_lm_prob,
                max_predictions_per_seq=settings.max_predictions_per_seq,
                ngram=settings.ngram,
            )
            spec = masking.spec
        else:
            spec, masking = _spec(features), None
        self.source = Records(
            files=self._paths,
            sizes=tuple(_size(path, known) for path, known in descriptions.items()),
            spec=spec,
            prepare=masking,
        )
        records.check(self._paths, self.source.spec)
        if not len(self.source):
            raise InputError(
                f"--{flag}={','.join(patterns)}: no records in these files"
            )
        if not described:
            self._check_ids(config)

    def _check_lengths(self, found, settings, config) -> None:
        path = self._paths[0]
        for name in ("input_ids", "input_mask", "segment_ids", "next_sentence_labels"):
            if name not in found:
                raise InputError(
                    f"{path}: no feature {name!r}; the records hold {sorted(found)}"
                )
        length = found["input_ids"].length
        if settings.max_seq_length not in (None, length):
            raise InputError(
                f"--max_seq_length={settings.max_seq_length}: the records of {path} "
                f"have {length} tokens"
            )
        if length > config.max_position_embeddings:
            raise InputError(
                f"{path}: records of {length} tokens, but the model's "
                f"max_position_embeddings is {config.max_position_embeddings}"
            )
        if settings.dynamic_masking:
            return
        if "masked_lm_positions" not in found:
            raise InputError(
                f"{path}: the records have no masks (they were made with "
                f"--masked_lm_prob=0); expected --dynamic_masking"
            )
        slots = found["masked_lm_positions"].length
        if settings.max_predictions_per_seq not in (None, slots):
            raise InputError(
                f"--max_predictions_per_seq={settings.max_predictions_per_seq}: the "
                f"records of {path} have {slots}"
            )

    def _check_ids(self, config) -> None:
        """Looks for pieces that the model does not have, in some of the records."""
        share = batches.Share(min(len(self.source), 1000))
        for batch in self.source.evaluation(share, max_batches=1):
            highest = int(ops.max(batch["input_ids"]))
            if highest >= config.vocab_size:
                raise InputError(
                    f"{self._paths[0]}: the records hold piece {highest}, but the "
                    f"model's vocab_size is {config.vocab_size}"
                )

    def _check_description(self, path, description, settings, config) -> None:
        size = description["vocabulary"]["size"]
        if size > config.vocab_size:
            raise InputError(
                f"{path}: made with a vocabulary of {size} pieces, but the model's "
                f"vocab_size is {config.vocab_size}"
            )
        made_for = _traits(description)["objective"]
        if settings.objective not in (None, "none", made_for):
            raise InputError(
                f"--objective={settings.objective}: {path} was made for {made_for}"
            )


def _check_alike(traits: Mapping[str, Mapping[str, str]]) -> None:
    """Refuses files that were made for other objectives or with other vocabularies."""
    for (first, wanted), (path, found) in itertools.pairwise(traits.items()):
        for name, value in found.items():
            if value != wanted[name]:
                raise InputError(
                    f"{path}: made with {name} {value}, but {first} with {wanted[name]}"
                )


def _traits(description: Mapping[str, Any]) -> dict[str, str]:
    """Returns what must be alike in all record files of a run."""
    made_with = description["settings"]
    is_nsp = made_with["random_next_sentence"]
    return {
        "objective": "nsp" if is_nsp else made_with["objective"],
        "vocabulary": description["vocabulary"]["fingerprint"],
    }


def _size(path: str, description: Mapping[str, Any] | None) -> int:
    """Returns the number of records: the described one, if it is this file's."""
    if description is not None:
        described = description["files"][os.path.basename(path)]
        if described["bytes"] == os.path.getsize(path):
            return described["records"]
    return records.count(path)


def _spec(found: records.Spec) -> records.Spec:
    names = (
        *("input_ids", "input_mask", "segment_ids", "next_sentence_labels"),
        *("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"),
    )
    return {name: found[name] for name in names}


def _model_config(settings: PretrainingConfig) -> AlbertConfig:
    name = settings.albert_config_file
    if name in PUBLISHED and not os.path.exists(name):
        config = AlbertConfig.named(name)
    else:
        config = AlbertConfig.from_json_file(name)
    changes = {
        key: getattr(settings, key)
        for key in ("parameter_sharing", "recompute")
        if getattr(settings, key) is not None
    }
    return dataclasses.replace(config, **changes)


def _example_weights(batch):
    """Returns 1 for true examples and 0 for those that fill up a batch, float32 [B]."""
    if "example_weight" in batch:
        return batch["example_weight"]
    return ops.ones(ops.shape(batch["input_ids"])[:1], "float32")


def _prediction_weights(batch):
    return batch["masked_lm_weights"] * _example_weights(batch)[:, None]


def _hits(logits, labels):
    found = ops.cast(ops.argmax(logits, axis=-1), labels.dtype)
    return ops.cast(ops.equal(found, labels), "float32")
