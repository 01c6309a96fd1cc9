"""Masks records anew in each epoch of training, by the rules of `masking`.

Each epoch reads the same records, but gives each record other masks. For the objective
"sop" without `released_behaviour`, the order of the record's two texts, A and B, is
also drawn again. The feature `token_boundary` marks the first tokens of words, so
masking needs no tokenizer.

Masking runs in Python inside `tf.data`, on the host that reads the records (for a TPU,
the coordinator). A saved graph, or a graph of `tf.data.service`, cannot contain this
Python function.

Letters of shapes: B rows, T tokens per row, P slots for predictions per row.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import errors, flags
from albert_tf.corpus import manifest, masking, shards
from albert_tf.corpus.config import CorpusSettings, MaskingSettings
from albert_tf.corpus.files import description_path
from albert_tf.data import records
from albert_tf.errors import InputError

Batch = dict[str, tf.Tensor]

# Attributes of `CorpusSettings` that must be equal in all record files of a run.
_COMMON: tuple[str, ...] = ("max_seq_length", "max_predictions", "released_behaviour")
_COMMON += ("favor_shorter_ngram", "do_whole_word_mask", "do_permutation")


@dataclasses.dataclass(frozen=True, eq=False)
class DynamicMasking:
    """Masks batches of parsed records by the generator's rules.

    Use `for_records` to build an instance.

    Attributes:
        rules: the rules of masking.
        redraw_order: whether to draw the order of A and B again.
        spec: the features to read from the records.
    """

    rules: masking.Rules
    redraw_order: bool
    spec: records.Spec

    def __call__(self, batch: Batch, seed: int, positions: tf.Tensor) -> Batch:
        """Masks a batch of tensors in a `tf.data` pipeline.

        Masking is fastest with some hundred rows in a batch.

        Args:
            batch: a batch that `records.parser(self.spec)` has parsed. Its records may
                have masks already, which are replaced. The number of slots in these
                records may differ from P, the `prediction_slots` of `rules.config`.
            seed: the run's seed.
            positions: int64 [B], the position of each row in the run: the number of
                rows before it. A row's masks depend only on `seed` and on its position.

        Returns:
            The batch with new `input_ids`, `masked_lm_positions` (int32 [B, P], in
            rising order), `masked_lm_ids` (int32 [B, P]) and `masked_lm_weights`
            (float32 [B, P]), which are zero in unused slots. If the order is drawn
            again, `segment_ids`, `token_boundary` and `next_sentence_labels` are those
            of the new order.
        """
        P = self.rules.config.prediction_slots
        specs = {name: (value.dtype, value.shape) for name, value in batch.items()}
        for name, dtype in masking.FEATURES.items():
            specs[name] = tf.as_dtype(dtype), [batch["input_ids"].shape[0], P]

        def mask_arrays(positions: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
            masked = self.mask(dict(zip(batch, values, strict=True)), seed, positions)
            return [masked[name] for name in specs]

        dtypes = [dtype for dtype, _ in specs.values()]
        masked = tf.numpy_function(mask_arrays, [positions, *batch.values()], dtypes)
        for value, (_, shape) in zip(masked, specs.values(), strict=True):
            value.set_shape(shape)
        return dict(zip(specs, masked, strict=True))

    def mask(
        self, batch: Mapping[str, np.ndarray], seed: int, positions: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Masks a batch of NumPy arrays.

        Args:
            batch: the features, as for `__call__`.
            seed: the run's seed.
            positions: int64 [B], the position of each row in the run. `seed` and the
                position decide the seed of the row.

        Returns:
            The features, as from `__call__`.
        """
        # Several draws from one seed need different values of `use`. This is the only
        # draw from the run's seed, so any value will do.
        seeds = masking.draw(np.array(seed).astype(np.uint64), use=0, index=positions)
        batch = {**batch, "input_ids": _restore_original_ids(batch)}
        if self.redraw_order:
            _redraw_order(batch, seeds)
        masking.mask(batch, self.rules, seeds, Counter())
        return batch


