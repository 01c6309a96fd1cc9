"""Units of work: a pure function turns some of the input into a part of the records.

    ranges --read--> documents --tokenize--> segments --pair--> pairs --mask--> records

A unit is a fixed set of ranges that lie all over the input, so its documents are a
random sample: a second segment from another document comes from anywhere. It makes all
duplicates of its documents, shuffled, in blocks that `joined` shuffles once more, over
all units. Nothing here depends on the number of workers.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

import numpy as np

from albert_tf.corpus import documents, files, masking, pairs
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.data import records
from albert_tf.text.tokenization import Tokenizer

# Input bytes of a unit, times dupe_factor.
UNIT_BYTES = 1 << 22
# Documents that a second segment may come from, together.
POOL_BYTES = 1 << 21
MAX_UNITS = 4096
TEXT_TOKENS = 1 << 20  # held in memory at once
ROUND_TOKENS = 1 << 22  # of instances that are shuffled together, with padding
BLOCK_TOKENS = 1 << 15  # about 200 kB of records
WINDOW_BYTES = 1 << 24  # of records that are shuffled together when parts are joined
_BATCH_TOKENS = 1 << 19
# What is drawn has its own seed: random_seed, one of these, and a number.
_HOLD_OUT = 0
_UNITS = {"train": 1, "eval": 2}
_ORDER = {"train": 3, "eval": 4}
_FILES = {"train": 5, "eval": 6}


class Unit(NamedTuple):
    """One unit of work.

    Attributes:
        subset: "train" or "eval": of which documents it makes records.
        number: counted from 0 in its subset.
        ranges: what to read: number of the range, which seeds the choice of held-out
            documents, and range.
    """

    subset: Subset
    number: int
    ranges: list[tuple[int, documents.Range]]


class Block(NamedTuple):
    """Some neighbouring records of a unit, which go to one output file.

    Attributes:
        file: number of the output file.
        records: how many.
        size: their bytes, as a plain TFRecord file has them.
    """

    file: int
    records: int
    size: int


class Part(NamedTuple):
    """What a unit has made.

    Attributes:
        subset: "train" or "eval".
        path: the file of its records.
        counts: counters of what was read and made.
        blocks: int64 [K, 3], what the file holds, in order; see `Block`.
    """

    subset: Subset
    path: str
    counts: Mapping[str, int]
    blocks: np.ndarray


class Source(NamedTuple):
    """Where a block lies.

    Attributes:
        path: the file of a unit's records.
        offset: first byte.
        size: number of bytes.
    """

    path: str
    offset: int
    size: int


def plan(sizes: dict[str, int], config: CorpusSettings) -> list[Unit]:
    """Divides the input among units, those of held-out documents first.

    Args:
        sizes: {path: bytes} of the input files.
        config: the run's settings.
    """
    parts = list(documents.ranges(sizes))
    ranges = [(number, part) for number, (part, _) in enumerate(parts)]
    size = sum(weight for _, weight in parts)
    units = []
    for subset in config.subsets[::-1]:
        duplicates = 1 if subset == "eval" else config.dupe_factor
        text = size * (config.eval_fraction if subset == "eval" else 1)
        most = min(len(ranges), MAX_UNITS)
        if config.takes_other_documents:
            most = min(most, 1 + int(text // POOL_BYTES), max(1, len(ranges) // 2))
        count = min(most, 1 + int(duplicates * text // UNIT_BYTES))
        rng = np.random.default_rng([config.random_seed, _ORDER[subset]])
        order = rng.permutation(len(ranges)).tolist()
        units += [
            Unit(subset, number, [ranges[i] for i in order[number::count]])
            for number in range(count)
        ]
    return units


def make(
    unit: Unit, config: CorpusSettings, tokenizer: Tokenizer, file: IO[bytes]
) -> tuple[Counter, list[Block]]:
    """Makes the records of a unit.

    Args:
        unit: what to read.
        config: the run's settings.
        tokenizer: the vocabulary.
        file: gets the records, in the TFRecord format and never compressed.

    Returns:
        Counters of what was read and made, and the blocks in the file, in order.

    Raises:
        InputError: the text cannot be used or read; see `documents.read`.
    """
    counts: Counter = Counter()
    blocks: list[Block] = []
    rng = np.random.default_rng([config.random_seed, _UNITS[unit.subset], unit.number])
    starts = documents.word_starts(tokenizer, config.word_start_rule)
    duplicates = config.dupe_factor if unit.subset == "train" else 1
    file_count = len(config.files_of(unit.subset))
    for text in _texts(unit, config, tokenizer, counts):
        instances = text.bounds[-1] // config.max_num_tokens
        instances += len(text.documents)
        together = max(1, ROUND_TOKENS // (instances * config.max_seq_length))
        for done in range(0, duplicates, together):
            drawn = np.concatenate(
                [
                    pairs.pair(text, config, starts, rng, counts)
                    for _ in range(min(together, duplicates - done))
                ]
            )
            drawn = drawn[rng.permutation(len(drawn))]
            sizes = [0]
            for batch in _records(text, drawn, config, tokenizer, rng, counts):
                framed = list(map(records.framed, batch))
                file.write(b"".join(framed))
                sizes += map(len, framed)
            blocks += _blocks(np.cumsum(sizes), file_count, config, rng)
    return counts, blocks


def sources(parts: Iterable[Part], subset: Subset, file: int) -> list[Source]:
    """Lists the blocks of one output file, in the order of the parts."""
    blocks: list[Source] = []
    for part in parts:
        if part.subset == subset and len(part.blocks):
            file_of, _, sizes = part.blocks.T
            offsets = np.cumsum(sizes) - sizes
            mine = file_of == file
            places = zip(offsets[mine].tolist(), sizes[mine].tolist(), strict=True)
            blocks += [Source(part.path, *place) for place in places]
    return blocks


def joined(
    blocks: Sequence[Source], config: CorpusSettings, subset: Subset, file: int
) -> Iterator[list[bytes]]:
    """Shuffles the records of one output file, over all units.

    Blocks come in random order, and those that fill `WINDOW_BYTES` are mixed.

    Args:
        blocks: what `sources` returned; the parts are in the order of their units.
        config: the run's settings.
        subset: "train" or "eval".
        file: number of the output file.

    Yields:
        Framed records.
    """
    rng = np.random.default_rng([config.random_seed, _FILES[subset], file])
    window: list[bytes] = []
    size = 0
    order = rng.permutation(len(blocks)).tolist()
    for place, number in enumerate(order, 1):
        path, offset, block_size = blocks[number]
        with files.open_binary(path) as part:
            part.seek(offset)
            window += records.split(part.read(block_size))
        size += block_size
        if size >= WINDOW_BYTES or place == len(order):
            yield [window[i] for i in rng.permutation(len(window)).tolist()]
            window, size = [], 0


def _texts(
    unit: Unit, config: CorpusSettings, tokenizer: Tokenizer, counts: Counter
) -> Iterator[pairs.Text]:
    """Yields a unit's documents, packed; no text has one document where two can.

    A second segment that must come from another document has another one then.
    """
    text, waiting = pairs.Text(2 * tokenizer.vocab_size), deque[list[list[int]]]()
    lines = _documents(unit, config, counts)
    # The second is what unknown tokens within a word have in released behaviour.
    unknown = {tokenizer.unk_id, tokenizer.mask_id}
    unknown.add(tokenizer.unk_id + tokenizer.vocab_size)
    for segments in documents.tokenize(lines, config, tokenizer, counts):
        counts[f"{unit.subset}_documents"] += 1
        counts[f"{unit.subset}_tokens"] += sum(map(len, segments))
        counts[f"{unit.subset}_unknown_tokens"] += sum(
            ids.count(id) for ids in segments for id in unknown
        )
        waiting.append(segments)
        if text.bounds[-1] >= TEXT_TOKENS:
            if len(waiting) < 2:
                continue
            yield text
            text = pairs.Text(2 * tokenizer.vocab_size)
        while waiting:
            text.add(waiting.popleft())
    for segments in waiting:
        text.add(segments)
    if text.documents:
        yield text


def _documents(
    unit: Unit, config: CorpusSettings, counts: Counter
) -> Iterator[list[str]]:
    """Reads the documents of the unit's subset; the others are skipped."""
    # Text is counted once.
    read = counts if unit.subset == "train" else Counter()
    for number, part in unit.ranges:
        rng = np.random.default_rng([config.random_seed, _HOLD_OUT, number])
        texts = documents.read(part, config.decode_errors, read, config.encoding)
        for lines in texts:
            # Drawn for every document, so that the choice does not depend on its text.
            is_held_out = rng.random() < config.eval_fraction
            if is_held_out == (unit.subset == "eval"):
                yield lines


