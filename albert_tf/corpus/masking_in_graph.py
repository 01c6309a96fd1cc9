"""The masking of `corpus.masking` as TensorFlow operations, for masking while training.

Each epoch then sees other masks and another order of the halves, from records that hold
every instance once. Words are read from `token_boundary`, so no tokenizer is needed.

Letters: B rows, T tokens a row, P slots for predictions, as in `corpus.masking`; M
tokens that may be masked, K words, W words of the row that has most, N predictions,
all of the whole batch; n words in the longest span.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.corpus import examples, manifest, masking
from albert_tf.corpus.config import CorpusSettings
from albert_tf.data import records
from albert_tf.errors import InputError

Batch = dict[str, tf.Tensor]

# Settings that must be alike in record files that are masked together.
_COMMON = (
    *("max_seq_length", "max_predictions", "sentence_objective"),
    *("released_behaviour", "favor_shorter_ngram"),
    *("do_whole_word_mask", "do_permutation"),
)


# TensorFlow wants what it traces to be hashable, and the rules hold an array.
@dataclasses.dataclass(frozen=True, eq=False)
class GraphMasking:
    """Masks batches of parsed records by the generator's rules.

    Attributes:
        rules: how to mask.
        redraw_order: whether A and B change places or not by a new fair coin.
        spec: the features to read from the records.
    """

    rules: masking.Rules
    redraw_order: bool
    spec: records.Spec

    @tf.autograph.experimental.do_not_convert
    def __call__(self, batch: Batch, seed: tf.Tensor) -> Batch:
        """Masks a batch afresh; fastest with some hundred rows at once.

        Args:
            batch: what `records.parser(spec)` returns, see `examples.spec`. Records
                that are masked already may have another number of slots than P.
            seed: int32 or int64 [2]; equal seeds give equal batches.

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
        order_seed, mask_seed = tf.unstack(tf.random.split(tf.cast(seed, tf.int64)))
        batch = {**batch, "input_ids": _unmasked(batch)}
        if self.redraw_order:
            batch = _reordered(batch, order_seed)
        return {**batch, **_masked(batch, self.rules, mask_seed)}


def for_records(
    files: Sequence[str],
    *,
    masked_lm_prob: float = 0.15,
    max_predictions_per_seq: int | None = None,
    ngram: int = 3,
) -> GraphMasking:
    """Makes the masking of record files, by the descriptions beside them.

    What is not an argument is as the generator was told: words or pieces, favoured
    lengths, permutation, released behaviour. The order of the halves is redrawn where
    label 1 always means that they are swapped: for SOP without released behaviour.

    Args:
        files: record files of `create_pretraining_data.py`, masked already or not.
        masked_lm_prob: share of a row's tokens to predict.
        max_predictions_per_seq: most tokens to predict in a row; the default is that of
            the generator.
        ngram: most words in a span.

    Raises:
        InputError: a file has no description or one of another version, two files
            differ in vocabulary or settings, or an argument is out of range.
    """
    if masked_lm_prob == 0:
        raise InputError("--masked_lm_prob=0.0: expected a number in (0, 1)")
    config, vocabulary = _described(files[0])
    traits = _traits(config, vocabulary)
    for path in files[1:]:
        for name, value in _traits(*_described(path)).items():
            if value != traits[name]:
                raise InputError(
                    f"{path}: made with {name}={value}, but {files[0]} with "
                    f"{traits[name]}; --dynamic_masking has one set of rules"
                )
    changed = dataclasses.replace(
        config,
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions_per_seq,
        ngram=ngram,
    )
    rules = examples.masking_rules(
        changed, vocabulary["size"], vocabulary["special_ids"], vocabulary["mask_id"]
    )
    is_sop = config.sentence_objective == "sop"
    redraw_order = is_sop and not config.takes_other_documents
    return GraphMasking(rules, redraw_order, examples.spec(config))


