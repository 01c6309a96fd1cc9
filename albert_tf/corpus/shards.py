"""Makes records from ranges of the input in shards, and merges the shards.

    ranges --read--> documents --tokenize--> segments --pair--> pairs --mask--> records

A shard reads a fixed random set of ranges, so its documents are a sample of the input.
Second segments from another document come from this sample. The shard contains all
duplicates of its documents as shuffled blocks. `merge` shuffles the blocks of all
shards. Nothing here depends on the number of workers.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.corpus import documents, files, manifest, masking, pairs
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.data import records
from albert_tf.text import tokenization
from albert_tf.text.tokenization import Tokenizer

# Input bytes of a shard, counted once for each of the dupe_factor duplicates.
SHARD_BYTES = 1 << 22
# Input bytes of a shard if second segments can come from other documents of the shard.
POOL_BYTES = 1 << 21
MAX_SHARDS = 4096
TEXT_TOKENS = 1 << 20  # in the documents that are in memory at a time
ROUND_TOKENS = 1 << 22  # shuffled together in a shard, including padding
BLOCK_TOKENS = 1 << 15  # about 200 kB of records
WINDOW_BYTES = 1 << 24  # shuffled together when shards are merged
_BATCH_TOKENS = 1 << 19
# Each use of random numbers has its own seed: random_seed, one of these constants, and
# the number of a range, shard or file (`_ORDER` needs none).
_HOLD_OUT = 0
_SHARDS = {"train": 1, "eval": 2}
_ORDER = {"train": 3, "eval": 4}
_FILES = {"train": 5, "eval": 6}


class ShardPlan(NamedTuple):
    """The input of a shard.

    Attributes:
        subset: the documents that become records, "train" or "eval".
        number: the number of the shard in the subset, from 0.
        ranges: the ranges to read, each with its number. This number is part of the
            seed that decides which documents are held out.
    """

    subset: Subset
    number: int
    ranges: list[tuple[int, documents.Range]]


class Block(NamedTuple):
    """Adjacent records of a shard, which go to one output file.

    Attributes:
        file: number of the output file.
        records: number of records.
        offset: the position of the records in the record file of the shard, in bytes.
        size: the size of the records in bytes.
    """

    file: int
    records: int
    offset: int
    size: int


def record_file(path: str) -> str:
    """Returns the path of a shard's records; `path` is its JSON file."""
    return f"{path.removesuffix('.json')}.part"


@functools.lru_cache(maxsize=1)
def load_tokenizer(config: CorpusSettings) -> Tokenizer:
    """Loads the tokenizer of the settings, once in each process."""
    cleaning = config.do_lower_case, config.keep_accents
    return tokenization.load(config.spm_model_file, config.vocab_file, *cleaning)


