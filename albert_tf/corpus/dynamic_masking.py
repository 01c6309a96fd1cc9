"""Masks records afresh while training, by the rules of `masking`.

Each epoch then has other masks and another order of the halves, from records that hold
every instance once. Words are read from `token_boundary`, so no tokenizer is needed.

It runs in Python inside `tf.data`, on the host that reads the records: on a machine
with accelerators, or on the coordinator's of a TPU. It cannot be part of a graph that
is saved, nor of a pipeline that `tf.data.service` sends elsewhere.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import errors, flags
from albert_tf.corpus import manifest, masking, units
from albert_tf.corpus.config import CorpusSettings, MaskingSettings
from albert_tf.data import json_values, records
from albert_tf.errors import InputError

Batch = dict[str, tf.Tensor]

# Settings that must be alike in record files that are masked together.
_COMMON = (
    *("max_seq_length", "max_predictions", "sentence_objective"),
    *("released_behaviour", "favor_shorter_ngram"),
    *("do_whole_word_mask", "do_permutation"),
)


@dataclasses.dataclass(frozen=True, eq=False)
class DynamicMasking:
    """Masks batches of parsed records by the generator's rules.

    Attributes:
        rules: how to mask.
        redraw_order: whether A and B change places or not by a new fair coin.
        spec: the features to read from the records.
    """

    rules: masking.Rules
    redraw_order: bool
    spec: records.Spec

    def __call__(self, batch: Batch, seed: int, places: tf.Tensor) -> Batch:
        """Masks a batch inside `tf.data`; fastest with some hundred rows at once.

        Args:
            batch: what `records.parser(spec)` returns, see `units.spec`. Records
                that are masked already may have another number of slots than P.
            seed: of the run.
            places: int64 [B], the place of each row in the run. A row's masks depend
                on `seed` and on it alone.

        Returns:
            The batch with other `input_ids`; int32 [B, P] `masked_lm_positions` (in
            rising order) and `masked_lm_ids`, float32 [B, P] `masked_lm_weights`,
            zeros in unused slots; where the order is redrawn, with `segment_ids`,
            `token_boundary` and `next_sentence_labels` that agree with it.

        Raises:
            ValueError: a feature of the spec is missing.
        """
        if missing := sorted(self.spec.keys() - batch.keys()):
            raise ValueError(f"features {missing} of the records are missing")
        static = {name: (value.dtype, value.shape) for name, value in batch.items()}
        slots = batch["input_ids"].shape[:1].concatenate(self.rules.slots)
        static["masked_lm_positions"] = static["masked_lm_ids"] = (tf.int32, slots)
        static["masked_lm_weights"] = (tf.float32, slots)

        def mask(places: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
            masked = self.mask(dict(zip(batch, values, strict=True)), seed, places)
            return [masked[name] for name in static]

        dtypes = [dtype for dtype, _ in static.values()]
        masked = tf.numpy_function(mask, [places, *batch.values()], dtypes)
        for value, (_, shape) in zip(masked, static.values(), strict=True):
            value.set_shape(shape)
        return dict(zip(static, masked, strict=True))

    def mask(
        self, batch: Mapping[str, np.ndarray], seed: int, places: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Does what `__call__` does, with arrays."""
        seeds = masking.draw(np.array(seed).astype(np.uint64), 0, places)
        batch = {**batch, "input_ids": unmasked(batch)}
        if self.redraw_order:
            batch = _reordered(batch, seeds)
        masking.add_masks(batch, self.rules, seeds, Counter())
        return batch


