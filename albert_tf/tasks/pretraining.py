"""Pretraining: masked LM, and sentence order or next sentence (paper 3.1)."""

import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf import weights
from albert_tf.corpus import dynamic_masking, files, manifest
from albert_tf.data import batches, records
from albert_tf.data.batches import Records
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.model.config import AlbertConfig
from albert_tf.model.models import AlbertPretrainer
from albert_tf.tasks import base
from albert_tf.tasks.settings.pretraining import PretrainingSettings
from albert_tf.text import tokenization
from albert_tf.weights import metadata

# Maximum number of examples from which the output bias is computed.
_EXAMPLES_TO_COUNT = 50_000
# The features that describe the masked positions; --dynamic_masking replaces them.
_MASK_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_OTHER_FEATURES = ("input_ids", "input_mask", "segment_ids", "next_sentence_labels")
# All features that pretraining reads.
_FEATURES = (*_OTHER_FEATURES, *_MASK_FEATURES)


class Pretraining(base.Task):
    """Masked LM, and sentence order or next sentence prediction.

    The released metrics are `masked_lm_loss`, `masked_lm_accuracy`,
    `sentence_order_loss`, `sentence_order_accuracy` and `loss`, the sum of both losses.
    Next sentence prediction uses the same names. A further metric is `perplexity`, the
    exponential of the masked LM loss.

    Args:
        settings: the settings of the model, the data and the objective.
        evaluate: whether to evaluate on the training files if there are no evaluation
            files.

    Raises:
        InputError: files cannot be read, or do not fit each other, the flags or the
            model.
    """

    main_metrics = ("masked_lm_accuracy",)
    task_type = "pretraining"

    def __init__(self, settings: PretrainingSettings, evaluate: bool = False):
        self.config = _read_config(settings)
        self._data = _Records(settings, "input_file", self.config)
        self.training = self._data.source
        self.vocabulary = self._data.fingerprint
        self.evaluation = None
        if settings.eval_input_file:
            held_out = _Records(settings, "eval_input_file", self.config)
            self.evaluation = held_out.source
            # Files without a description (see `_Records`) are not compared.
            if held_out.fingerprint and self.vocabulary:
                traits = {"--eval_input_file": held_out.traits}
                _check_alike({**traits, "--input_file": self._data.traits})
        elif evaluate:
            self.evaluation = self.training
        self._settings = settings
        self._objective = settings.objective or self._data.traits["objective"]
        self.tokens_per_example = self._data.source.spec["input_ids"].length

    def check_folder(self, folder: Path) -> None:
        """Checks that a folder's model was trained with the records' vocabulary."""
        expected, actual = metadata.find_fingerprint(folder), self._data.fingerprint
        if expected and actual and expected != actual:
            raise InputError(
                f"{self._data.source.files[0]}: made with another vocabulary "
                f"({actual[:12]}) than {folder} was trained with ({expected[:12]}); "
                f"use records of that vocabulary, or another folder"
            )

    def save_assets(self, folder: Path) -> None:
        """Writes the vocabulary of the records, and its fingerprint and settings."""
        self._data.write_vocabulary(folder)

    def build_model(self) -> keras.Model:
        """Creates the encoder with the heads of the objective."""
        return AlbertPretrainer(self.config, sentence_head=self._objective != "none")

    def load(self, model, path, *, init_from_group0=False, strict=False):
        """Loads the encoder, and the heads that the file has."""
        if self._settings.output_bias_from_data:
            raise InputError(
                "--output_bias_from_data and --init_checkpoint: give one of them"
            )
        report = weights.load(
            model,
            path,
            only=("encoder", "masked_lm") if model.sentence is None else None,
            allow_missing=() if strict else ("masked_lm", "sentence"),
            init_from_group0=init_from_group0,
        )
        missing_heads = sorted({name.split(".")[0] for name in report.missing})
        note = f"; not in the file: {', '.join(missing_heads)}" if missing_heads else ""
        return f"{len(report.loaded)} weights ({report.format}){note}"

    def initialize(self, model: keras.Model) -> str | None:
        """With --output_bias_from_data, sets the output bias to log token frequencies.

        If the bias starts at 0, a model first learns these frequencies. Meanwhile, and
        possibly long after, all positions have the same hidden state.
        """
        if not self._settings.output_bias_from_data:
            return None
        source = self._data.source
        max_examples = min(len(source), _EXAMPLES_TO_COUNT)
        shard = batches.InputShard(batch_size=min(max_examples, 1000))
        dataset = source.training(shard, seed=0).take(max_examples // shard.batch_size)
        # Each count starts at 1, because the logarithm of 0 is not finite.
        counts, num_examples = np.ones(self.config.vocab_size), 0
        with batches.translate_errors(source, lambda: ", ".join(source.files)):
            for batch in dataset:
                is_label = batch["masked_lm_weights"].numpy() > 0
                labels = batch["masked_lm_ids"].numpy()[is_label]
                counts += np.bincount(labels, minlength=counts.size)
                num_examples += len(is_label)
        log_counts = np.log(counts)
        model.masked_lm.output_bias.assign(log_counts - log_counts.mean())
        return f"the output bias from {num_examples:,} examples"

    def run_model(self, model, batch: base.Batch, training: bool) -> base.Outputs:
        """Computes the logits: masked LM logits only at the masked positions."""
        return model.logits(batch, training=training)

    def loss_weights(self, batch: base.Batch) -> dict[str, Any]:
        """Returns the number of masked tokens and the number of examples."""
        counts = {"masked_lm_loss": ops.sum(_weigh_tokens(batch))}
        if self._objective != "none":
            counts["sentence_order_loss"] = ops.sum(base.example_weights(batch))
        return counts

    def loss_sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the sum of the cross-entropies of each objective."""
        token_weights = _weigh_tokens(batch)
        losses = heads.masked_lm_loss(outputs["mlm_logits"], batch["masked_lm_ids"])
        sums = {"masked_lm_loss": ops.sum(losses * token_weights)}
        if self._objective != "none":
            labels = batch["next_sentence_labels"][:, 0]
            losses = heads.classification_loss(outputs["sop_logits"], labels)
            sums["sentence_order_loss"] = ops.sum(losses * base.example_weights(batch))
        return sums

    def compute_loss(self, sums: Mapping[str, Any], totals: Mapping[str, Any]) -> Any:
        """Returns the contribution of a part of a batch to the loss of the batch.

        **As released:** an epsilon is added to the number of masked tokens.
        """
        num_masked = totals["masked_lm_loss"] + heads.MASKED_LM_EPSILON
        return super().compute_loss(sums, {**totals, "masked_lm_loss": num_masked})

    def batch_metrics(self, outputs, batch):
        """Returns the number of hits and the number of labels of each accuracy."""
        token_weights = _weigh_tokens(batch)
        hits = _find_hits(outputs["mlm_logits"], batch["masked_lm_ids"]) * token_weights
        sums = {"masked_lm_accuracy": (ops.sum(hits), ops.sum(token_weights))}
        if self._objective != "none":
            row_weights = base.example_weights(batch)
            labels = batch["next_sentence_labels"][:, 0]
            hits = _find_hits(outputs["sop_logits"], labels) * row_weights
            sums["sentence_order_accuracy"] = (ops.sum(hits), ops.sum(row_weights))
        return sums

    def finalize_metrics(self, means: Mapping[str, float]) -> dict[str, float]:
        """Adds the perplexity, at most exp(700), because exp(710) overflows."""
        return {**means, "perplexity": math.exp(min(means["masked_lm_loss"], 700.0))}


class _Records:
    """The record files of one flag, after checks against the flags and the model.

    Files that this package made have a description: a JSON file with the settings, the
    vocabulary and the numbers of records. Files of the released code have none.

    Args:
        settings: the settings of pretraining.
        flag: the name of the flag, "input_file" or "eval_input_file".
        config: the model's config.

    Attributes:
        source: the reader of the files.
        traits: the objective and, if a file has a description, the fingerprint of the
            vocabulary. All files with a description have the same traits.
        fingerprint: the fingerprint of the vocabulary; None if no file has a
            description.
    """

    def __init__(self, settings, flag: str, config: AlbertConfig) -> None:
        patterns = getattr(settings, flag)
        paths = {path for pattern in patterns for path in files.glob(pattern)}
        # A pattern for record files often also matches their description files.
        record_paths = sorted(paths - {files.description_path(path) for path in paths})
        if not record_paths:
            raise InputError(f"--{flag}={','.join(patterns)}: no such file")
        first_spec: records.Spec = records.features_of(record_paths[0])
        _check_features(record_paths[0], first_spec, settings, config)
        # `manifest.read` returns None for a file without a description.
        descriptions = {path: manifest.read(path) for path in record_paths}
        self._descriptions = {path: each for path, each in descriptions.items() if each}
        described = self._descriptions.items()
        # A vocabulary that is too small makes one warning, and not one for each file.
        sizes = {each["vocabulary"]["size"]: path for path, each in described}
        for vocab_size, path in sizes.items():
            config.check_vocabulary(f"{path}: the vocabulary", vocab_size)
        traits = {path: _get_traits(each) for path, each in described}
        for path, each in traits.items():
            objective = each["objective"]
            if settings.objective not in (None, "none", objective):
                raise InputError(
                    f"--objective={settings.objective}: {path} was made for {objective}"
                )
        _check_alike(traits)
        # Files of the released code have no description; their objective is sop.
        self.traits = next(iter(traits.values()), {"objective": "sop"})
        self.fingerprint = self.traits.get("vocabulary")
        spec = {name: first_spec[name] for name in _FEATURES if name in first_spec}
        prepare = None
        if settings.dynamic_masking:
            prepare = dynamic_masking.for_records(record_paths, settings)
            spec = dict(prepare.spec)
        counts = {path: _find_count(path, each) for path, each in descriptions.items()}
        self.source = Records(
            files=tuple(record_paths),
            sizes=tuple(n or records.count(path) for path, n in counts.items()),
            spec=spec,
            prepare=prepare,
            # To check the values slows reading. They are not checked if every file has
            # a description and its size has not changed.
            limits=_list_limits(spec, config) if None in counts.values() else {},
        )
        records.check(self.source.files, spec)
        if not len(self.source):
            raise InputError(f"--{flag}={','.join(patterns)}: no records in the files")

    def write_vocabulary(self, folder: Path) -> None:
        """Writes the fingerprint and settings of the vocabulary to a folder.

        The vocabulary file is copied, too, if it still has this fingerprint.
        """
        if not self._descriptions:
            return
        path, description = next(iter(self._descriptions.items()))
        settings, name = description["settings"], description.get("vocabulary_file")
        # The generator copied the vocabulary to the folder of the records. The original
        # may be gone.
        vocabulary = Path(path).parent / Path(str(name)).name
        cleaning = {
            "do_lower_case": settings.get("do_lower_case", True),
            "keep_accents": settings.get("keep_accents", False),
        }
        tokenizer = None
        flag = "vocab_file" if vocabulary.suffix == ".txt" else "spm_model_file"
        # The vocabulary file may be missing, or its name may be invalid on this system
        # (ValueError). Then only its name, the fingerprint and the settings are
        # written.
        with contextlib.suppress(InputError, ValueError):
            tokenizer = tokenization.load(**{flag: str(vocabulary), **cleaning})
        if tokenizer and tokenizer.fingerprint != self.fingerprint:
            tokenizer = None
        identity = {**cleaning, "fingerprint": self.fingerprint}
        if name:
            identity = {"vocabulary": vocabulary.name, **identity}
        metadata.write(folder, tokenizer, identity)


def _check_features(
    path: str, spec: records.Spec, settings: PretrainingSettings, config: AlbertConfig
) -> None:
    """Checks that records have the required features, in lengths that fit.

    Args:
        path: the file of the records, for messages.
        spec: the features of the records.
        settings: the flags, which may give lengths.
        config: the model's config.
    """
    for name in _OTHER_FEATURES if settings.dynamic_masking else _FEATURES:
        if name not in spec:
            is_mask = name in _MASK_FEATURES
            hint = "; records without masks need --dynamic_masking" if is_mask else ""
            raise InputError(
                f"{path}: no feature {name!r}; the records have {sorted(spec)}{hint}"
            )
    features_by_flag = {"max_seq_length": "input_ids"}
    if not settings.dynamic_masking:
        features_by_flag["max_predictions_per_seq"] = "masked_lm_positions"
    for flag, name in features_by_flag.items():
        value, length = getattr(settings, flag), spec[name].length
        if value not in (None, length):
            raise InputError(f"--{flag}={value}: the records of {path} have {length}")
    length, longest = spec["input_ids"].length, config.max_position_embeddings
    if length > longest:
        raise InputError(
            f"{path}: records of {length} tokens, but the model's "
            f"max_position_embeddings is {longest}"
        )


def _check_alike(traits: Mapping[str, Mapping[str, str]]) -> None:
    """Checks that files have the same objective and vocabulary.

    Args:
        traits: the result of `_get_traits` for each file, by the path or flag for the
            message.
    """
    for (previous, expected), (path, actual) in itertools.pairwise(traits.items()):
        for name, value in actual.items():
            if value != expected[name]:
                raise InputError(
                    f"{path}: made with {name} {value}, but {previous} with "
                    f"{expected[name]}"
                )


def _get_traits(description: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values of a description that all record files must agree in."""
    return {
        "objective": description["settings"]["objective"],
        "vocabulary": description["vocabulary"]["fingerprint"],
    }


def _find_count(path: str, description: Mapping[str, Any] | None) -> int | None:
    """Returns the number of records in a file, from its description.

    The result is None if there is no description, or if the file no longer has the
    number of bytes in the description.
    """
    if description is None:
        return None
    entry = description["files"][os.path.basename(path)]
    return entry["records"] if entry["bytes"] == os.path.getsize(path) else None


def _list_limits(spec: records.Spec, config: AlbertConfig) -> dict[str, int]:
    """Returns the exclusive upper limits of the features' values for a model."""
    limits = {
        "input_ids": config.vocab_size,
        "masked_lm_ids": config.vocab_size,
        "segment_ids": config.type_vocab_size,
        "masked_lm_positions": spec["input_ids"].length,
        "next_sentence_labels": 2,
    }
    return {name: limit for name, limit in limits.items() if name in spec}


def _read_config(settings: PretrainingSettings) -> AlbertConfig:
    """Returns the model's config, with the values of the flags that change it."""
    config = AlbertConfig.find(settings.albert_config_file)
    names = ("parameter_sharing", "recompute")
    flags = {name: getattr(settings, name) for name in names if getattr(settings, name)}
    return dataclasses.replace(config, **flags)


def _weigh_tokens(batch):
    """Returns the weight of each prediction: 1 for masked tokens, 0 for padding.

    The result is float32 [B, P] for a batch of B records with P predictions each.
    """
    return batch["masked_lm_weights"] * base.example_weights(batch)[:, None]


def _find_hits(logits, labels):
    """Returns 1 if the label has the highest logit, otherwise 0; float32 [...]."""
    # `ops.argmax` has the same result, but takes three times as long on a CPU: it
    # checks for negative zeros.
    _, predictions = ops.top_k(logits, 1)
    return ops.cast(ops.equal(predictions[..., 0], labels), "float32")
