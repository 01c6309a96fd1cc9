"""Makes records from ranges of the input in shards, and merges the shards.

    ranges --read--> documents --tokenize--> segments --pair--> pairs --mask--> records

A shard is a temporary part of the records, not an output file. It reads a fixed random
set of ranges, so its documents are a sample of the input. A segment has the token ids
of a line, or of a part of a long line. A pair is two texts, A and B, made of segments.
With NSP (with `released_behaviour` also with SOP), B can come from another document of
the same sample. The records of a shard are shuffled and divided into blocks; all
duplicates of a document are in the same shard. `merge` shuffles the blocks of all
shards. The records do not depend on the number of workers.

The released code is Google's TensorFlow 1 implementation of ALBERT.
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

# The target size of a shard: its input bytes times `dupe_factor`.
SHARD_BYTES = 1 << 22
# The approximate minimum of a shard's input bytes (not times `dupe_factor`) if B can
# come from another document. A smaller shard would offer too few other documents.
POOL_BYTES = 1 << 21
MAX_SHARDS = 4096
# The size of a group of documents, which are in memory at the same time.
GROUP_TOKENS = 1 << 20
# The sizes of three groups of records, in tokens including padding. A round is the
# records of some duplicates of a group of documents, and is shuffled as a whole. A
# block (about 200 kB) goes to one output file. A batch is masked in one call.
ROUND_TOKENS = 1 << 22
BLOCK_TOKENS = 1 << 15
_BATCH_TOKENS = 1 << 19
WINDOW_BYTES = 1 << 24  # the size of the records that `merge` shuffles together
# Each use of random numbers has its own seed: `random_seed`, one of these constants,
# and the number of a range, shard or output file (`_ORDER` is used without a number).
_HOLD_OUT = 0
_SHARDS = {"train": 1, "eval": 2}
_ORDER = {"train": 3, "eval": 4}
_FILES = {"train": 5, "eval": 6}


class ShardPlan(NamedTuple):
    """The input of a shard.

    Attributes:
        subset: "train" or "eval"; only the documents of this subset become records.
        number: the number of the shard in the subset, from 0.
        ranges: the ranges to read, each with its number in the whole input. This number
            is part of the seed that decides which documents are held out.
    """

    subset: Subset
    number: int
    ranges: list[tuple[int, documents.ByteRange]]


class RecordBlock(NamedTuple):
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


def make_plans(sizes: dict[str, int], config: CorpusSettings) -> list[ShardPlan]:
    """Plans the shards: divides the input among them, once for each subset.

    Any range can have documents of both subsets, so the shards of each subset read the
    whole input. The plans of held-out documents come first.

    Args:
        sizes: {path: bytes} of the input files.
        config: the run's settings.
    """
    parts = list(documents.divide_files(sizes))
    ranges = [(number, part) for number, (part, _) in enumerate(parts)]
    total_bytes = sum(part_bytes for _, part_bytes in parts)
    plans = []
    for subset in config.subsets[::-1]:
        duplicates = 1 if subset == "eval" else config.dupe_factor
        # The approximate size of the subset's text.
        num_bytes = total_bytes * (config.eval_fraction if subset == "eval" else 1)
        limit = min(len(ranges), MAX_SHARDS)  # maximum number of shards
        if config.samples_other_documents:
            # The number of shards of about `POOL_BYTES`: one more than the text can
            # fill.
            pools = 1 + int(num_bytes // POOL_BYTES)
            # A shard needs two documents, so it reads at least two ranges if the input
            # has two.
            limit = min(limit, pools, max(1, len(ranges) // 2))
        count = min(limit, 1 + int(duplicates * num_bytes // SHARD_BYTES))
        rng = np.random.default_rng([config.random_seed, _ORDER[subset]])
        order = rng.permutation(len(ranges)).tolist()
        # The shards take the ranges in turn, in random order.
        plans += [
            ShardPlan(subset, number, [ranges[i] for i in order[number::count]])
            for number in range(count)
        ]
    return plans


def make_shard(path: str, config: CorpusSettings, plan: ShardPlan) -> None:
    """Makes the records of a shard; a job for a worker.

    The records go to an uncompressed TFRecord file, `record_file(path)`.

    Args:
        path: the JSON file for the counts and the blocks, written after the records.
        config: the run's settings.
        plan: the shard's plan.

    Raises:
        InputError: the text cannot be read or decoded.
    """
    shard = Shard(config, plan)
    blocks: list[RecordBlock] = []
    offset = 0
    with files.create(record_file(path)) as file:
        for group in shard.read_groups():
            for rows in shard.draw_rounds(group):
                batches = shard.encode(group, rows)
                frames = list(itertools.chain.from_iterable(batches))
                for number, block in shard.divide(frames):
                    data = b"".join(block)
                    file.write(data)
                    blocks.append(RecordBlock(number, len(block), offset, len(data)))
                    offset += len(data)
    files.write_json(path, {"counts": shard.counts, "blocks": blocks})


class Shard:
    """Reads the documents of one shard and makes its records, for `make_shard`.

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
        rule = config.word_start_rule
        self._find_starts = documents.word_starts(self._tokenizer, rule)
        seed = [config.random_seed, _SHARDS[plan.subset], plan.number]
        self._rng = np.random.default_rng(seed)

    def read_groups(self) -> Iterator[pairs.Group]:
        """Yields the shard's documents in groups of about `GROUP_TOKENS` tokens.

        If B comes from another document, this document is in the same group. So every
        group has at least two documents, except the first group: it may be a single
        large document, or the shard's only document. Then B comes from this document,
        too.
        """
        subset, tokenizer = self._plan.subset, self._tokenizer
        lines = self._read_documents()
        segmented = documents.tokenize(lines, self._config, tokenizer, self.counts)
        # An unknown token has one of three ids: the id of [UNK]; or, if it continues a
        # word, the id of [MASK] (word start rule "released") or the id of [UNK] plus
        # `vocab_size` (rule "spaces"). `_assemble` replaces the last two with the id of
        # [UNK].
        unknown = {tokenizer.unk_id, tokenizer.mask_id}
        unknown.add(tokenizer.unk_id + tokenizer.vocab_size)
        group, min_size = pairs.Group(), 1
        # `following` is the next document; after the last document, it is [].
        for segments, following in itertools.pairwise(itertools.chain(segmented, [[]])):
            self.counts[f"{subset}_documents"] += 1
            self.counts[f"{subset}_tokens"] += sum(map(len, segments))
            self.counts[f"{subset}_unknown_tokens"] += sum(
                ids.count(id) for ids in segments for id in unknown
            )
            is_large = group.bounds[-1] >= GROUP_TOKENS
            # If this is the last document, it joins the group even if the group is
            # full, since it would be alone in a new group.
            if is_large and len(group.documents) >= min_size and following:
                yield group
                group, min_size = pairs.Group(), 2
            group.add(segments)
        if group.documents:
            yield group

    def _read_documents(self) -> Iterator[list[str]]:
        """Yields the lines of each document of the shard's subset; skips the others."""
        config, subset = self._config, self._plan.subset
        # Shards of "train" and shards of "eval" read the same lines. Only "train"
        # counts them.
        counts = self.counts if subset == "train" else Counter()
        errors, encoding = config.decode_errors, config.encoding
        for number, part in self._plan.ranges:
            rng = np.random.default_rng([config.random_seed, _HOLD_OUT, number])
            for lines in documents.read(part, errors, counts, encoding):
                # Each document takes one random number, so the shards of both subsets
                # draw the same numbers for the same documents.
                is_held_out = rng.random() < config.eval_fraction
                if is_held_out == (subset == "eval"):
                    yield lines

    def draw_rounds(self, group: pairs.Group) -> Iterator[np.ndarray]:
        """Draws the pairs of all duplicates of a group, some duplicates in each round.

        Yields:
            int64 [I, 5], the I shuffled pairs of a round: positions of A and B in the
            group's tokens, and labels, see `pairs.draw`.
        """
        config, rng = self._config, self._rng
        duplicates = config.dupe_factor if self._plan.subset == "train" else 1
        # An estimate of the number of pairs of one duplicate.
        pair_count = group.bounds[-1] // config.max_num_tokens + len(group.documents)
        # The number of duplicates in a round.
        per_round = max(1, ROUND_TOKENS // (pair_count * config.max_seq_length))
        arguments = group, config, self._find_starts, rng, self.counts
        for done in range(0, duplicates, per_round):
            count = min(per_round, duplicates - done)
            drawn = np.concatenate([pairs.draw(*arguments) for _ in range(count)])
            yield drawn[rng.permutation(len(drawn))]

    def divide(self, frames: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
        """Divides the shuffled records of a round evenly among the output files.

        Args:
            frames: the records as `records.encode` returns them.

        Yields:
            The number of an output file, and the records of one block for this file.
        """
        file_count = len(self._config.record_files(self._plan.subset))
        count = len(frames)
        tokens = count * self._config.max_seq_length
        # This rounds up to a multiple of `file_count`, so all files get equally many
        # blocks.
        block_count = file_count * -(-tokens // (file_count * BLOCK_TOKENS))
        first_file = int(self._rng.integers(file_count))
        for block in range(block_count):
            begin = block * count // block_count
            end = (block + 1) * count // block_count
            if begin < end:
                yield (first_file + block) % file_count, frames[begin:end]

    def encode(self, group: pairs.Group, rows: np.ndarray) -> Iterator[list[bytes]]:
        """Masks and serialises pairs in order, about `_BATCH_TOKENS` tokens at a time.

        Args:
            group: the documents of the pairs.
            rows: int64 [I, 5], the pairs.

        Yields:
            The records of a batch, as `records.encode` returns them.
        """
        config, tokenizer = self._config, self._tokenizer
        batch_size = max(1, _BATCH_TOKENS // config.max_seq_length)
        rules = masking.Rules(config, manifest.describe_vocabulary(tokenizer))
        for i in range(0, len(rows), batch_size):
            features = self._assemble(group.tokens, rows[i : i + batch_size])
            if config.masked_lm_prob:
                count = len(features["input_ids"])
                seeds = self._rng.integers(1 << 64, size=count, dtype=np.uint64)
                masking.mask(features, rules, seeds, self.counts)
            yield records.encode(make_spec(config), features)

    def _assemble(self, tokens: np.ndarray, batch: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the features of pairs; a row is [CLS] A [SEP] B [SEP] and padding.

        Args:
            tokens: the token ids of the group.
            batch: int64 [B, 5], the pairs.
        """
        config, tokenizer = self._config, self._tokenizer
        B, T = len(batch), config.max_seq_length
        ids = np.full((B, T), tokenizer.pad_id, np.int32)
        for i, (a_begin, a_end, b_begin, b_end, _) in enumerate(batch.tolist()):
            b_column = a_end - a_begin + 2  # [CLS], A and [SEP] come before B
            ids[i, 1 : b_column - 1] = tokens[a_begin:a_end]
            ids[i, b_column : b_column + b_end - b_begin] = tokens[b_begin:b_end]
        first_sep = batch[:, pairs.A_END] - batch[:, pairs.A_BEGIN] + 1
        last_sep = first_sep + batch[:, pairs.B_END] - batch[:, pairs.B_BEGIN] + 1
        rows, columns = np.arange(B), np.arange(T)
        special = np.zeros((B, T), bool)
        special[:, 0] = special[rows, first_sep] = special[rows, last_sep] = True
        ids[:, 0] = tokenizer.cls_id
        ids[rows, first_sep] = ids[rows, last_sep] = tokenizer.sep_id
        input_mask = columns <= last_sep[:, None]
        boundary = self._find_starts(ids)
        if config.word_start_rule == "released":
            # [MASK] marks the unknown tokens that continue a word.
            ids[ids == tokenizer.mask_id] = tokenizer.unk_id
        # With the rule "spaces", `documents._encode_words` has added `vocab_size` to
        # all ids that continue a word. This line removes it.
        ids[ids >= tokenizer.vocab_size] -= tokenizer.vocab_size
        if not config.released_behaviour:
            # The first token of A and of B counts as the start of a word.
            boundary[:, 1] = boundary[rows, first_sep + 1] = True
        self.counts["instances"] += B
        self.counts["instances_with_label_1"] += int(batch[:, pairs.LABEL].sum())
        # The length of a record without padding is last_sep + 1.
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
    blocks: Sequence[tuple[str, RecordBlock]],
) -> None:
    """Makes one output file from blocks of all shards; a job for a worker.

    This function reads the blocks in random order, and shuffles the records of about
    `WINDOW_BYTES` bytes at a time.

    Args:
        path: an empty JSON object is written to this file when the output file is
            complete.
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


def make_spec(config: CorpusSettings) -> records.Spec:
    """Returns the features of a record, with the names of the released code.

    T is `max_seq_length`. P is `max_predictions_per_seq`, doubled by `do_permutation`.

    - `input_ids`, `input_mask` (1 for tokens, 0 for padding), `segment_ids` (1 for B
      and the [SEP] after it): int [T].
    - `token_boundary`: int [T], 1 at [CLS], [SEP] and the first token of each word.
    - `masked_lm_positions`, `masked_lm_ids`: int [P]; `masked_lm_weights`: float [P], 1
      for a prediction, 0 for an unused slot. Absent if `masked_lm_prob` is 0.
    - `next_sentence_labels`: int [1]; 0 if B follows A in the text, 1 if A and B are
      swapped or if B is from another document.
    """
    features = dict.fromkeys(
        ("input_ids", "input_mask", "segment_ids", "token_boundary"),
        records.Feature("int", config.max_seq_length),
    )
    features["next_sentence_labels"] = records.Feature("int", 1)
    predictions = masking.FEATURES if config.masked_lm_prob else {}
    for name, dtype in predictions.items():
        features[name] = records.Feature(
            "float" if dtype is np.float32 else "int", config.prediction_slots
        )
    return features