def _traits(config: CorpusSettings, vocabulary: Mapping[str, Any]) -> dict[str, Any]:
    """Lists what must be alike in record files that are masked together."""
    settings = {name: getattr(config, name) for name in _COMMON}
    return {"vocabulary": vocabulary["fingerprint"], **settings}


def _described(path: str) -> tuple[CorpusSettings, dict[str, Any]]:
    """Reads the settings and the vocabulary of a record file."""
    description = manifest.of(path)
    if description is None:
        raise InputError(
            f"{path}: no description of it in {manifest.path_for(path)}; "
            f"--dynamic_masking needs the one that create_pretraining_data.py writes"
        )
    try:
        config = CorpusSettings.from_dict(description["settings"])
        if "special_ids" in description["vocabulary"]:
            return config, description["vocabulary"]
    except TypeError:  # a setting that this version does not know
        pass
    raise InputError(
        f"{manifest.path_for(path)}: from another version of "
        f"create_pretraining_data.py; make the records again"
    )


def _unmasked(batch: Batch) -> tf.Tensor:
    """Puts the original ids back where the records are masked already: int32 [B, T]."""
    ids = batch["input_ids"]
    if "masked_lm_ids" not in batch:
        return ids
    used = tf.where(batch["masked_lm_weights"] > 0)
    columns = tf.gather_nd(batch["masked_lm_positions"], used)
    places = tf.stack([used[:, 0], tf.cast(columns, tf.int64)], axis=1)
    labels = tf.gather_nd(batch["masked_lm_ids"], used)
    return tf.tensor_scatter_nd_update(ids, places, labels)