def for_records(
    files: Sequence[str], settings: MaskingSettings | None = None
) -> DynamicMasking:
    """Builds the masking of record files from their descriptions.

    Settings of masking that are not fields of `MaskingSettings`, such as whole words or
    permutation, come from the descriptions. The order of A and B is drawn again only
    for the objective "sop", and only if B never comes from another document.

    Args:
        files: record files of `create_pretraining_data.py`, with or without masks. All
            must have the same vocabulary and objective, which is not checked here.
        settings: settings of masking, which replace the settings in the descriptions.
            Default: the default values of the flags.

    Raises:
        InputError: a file has no description, a description is from another version,
            two files differ in their settings, or a setting is out of range.
    """
    settings = settings or MaskingSettings()
    if settings.masked_lm_prob == 0:
        raise InputError("--masked_lm_prob=0.0: expected a number in (0, 1)")
    descriptions = {path: _read_settings(path) for path in files}
    config, vocabulary = descriptions[files[0]]
    for path, (other, _) in descriptions.items():
        for name in _COMMON:
            value, expected = getattr(other, name), getattr(config, name)
            if value != expected:
                raise InputError(
                    f"{path}: made with {name}={value}, but {files[0]} with "
                    f"{expected}; --dynamic_masking has one set of rules"
                )
    fields = {f.name: getattr(settings, f.name) for f in flags.fields(MaskingSettings)}
    rules = masking.Rules(dataclasses.replace(config, **fields), vocabulary)
    is_sop = config.sentence_objective == "sop"
    redraw_order = is_sop and not config.samples_other_documents
    return DynamicMasking(rules, redraw_order, shards.make_spec(config))


def _read_settings(path: str) -> tuple[CorpusSettings, dict[str, Any]]:
    """Reads the settings and the vocabulary of a record file."""
    json_path = description_path(path)
    description = manifest.read(path)
    if description is None:
        raise InputError(
            f"{path}: no description in {json_path}; --dynamic_masking needs the "
            f"description that create_pretraining_data.py writes"
        )
    expected = "settings of this version; make the records again"
    with errors.wrap_read(json_path, expected):
        config = CorpusSettings.from_dict(description["settings"])
    return config, description["vocabulary"]


def _restore_original_ids(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the `input_ids` before the generator masked them, int32 [B, T]."""
    ids = batch["input_ids"]
    if "masked_lm_ids" not in batch:
        return ids
    ids = ids.copy()
    rows, indices = np.nonzero(batch["masked_lm_weights"] > 0)
    columns = batch["masked_lm_positions"][rows, indices]
    ids[rows, columns] = batch["masked_lm_ids"][rows, indices]
    return ids


def _redraw_order(batch: dict[str, np.ndarray], seeds: np.ndarray) -> None:
    """Draws the order of A and B again, and changes the features of `batch`.

    To swap A and B, the tokens after [CLS] are rotated: A [SEP] B [SEP] becomes
    B [SEP] A [SEP].

    Args:
        batch: the features of the records; the ids have no masks.
        seeds: uint64 [B], the seed of each row.
    """
    # The new label is the highest bit of a random number: 0 or 1 with equal
    # probability.
    new_labels = masking.draw(seeds, masking.ORDER, index=0)[:, None] >> np.uint64(63)
    swap = new_labels != batch["next_sentence_labels"]
    sep_a, sep_b = (position[:, None] for position in masking.sep_positions(batch))
    column = np.arange(batch["input_ids"].shape[1])
    # Columns 1 to sep_b are A [SEP] B [SEP]; the first sep_a of them are A [SEP].
    # `source` is the column from which each column is copied.
    rotated = 1 + (column - 1 + swap * sep_a) % sep_b
    source = np.where((column > 0) & (column <= sep_b), rotated, column)
    sep_a = np.where(swap, sep_b - sep_a, sep_a)
    for name in ("input_ids", "token_boundary"):
        batch[name] = np.take_along_axis(batch[name], source, 1)
    batch["segment_ids"] = ((column > sep_a) & (column <= sep_b)).astype(np.int32)
    batch["next_sentence_labels"] = new_labels.astype(np.int32)