def for_records(
    files: Sequence[str], settings: MaskingSettings | None = None
) -> DynamicMasking:
    """Makes the masking of record files, by the descriptions beside them.

    What is not in `settings` is as it was for the generator: words or tokens, favoured
    lengths, permutation, released behaviour. The order of the halves is redrawn where
    label 1 always means that they are swapped: for SOP without released behaviour.

    Args:
        files: record files of `create_pretraining_data.py`, masked already or not.
        settings: which tokens to predict; by default as the flags' defaults.

    Raises:
        InputError: a file has no description or one of another version, two files
            differ in vocabulary or settings, or a setting is out of range.
    """
    settings = settings or MaskingSettings()
    if settings.masked_lm_prob == 0:
        raise InputError("--masked_lm_prob=0.0: expected a number in (0, 1)")
    config, vocabulary = _description(files[0])
    traits = _traits(config, vocabulary)
    for path in files[1:]:
        for name, value in _traits(*_description(path)).items():
            if value != traits[name]:
                raise InputError(
                    f"{path}: made with {name}={value}, but {files[0]} with "
                    f"{traits[name]}; --dynamic_masking has one set of rules"
                )
    names = [item.name for item in flags.fields(MaskingSettings)]
    changed = dataclasses.replace(
        config, **{name: getattr(settings, name) for name in names}
    )
    rules = units.masking_rules(
        changed, vocabulary["size"], vocabulary["special_ids"], vocabulary["mask_id"]
    )
    is_sop = config.sentence_objective == "sop"
    redraw_order = is_sop and not config.takes_other_documents
    return DynamicMasking(rules, redraw_order, units.spec(config))


def _traits(config: CorpusSettings, vocabulary: Mapping[str, Any]) -> dict[str, Any]:
    """Lists what must be alike in record files that are masked together."""
    settings = {name: getattr(config, name) for name in _COMMON}
    return {"vocabulary": vocabulary["fingerprint"], **settings}


def _description(path: str) -> tuple[CorpusSettings, dict[str, Any]]:
    """Reads the settings and the vocabulary of a record file."""
    description = manifest.of(path)
    if description is None:
        raise InputError(
            f"{path}: no description of it in {manifest.path_for(path)}; "
            f"--dynamic_masking needs the one that create_pretraining_data.py writes"
        )
    try:
        config = CorpusSettings.from_dict(description["settings"])
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{manifest.path_for(path)}: from another version of "
            f"create_pretraining_data.py; make the records again"
        ) from error
    _check_ids(manifest.path_for(path), description["vocabulary"])
    return config, description["vocabulary"]


def _check_ids(path: str, vocabulary: Mapping[str, Any]) -> None:
    """Refuses special tokens that the vocabulary does not have."""
    ids = [*json_values.get(vocabulary, "special_ids", list, path)]
    ids.append(json_values.get(vocabulary, "mask_id", int, path))
    for id in ids:
        if type(id) is not int or not 0 <= id < vocabulary["size"]:
            raise InputError(
                f"{path}: special token {errors.quote(id)}; expected at least 0 and "
                f"less than {vocabulary['size']}"
            )


def unmasked(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Puts the original ids back where the records are masked already: int32 [B, T]."""
    ids = batch["input_ids"]
    if "masked_lm_ids" not in batch:
        return ids
    ids = ids.copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"] > 0)
    columns = batch["masked_lm_positions"][rows, slots]
    ids[rows, columns] = batch["masked_lm_ids"][rows, slots]
    return ids


def _reordered(
    batch: Mapping[str, np.ndarray], seeds: np.ndarray
) -> dict[str, np.ndarray]:
    """Swaps A and B, or not, whatever their order was.

    Each [SEP] stays with the half before it: A [SEP] B [SEP] is rotated.
    """
    old = batch["next_sentence_labels"]
    new = masking.draw(seeds, masking.HALVES, 0)[:, None] >> np.uint64(63)
    new = new.astype(np.int32)
    swaps = new != old
    first, last = (column[:, None] for column in masking.separators(batch))
    column = np.arange(batch["input_ids"].shape[1])
    rotated = 1 + (column - 1 + swaps * first) % last
    source = np.where((column > 0) & (column <= last), rotated, column)
    first = np.where(swaps, last - first, first)
    return {
        **batch,
        "input_ids": np.take_along_axis(batch["input_ids"], source, 1),
        "token_boundary": np.take_along_axis(batch["token_boundary"], source, 1),
        "segment_ids": ((column > first) & (column <= last)).astype(np.int32),
        "next_sentence_labels": new,
    }
