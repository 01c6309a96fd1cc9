"""Makes the records of one unit of work: pairs, shuffled, masked and serialised."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from albert_tf.corpus import masking, pairs
from albert_tf.corpus.config import CorpusSettings
from albert_tf.data import records
from albert_tf.text.tokenization import Tokenizer, WordStarts

_BATCH_TOKENS = 1 << 19


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What the generator must know about a vocabulary.

    Attributes:
        size: number of pieces, V.
        pad_id: id that fills rows up.
        cls_id: id of [CLS].
        sep_id: id of [SEP].
        mask_id: id of [MASK].
        unk_id: id of the unknown piece.
        special_ids: ids that never stand for text.
        starts: where words begin.
        fingerprint: see `tokenization.Tokenizer`.
    """

    size: int
    pad_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    unk_id: int
    special_ids: frozenset[int]
    starts: WordStarts
    fingerprint: str

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: CorpusSettings) -> "Vocabulary":
        """Looks everything up.

        Raises:
            InputError: the vocabulary lacks a special piece.
        """
        return cls(
            size=tokenizer.vocab_size,
            pad_id=tokenizer.pad_id,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            mask_id=tokenizer.mask_id,
            unk_id=tokenizer.unk_id,
            special_ids=tokenizer.special_ids,
            starts=tokenizer.word_starts(config.word_start_rule),
            fingerprint=tokenizer.fingerprint,
        )


def spec(config: CorpusSettings) -> records.Spec:
    """Returns the features of a record, with the released names.

    T is `max_seq_length`. P is `max_predictions_per_seq`, doubled by `do_permutation`.

    - `input_ids`, `input_mask` (1 for tokens, 0 for padding), `segment_ids` (1 for B
      and the [SEP] after it): int [T].
    - `token_boundary`: int [T], 1 at [CLS], [SEP] and the first piece of each word.
    - `masked_lm_positions`, `masked_lm_ids`: int [P]; `masked_lm_weights`: float [P], 1
      for a prediction, 0 for an unused slot. Absent where `masked_lm_prob` is 0.
    - `next_sentence_labels`: int [1], 0 for A and B in order; see
      `CorpusSettings.objective` for 1.
    """
    T = config.max_seq_length
    P = config.max_predictions * (2 if config.do_permutation else 1)
    features = {
        name: records.Feature("int", T)
        for name in ("input_ids", "input_mask", "segment_ids", "token_boundary")
    }
    features["next_sentence_labels"] = records.Feature("int", 1)
    if config.masked_lm_prob:
        features["masked_lm_positions"] = records.Feature("int", P)
        features["masked_lm_ids"] = records.Feature("int", P)
        features["masked_lm_weights"] = records.Feature("float", P)
    return features


def make(
    groups: Iterable[tuple[int, bytes]],
    config: CorpusSettings,
    vocabulary: Vocabulary,
    seed: tuple[int, ...],
    counts: Counter,
) -> Iterator[list[bytes]]:
    """Makes the serialised records of one unit of work.

    Args:
        groups: number and packed bytes of each group of documents, see `store.Group`.
        config: the run's settings.
        vocabulary: the vocabulary that the groups were tokenized with.
        seed: numbers that no other unit has.
        counts: raised by what was made.

    Yields:
        Serialised examples, some hundred at a time, in their final order.
    """
    rng = np.random.default_rng([config.random_seed, *seed])
    text = pairs.Text(groups, vocabulary.size)
    counts["used_documents"] += len(text.documents)
    drawn = pairs.pair(text, config, vocabulary.starts, rng, counts)
    drawn = drawn[rng.permutation(len(drawn))]
    features = spec(config)
    rows = max(1, _BATCH_TOKENS // config.max_seq_length)
    rules = masking_rules(
        config, vocabulary.size, vocabulary.special_ids, vocabulary.mask_id
    )
    for i in range(0, len(drawn), rows):
        batch = _assemble(text.tokens, drawn[i : i + rows], config, vocabulary, counts)
        if config.masked_lm_prob:
            seeds = rng.integers(1 << 64, size=len(batch["input_ids"]), dtype=np.uint64)
            masking.add_masks(batch, rules, seeds, counts)
        yield records.encode(features, batch)


def masking_rules(
    config: CorpusSettings, vocab_size: int, special_ids: Iterable[int], mask_id: int
) -> masking.Rules:
    """Returns the rules of masking that the settings ask for.

    **As released:** a token may be replaced by any piece; here by no special one.
    """
    replacements = np.arange(vocab_size)
    if not config.released_behaviour:
        replacements = np.delete(replacements, sorted(special_ids))
    return masking.Rules(
        masked_lm_prob=config.masked_lm_prob,
        max_predictions=config.max_predictions,
        ngram=config.ngram,
        favor_shorter_ngram=config.favor_shorter_ngram,
        whole_words=config.do_whole_word_mask,
        cross_separators=config.released_behaviour,
        permute=config.do_permutation,
        mask_id=mask_id,
        replacements=replacements,
    )


def _assemble(
    tokens: np.ndarray,
    drawn: np.ndarray,
    config: CorpusSettings,
    vocabulary: Vocabulary,
    counts: Counter,
) -> dict[str, np.ndarray]:
    """Copies the text of pairs into rows: [CLS] A [SEP] B [SEP] and padding."""
    B, T = len(drawn), config.max_seq_length
    ids = np.full((B, T), vocabulary.pad_id, np.int32)
    for row, (a_begin, a_end, b_begin, b_end, _) in zip(
        ids, drawn.tolist(), strict=True
    ):
        b = a_end - a_begin + 2
        row[1 : b - 1] = tokens[a_begin:a_end]
        row[b : b + b_end - b_begin] = tokens[b_begin:b_end]
    first_sep = drawn[:, pairs.A_END] - drawn[:, pairs.A_BEGIN] + 1
    last_sep = first_sep + drawn[:, pairs.B_END] - drawn[:, pairs.B_BEGIN] + 1
    rows, column = np.arange(B), np.arange(T)
    special = np.zeros((B, T), bool)
    special[:, 0] = special[rows, first_sep] = special[rows, last_sep] = True
    ids[:, 0] = vocabulary.cls_id
    ids[rows, first_sep] = ids[rows, last_sep] = vocabulary.sep_id
    input_mask = column <= last_sep[:, None]
    boundary = vocabulary.starts(ids)
    if config.word_start_rule == "released":
        # See `Tokenizer.encode_batch_as_released`.
        ids[ids == vocabulary.mask_id] = vocabulary.unk_id
    if not config.released_behaviour:
        # A word never reaches across [SEP]: what follows one begins a word.
        boundary[:, 1] = boundary[rows, first_sep + 1] = True
    _count(drawn[:, pairs.LABEL], last_sep + 1, config, counts)
    return {
        "input_ids": ids,
        "input_mask": input_mask,
        "segment_ids": input_mask & (column > first_sep[:, None]),
        "token_boundary": boundary & input_mask | special,
        "next_sentence_labels": drawn[:, pairs.LABEL :],
    }


def _count(
    labels: np.ndarray, lengths: np.ndarray, config: CorpusSettings, counts: Counter
) -> None:
    counts["instances"] += len(labels)
    counts["instances_with_label_1"] += int(labels.sum())
    counts["instance_tokens"] += int(lengths.sum())
    width = length_bin(config)
    for bin, times in enumerate(np.bincount(lengths // width).tolist()):
        if times:
            counts[f"lengths/{bin * width}"] += times


def length_bin(config: CorpusSettings) -> int:
    """Width of a bin of the histogram of lengths, in tokens."""
    return max(1, config.max_seq_length // 16)