def _blocks(
    ends: np.ndarray, file_count: int, config: CorpusSettings, rng: np.random.Generator
) -> Iterator[Block]:
    """Divides a round's records, which are shuffled, evenly among the output files.

    Args:
        ends: int [I + 1], the bytes before each record and those of all.
        file_count: number of output files.
        config: the run's settings.
        rng: draws the file that the first block goes to.
    """
    count = len(ends) - 1
    tokens = count * config.max_seq_length
    blocks = file_count * -(-tokens // (file_count * BLOCK_TOKENS))
    first = int(rng.integers(file_count))
    for i in range(blocks):
        begin, end = i * count // blocks, (i + 1) * count // blocks
        if begin < end:
            file = (first + i) % file_count
            yield Block(file, end - begin, int(ends[end] - ends[begin]))


def _records(
    text: pairs.Text,
    drawn: np.ndarray,
    config: CorpusSettings,
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    counts: Counter,
) -> Iterator[list[bytes]]:
    """Masks and serialises pairs, some hundred at a time, in their order."""
    features = spec(config)
    rows = max(1, _BATCH_TOKENS // config.max_seq_length)
    rules = masking_rules(
        config, tokenizer.vocab_size, tokenizer.special_ids, tokenizer.mask_id
    )
    for i in range(0, len(drawn), rows):
        batch = _assemble(text.tokens, drawn[i : i + rows], config, tokenizer, counts)
        if config.masked_lm_prob:
            seeds = rng.integers(1 << 64, size=len(batch["input_ids"]), dtype=np.uint64)
            masking.add_masks(batch, rules, seeds, counts)
        yield records.encode(features, batch)


def spec(config: CorpusSettings) -> records.Spec:
    """Returns the features of a record, with the released names.

    T is `max_seq_length`. P is `max_predictions_per_seq`, doubled by `do_permutation`.

    - `input_ids`, `input_mask` (1 for tokens, 0 for padding), `segment_ids` (1 for B
      and the [SEP] after it): int [T].
    - `token_boundary`: int [T], 1 at [CLS], [SEP] and the first token of each word.
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


def masking_rules(
    config: CorpusSettings, vocab_size: int, special_ids: Iterable[int], mask_id: int
) -> masking.Rules:
    """Returns the rules of masking that the settings ask for.

    **As released:** a token may be replaced by any token; here by no special one.
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
        mask_replace_prob=config.mask_replace_prob,
        random_replace_prob=config.random_replace_prob,
        mask_id=mask_id,
        replacements=replacements,
    )


def _assemble(
    tokens: np.ndarray,
    drawn: np.ndarray,
    config: CorpusSettings,
    tokenizer: Tokenizer,
    counts: Counter,
) -> dict[str, np.ndarray]:
    """Copies the text of pairs into rows: [CLS] A [SEP] B [SEP] and padding."""
    B, T = len(drawn), config.max_seq_length
    ids = np.full((B, T), tokenizer.pad_id, np.int32)
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
    ids[:, 0] = tokenizer.cls_id
    ids[rows, first_sep] = ids[rows, last_sep] = tokenizer.sep_id
    input_mask = column <= last_sep[:, None]
    boundary = documents.word_starts(tokenizer, config.word_start_rule)(ids)
    if config.word_start_rule == "released":
        # See `Tokenizer.encode_batch_as_released`.
        ids[ids == tokenizer.mask_id] = tokenizer.unk_id
    ids[ids >= tokenizer.vocab_size] -= tokenizer.vocab_size  # by the rule "spaces"
    if not config.released_behaviour:
        # A word never reaches across [SEP]: what follows one begins a word.
        boundary[:, 1] = boundary[rows, first_sep + 1] = True
    counts["instances"] += B
    counts["instances_with_label_1"] += int(drawn[:, pairs.LABEL].sum())
    counts["instance_tokens"] += int(last_sep.sum()) + B
    return {
        "input_ids": ids,
        "input_mask": input_mask,
        "segment_ids": input_mask & (column > first_sep[:, None]),
        "token_boundary": boundary & input_mask | special,
        "next_sentence_labels": drawn[:, pairs.LABEL :],
    }