def _separators(batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds both [SEP] of each row: two of int32 [B, 1]."""
    last = tf.reduce_sum(batch["input_mask"], axis=1, keepdims=True) - 1
    return last - tf.reduce_sum(batch["segment_ids"], axis=1, keepdims=True), last


def _reordered(batch: Batch, seed: tf.Tensor) -> Batch:
    """Swaps A and B, or not, whatever their order was.

    Each [SEP] stays with the half before it: A [SEP] B [SEP] is rotated.
    """
    old = batch["next_sentence_labels"]
    new = tf.random.stateless_uniform(tf.shape(old), seed, 0, 2, tf.int32)
    swaps = tf.cast(new != old, tf.int32)
    first, last = _separators(batch)
    T = batch["input_ids"].shape[1]
    column = tf.range(T)
    rotated = 1 + (column - 1 + swaps * first) % last
    source = tf.where((column > 0) & (column <= last), rotated, column)
    source += T * tf.range(tf.shape(source)[0])[:, None]
    first += swaps * (last - 2 * first)
    return {
        **batch,
        "input_ids": tf.gather(tf.reshape(batch["input_ids"], [-1]), source),
        "token_boundary": tf.gather(tf.reshape(batch["token_boundary"], [-1]), source),
        "segment_ids": tf.cast((column > first) & (column <= last), tf.int32),
        "next_sentence_labels": new,
    }


def _masked(batch: Batch, rules: masking.Rules, seed: tf.Tensor) -> Batch:
    """Does what `masking.mask` does; returns the features that change."""
    ids = batch["input_ids"]
    first_seed, second_seed, shuffle_seed, replace_seed = tf.unstack(
        tf.random.split(seed, 4)
    )
    words = _Words(batch, rules)
    lengths = tf.reduce_sum(batch["input_mask"], axis=1)
    # In float64, as numpy does: a half must round to the same side.
    quota = tf.math.rint(tf.cast(lengths, tf.float64) * rules.masked_lm_prob)
    quota = tf.clip_by_value(tf.cast(quota, tf.int32), 1, rules.max_predictions)
    taken = words.take(words.none, quota, rules, first_seed)
    masked = predicted = words.tokens_of(taken)
    original = output = tf.reshape(ids, [-1])
    if rules.permute:
        both = words.take(taken, quota, rules, second_seed)
        predicted = words.tokens_of(both)
        moved = words.tokens_of(both & ~taken)
        shuffled = _shuffled_in_rows(moved, ids.shape[1], shuffle_seed)
        values = tf.gather(original, shuffled)
        output = tf.tensor_scatter_nd_update(output, moved[:, None], values)
    values = _replaced(tf.gather(original, masked), rules, replace_seed)
    output = tf.tensor_scatter_nd_update(output, masked[:, None], values)
    return {
        "input_ids": tf.reshape(output, tf.shape(ids)),
        **_slots(predicted, original, tf.shape(ids), rules.slots),
    }


class _Words:
    """The words of a batch, and which of them are taken.

    Whether words are taken is bool [K + n]: the entries after the words stand for
    nothing and take what is not to be noted.

    Attributes:
        none: bool [K + n], no word is taken.
    """

    def __init__(self, batch: Batch, rules: masking.Rules):
        boundary = batch["token_boundary"]
        first_sep, last_sep = _separators(batch)
        T = boundary.shape[1]
        column = tf.range(T)
        maskable = (column > 0) & (column < last_sep) & (column != first_sep)
        opens = column == 1
        if not rules.cross_separators:
            opens |= column == first_sep + 1
        begins = maskable & (opens | (boundary > 0)) if rules.whole_words else maskable
        opens = tf.reshape(maskable & opens, [-1])
        self._tokens = _places(tf.reshape(maskable, [-1]))  # [M], flat positions
        begins_here = tf.gather(tf.reshape(begins, [-1]), self._tokens)
        self._word = tf.cumsum(tf.cast(begins_here, tf.int32)) - 1  # [M]
        first = _places(begins_here)  # [K], where in the tokens a word begins
        self._K = K = tf.size(first)
        self._first = tf.pad(
            first, [[0, rules.ngram]], constant_values=tf.size(self._tokens)
        )
        self._per_row = tf.reduce_sum(tf.cast(begins, tf.int32), axis=1)
        self._row_first = tf.cumsum(self._per_row, exclusive=True)
        # One past the last word that a span from each word may hold, [K].
        opens_text = tf.gather(opens, tf.gather(self._tokens, first))
        ends = tf.concat([_places(opens_text)[1:], [K]], axis=0)
        self._limit = tf.gather(ends, tf.cumsum(tf.cast(opens_text, tf.int32)) - 1)
        self.none = tf.zeros([K + rules.ngram], tf.bool)

    def tokens_of(self, taken: tf.Tensor) -> tf.Tensor:
        """Returns int32 [N], the flat positions of the tokens of taken words."""
        return tf.boolean_mask(self._tokens, tf.gather(taken, self._word))

    def take(
        self, taken: tf.Tensor, quota: tf.Tensor, rules: masking.Rules, seed: tf.Tensor
    ) -> tf.Tensor:
        """Takes spans until each row has `quota` more tokens or no span fits.

        Args:
            taken: bool [K + n], words that were taken before.
            quota: int32 [B].
            rules: how to mask.
            seed: int [2].

        Returns:
            bool [K + n], those and the words that were taken now.
        """
        order_seed, length_seed = tf.unstack(tf.random.split(seed))
        order = self._order(order_seed)
        reach = self._reach(rules, length_seed)

        def goes_on(turn, taken, room):
            return tf.reduce_any((room > 0) & (turn < self._per_row))

        def next_turn(turn, taken, room):
            begin = tf.where(
                turn < self._per_row, self._row_first + order[:, turn], self._K
            )
            sizes = tf.gather(reach, begin)
            places = begin[:, None] + tf.range(rules.ngram)
            fits = sizes <= room[:, None]
            touches = tf.reduce_any(fits & tf.gather(taken, places), 1, keepdims=True)
            accepted = fits & ~touches
            noted = tf.where(accepted, places, self._K)[..., None]
            taken = tf.tensor_scatter_nd_update(taken, noted, tf.ones_like(accepted))
            room -= tf.reduce_max(tf.where(accepted, sizes, 0), axis=1)
            return turn + 1, taken, room

        return tf.while_loop(goes_on, next_turn, (0, taken, quota))[1]

    def _order(self, seed: tf.Tensor) -> tf.Tensor:
        """Draws in which order the words of each row are tried, int32 [B, W]."""
        W = tf.reduce_max(self._per_row)
        shape = [tf.size(self._per_row), W]
        keys = tf.random.stateless_uniform(shape, seed, None, None, tf.int32)
        keys = tf.where(tf.range(W) < self._per_row[:, None], keys, tf.int32.min)
        return tf.math.top_k(keys, W).indices

    def _reach(self, rules: masking.Rules, seed: tf.Tensor) -> tf.Tensor:
        """Draws how many words the span from each word shall have.

        Returns:
            int32 [K + 1, n], tokens of the span's first 1, 2, ... words; more than any
            row has room for where it has fewer words, and in the last row.
        """
        begin = tf.range(self._K)
        drawn = tf.random.stateless_uniform([self._K, 1], seed)
        longer = drawn < tf.constant(rules.thresholds, tf.float32)
        words = 1 + tf.reduce_sum(tf.cast(longer, tf.int32), axis=1)
        words = tf.minimum(words, self._limit - begin)
        start, never = self._first[: self._K], tf.int32.max
        sizes = [
            tf.where(i < words, self._first[i + 1 : i + 1 + self._K] - start, never)
            for i in range(rules.ngram)
        ]
        return tf.pad(tf.stack(sizes, axis=1), [[0, 1], [0, 0]], constant_values=never)


def _places(flags: tf.Tensor) -> tf.Tensor:
    """Returns where flags, bool [N], are set, as int32."""
    return tf.cast(tf.where(flags)[:, 0], tf.int32)


def _replaced(labels: tf.Tensor, rules: masking.Rules, seed: tf.Tensor) -> tf.Tensor:
    """Draws what the model sees in the place of each label, int32 [N]."""
    draw_seed, other_seed = tf.unstack(tf.random.split(seed))
    draw = tf.random.stateless_uniform(tf.shape(labels), draw_seed)
    choices = tf.constant(rules.replacements, tf.int32)
    other = tf.random.stateless_uniform(
        tf.shape(labels), other_seed, 0, tf.size(choices), tf.int32
    )
    kept = tf.where(
        draw < masking.MASKED + masking.KEPT, labels, tf.gather(choices, other)
    )
    return tf.where(draw < masking.MASKED, rules.mask_id, kept)


def _shuffled_in_rows(positions: tf.Tensor, T: int, seed: tf.Tensor) -> tf.Tensor:
    """Shuffles flat positions, int32 [N], among those of the same row."""
    row = tf.cast(positions // T, tf.int64)
    key = tf.random.stateless_uniform(tf.shape(row), seed, 0, tf.int32.max, tf.int64)
    return tf.gather(positions, tf.argsort(row * tf.int32.max + key))


def _slots(
    predicted: tf.Tensor, original: tf.Tensor, shape: tf.Tensor, P: int
) -> Batch:
    """Sorts predictions into the slots of their rows.

    Args:
        predicted: int32 [N], flat positions in rising order.
        original: int32 [B * T], the ids before masking.
        shape: int32 [2], B and T.
        P: slots of a row.
    """
    row, column = predicted // shape[1], predicted % shape[1]
    per_row = tf.math.bincount(row, minlength=shape[0])
    before = tf.gather(tf.cumsum(per_row, exclusive=True), row)
    places = tf.stack([row, tf.range(tf.size(row)) - before], axis=1)
    slots = tf.stack([shape[0], P])
    labels = tf.gather(original, predicted)
    weights = tf.ones(tf.shape(row), tf.float32)
    return {
        "masked_lm_positions": tf.scatter_nd(places, column, slots),
        "masked_lm_ids": tf.scatter_nd(places, labels, slots),
        "masked_lm_weights": tf.scatter_nd(places, weights, slots),
    }