def plan(sizes: dict[str, int], config: CorpusSettings) -> list[ShardPlan]:
    """Divides the input among shards; shards of held-out documents come first.

    Args:
        sizes: {path: bytes} of the input files.
        config: the run's settings.
    """
    parts = list(documents.ranges(sizes))
    ranges = [(number, part) for number, (part, _) in enumerate(parts)]
    total_bytes = sum(part_bytes for _, part_bytes in parts)
    plans = []
    for subset in config.subsets[::-1]:
        duplicates = 1 if subset == "eval" else config.dupe_factor
        num_bytes = total_bytes * (config.eval_fraction if subset == "eval" else 1)
        limit = min(len(ranges), MAX_SHARDS)
        if config.samples_other_documents:
            pools = 1 + int(num_bytes // POOL_BYTES)
            # Each shard reads at least two ranges, unless there is only one.
            limit = min(limit, pools, max(1, len(ranges) // 2))
        count = min(limit, 1 + int(duplicates * num_bytes // SHARD_BYTES))
        rng = np.random.default_rng([config.random_seed, _ORDER[subset]])
        order = rng.permutation(len(ranges)).tolist()
        plans += [
            ShardPlan(subset, number, [ranges[i] for i in order[number::count]])
            for number in range(count)
        ]
    return plans


def make_shard(path: str, config: CorpusSettings, plan: ShardPlan) -> None:
    """Makes the records of a shard; a job for a worker.

    Args:
        path: the JSON file for counts and blocks, written after the records, which are
            in an uncompressed TFRecord file in the same folder, see `record_file`.
        config: the run's settings.
        plan: the shard's plan.

    Raises:
        InputError: the text cannot be used or read; see `documents.read`.
    """
    shard = Shard(config, plan)
    blocks: list[Block] = []
    offset = 0
    with files.create(record_file(path)) as file:
        for text in shard.read_texts():
            for pair_array in shard.draw_rounds(text):
                batches = shard.encode(text, pair_array)
                frames = list(itertools.chain.from_iterable(batches))
                for number, block in shard.divide(frames):
                    data = b"".join(block)
                    file.write(data)
                    blocks.append(Block(number, len(block), offset, len(data)))
                    offset += len(data)
    files.write_json(path, {"counts": shard.counts, "blocks": blocks})


class Shard:
    """Reads the documents of one shard and makes its records, see `make_shard`.

    Args:
        config: the run's settings.
        plan: the shard's plan.

    Attributes:
        counts: the counters of the shard.
    """

    def __init__(self, config: CorpusSettings, plan: ShardPlan):
        self.counts: Counter = Counter()
        self._config = config
        self._plan = plan
        self._tokenizer = load_tokenizer(config)
        self._starts = documents.word_starts(self._tokenizer, config.word_start_rule)
        seed = [config.random_seed, _SHARDS[plan.subset], plan.number]
        self._rng = np.random.default_rng(seed)

    def read_texts(self) -> Iterator[pairs.Text]:
        """Yields the documents in groups of at least two, unless there is only one.

        The second segment of a pair may come from another document of its group.
        """
        subset, tokenizer = self._plan.subset, self._tokenizer
        lines = self._read_documents()
        texts = documents.tokenize(lines, self._config, tokenizer, self.counts)
        # Unknown tokens that continue a word have other ids: with the word start rule
        # "released", the id of [MASK]; with "spaces", an id larger by `vocab_size`.
        unknown = {tokenizer.unk_id, tokenizer.mask_id}
        unknown.add(tokenizer.unk_id + tokenizer.vocab_size)
        text, min_size = pairs.Text(), 1  # the first text may be one large document
        for segments, next_segments in itertools.pairwise(itertools.chain(texts, [[]])):
            self.counts[f"{subset}_documents"] += 1
            self.counts[f"{subset}_tokens"] += sum(map(len, segments))
            self.counts[f"{subset}_unknown_tokens"] += sum(
                ids.count(id) for ids in segments for id in unknown
            )
            is_full = text.bounds[-1] >= TEXT_TOKENS and len(text.documents) >= min_size
            # The last document never gets a text of its own.
            if is_full and next_segments:
                yield text
                text, min_size = pairs.Text(), 2
            text.add(segments)
        if text.documents:
            yield text

    def _read_documents(self) -> Iterator[list[str]]:
        """Reads the documents of the shard's subset, and skips the others."""
        config, subset = self._config, self._plan.subset
        # All text is read once for each subset. Only the shards of "train" count lines.
        counts = self.counts if subset == "train" else Counter()
        for number, part in self._plan.ranges:
            rng = np.random.default_rng([config.random_seed, _HOLD_OUT, number])
            texts = documents.read(part, config.decode_errors, counts, config.encoding)
            for lines in texts:
                # Each document takes one random number, whatever its text is.
                is_held_out = rng.random() < config.eval_fraction
                if is_held_out == (subset == "eval"):
                    yield lines

    def draw_rounds(self, text: pairs.Text) -> Iterator[np.ndarray]:
        """Draws the pairs of all duplicates, some duplicates in each round.

        Yields:
            int [I, 5], the I shuffled pairs of a round, see `pairs.pair`.
        """
        config, rng = self._config, self._rng
        duplicates = config.dupe_factor if self._plan.subset == "train" else 1
        # An estimate of the number of pairs of one duplicate.
        pair_count = text.bounds[-1] // config.max_num_tokens + len(text.documents)
        per_round = max(1, ROUND_TOKENS // (pair_count * config.max_seq_length))
        shared = text, config, self._starts, rng, self.counts
        for done in range(0, duplicates, per_round):
            count = min(per_round, duplicates - done)
            pair_array = np.concatenate([pairs.pair(*shared) for _ in range(count)])
            yield pair_array[rng.permutation(len(pair_array))]

    def divide(self, frames: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
        """Divides the shuffled records of a round evenly among the output files.

        Yields:
            The number of an output file, and the records of a block.
        """
        file_count = len(self._config.record_files(self._plan.subset))
        count = len(frames)
        tokens = count * self._config.max_seq_length
        # Rounded up to a multiple of `file_count`: each file gets equally many blocks.
        block_count = file_count * -(-tokens // (file_count * BLOCK_TOKENS))
        first_file = int(self._rng.integers(file_count))
        for i in range(block_count):
            begin, end = (n * count // block_count for n in (i, i + 1))
            if begin < end:
                yield (first_file + i) % file_count, frames[begin:end]

    def encode(self, text: pairs.Text, pair_array: np.ndarray) -> Iterator[list[bytes]]:
        """Masks and serialises pairs in order, in batches of about `_BATCH_TOKENS`."""
        config, tokenizer = self._config, self._tokenizer
        batch_size = max(1, _BATCH_TOKENS // config.max_seq_length)
        rules = masking.Rules(config, manifest.describe_vocabulary(tokenizer))
        for i in range(0, len(pair_array), batch_size):
            features = self._assemble(text.tokens, pair_array[i : i + batch_size])
            if config.masked_lm_prob:
                count = len(features["input_ids"])
                seeds = self._rng.integers(1 << 64, size=count, dtype=np.uint64)
                masking.mask(features, rules, seeds, self.counts)
            yield records.encode(spec(config), features)

    def _assemble(self, tokens: np.ndarray, batch: np.ndarray) -> dict[str, np.ndarray]:
        """Returns features of pairs; a row is [CLS] A [SEP] B [SEP] and padding."""
        config, tokenizer = self._config, self._tokenizer
        B, T = len(batch), config.max_seq_length
        ids = np.full((B, T), tokenizer.pad_id, np.int32)
        rows_and_pairs = zip(ids, batch.tolist(), strict=True)
        for row, (a_begin, a_end, b_begin, b_end, _) in rows_and_pairs:
            b_column = a_end - a_begin + 2
            row[1 : b_column - 1] = tokens[a_begin:a_end]
            row[b_column : b_column + b_end - b_begin] = tokens[b_begin:b_end]
        first_sep = batch[:, pairs.A_END] - batch[:, pairs.A_BEGIN] + 1
        last_sep = first_sep + batch[:, pairs.B_END] - batch[:, pairs.B_BEGIN] + 1
        rows, columns = np.arange(B), np.arange(T)
        special = np.zeros((B, T), bool)
        special[:, 0] = special[rows, first_sep] = special[rows, last_sep] = True
        ids[:, 0] = tokenizer.cls_id
        ids[rows, first_sep] = ids[rows, last_sep] = tokenizer.sep_id
        input_mask = columns <= last_sep[:, None]
        boundary = self._starts(ids)
        if config.word_start_rule == "released":
            # See `Tokenizer.encode_batch_as_released`.
            ids[ids == tokenizer.mask_id] = tokenizer.unk_id
        # See `documents._encode_words`.
        ids[ids >= tokenizer.vocab_size] -= tokenizer.vocab_size
        if not config.released_behaviour:
            # The tokens after [CLS] and after the first [SEP] begin words.
            boundary[:, 1] = boundary[rows, first_sep + 1] = True
        self.counts["instances"] += B
        self.counts["instances_with_label_1"] += int(batch[:, pairs.LABEL].sum())
        self.counts["instance_tokens"] += int(last_sep.sum()) + B
        return {
            "input_ids": ids,
            "input_mask": input_mask,
            "segment_ids": input_mask & (columns > first_sep[:, None]),
            "token_boundary": boundary & input_mask | special,
            "next_sentence_labels": batch[:, pairs.LABEL :],
        }


def merge(
    path: str,
    config: CorpusSettings,
    subset: Subset,
    number: int,
    blocks: Sequence[tuple[str, Block]],
) -> None:
    """Makes an output file of shuffled records; a job for a worker.

    It reads the blocks in random order, and shuffles the records of about
    `WINDOW_BYTES` at a time.

    Args:
        path: a JSON file that is written when the output file is complete.
        config: the run's settings.
        subset: "train" or "eval".
        number: the output file's number.
        blocks: the blocks of the output file, each with the record file of its shard.
    """
    rng = np.random.default_rng([config.random_seed, _FILES[subset], number])
    window: list[bytes] = []
    size = 0
    order = rng.permutation(len(blocks)).tolist()
    with files.create(config.record_files(subset)[number]) as file:
        writer = records.Writer(file, config.compress)
        for count, (part_path, block) in enumerate((blocks[i] for i in order), 1):
            with files.open_binary(part_path) as part:
                part.seek(block.offset)
                window += records.split(part.read(block.size))
            size += block.size
            if size >= WINDOW_BYTES or count == len(order):
                record_order = rng.permutation(len(window)).tolist()
                writer.write([window[i] for i in record_order])
                window, size = [], 0
        writer.close()
    files.write_json(path, {})


def spec(config: CorpusSettings) -> records.Spec:
    """Returns the features of a record, with the released names.

    T is `max_seq_length`. P is `max_predictions_per_seq`, doubled by `do_permutation`.

    - `input_ids`, `input_mask` (1 for tokens, 0 for padding), `segment_ids` (1 for B
      and the [SEP] after it): int [T].
    - `token_boundary`: int [T], 1 at [CLS], [SEP] and the first token of each word.
    - `masked_lm_positions`, `masked_lm_ids`: int [P]; `masked_lm_weights`: float [P], 1
      for a prediction, 0 for an unused slot. Absent if `masked_lm_prob` is 0.
    - `next_sentence_labels`: int [1]; 0 if B follows A in the text. For the meaning of
      1, see `CorpusSettings.objective`.
    """
    features = dict.fromkeys(
        ("input_ids", "input_mask", "segment_ids", "token_boundary"),
        records.Feature("int", config.max_seq_length),
    )
    features["next_sentence_labels"] = records.Feature("int", 1)
    for name, dtype in masking.FEATURES.items() if config.masked_lm_prob else ():
        features[name] = records.Feature(
            "float" if dtype is np.float32 else "int", config.prediction_slots
        )
    return features
