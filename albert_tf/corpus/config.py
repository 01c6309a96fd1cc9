"""The settings of one run of the pretraining data generator.

Docstrings of classes are parts of --help: the first line is the heading of a group of
flags, and `Args:` has the descriptions of the flags. The released generator is
create_pretraining_data.py in Google's TensorFlow 1 code of ALBERT.
"""

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from albert_tf import flags
from albert_tf.corpus import files
from albert_tf.errors import InputError

Subset = Literal["train", "eval"]

# `to_dict` leaves out these settings. `manifest.identify` describes the input and the
# vocabulary more exactly than their paths do. The workers do not change the records.
_PATH_FIELDS = ("input_file", "spm_model_file", "vocab_file")
_WORKER_FIELDS = ("num_workers", "runner", "runner_options")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingSettings(flags.Settings):
    """Masking.

    Args:
        masked_lm_prob: Fraction of tokens to predict. 0 writes records without masks,
            for --dynamic_masking.
        max_predictions_per_seq: Maximum number of predictions per record. Default:
            masked_lm_prob times max_seq_length, rounded. --do_permutation doubles the
            maximum.
        mask_replace_prob: Fraction of the predicted tokens that are replaced by [MASK].
        random_replace_prob: Fraction of the predicted tokens that are replaced by a
            random token. The remaining predicted tokens are not changed.
        ngram: Maximum number of words per masked span.

    Raises:
        InputError: a value is out of range, or two values contradict each other.
    """

    masked_lm_prob: float = flags.field(0.15, at_least=0, below=1)
    max_predictions_per_seq: int | None = flags.field(None, at_least=1)
    mask_replace_prob: float = flags.field(0.8, at_least=0, at_most=1)
    random_replace_prob: float = flags.field(0.1, at_least=0, at_most=1)
    ngram: int = flags.field(3, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_replace_prob + self.random_replace_prob > 1:
            raise InputError(
                f"--mask_replace_prob={self.mask_replace_prob:g} and "
                f"--random_replace_prob={self.random_replace_prob:g}: expected a sum "
                f"of at most 1"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSettings(MaskingSettings):
    """Input, output and objective.

    Args:
        input_file: Text files or patterns such as corpus/*.txt, comma-separated, plain
            or gzip. Text has one sentence or paragraph per line and a blank line
            between documents. A .jsonl file has one document per line: {"text": ...}.
        output_file: TFRecord files to write, comma-separated; name@16 writes the 16
            shards name-00000-of-00016 and so on. A description (.json) is written to
            the same folder.
        spm_model_file: SentencePiece vocabulary (.model).
        vocab_file: WordPiece vocabulary (vocab.txt). Ignored if --spm_model_file is
            given.
        do_lower_case: Lower-case the text. Default: the vocabulary's setting, or true
            if it has none.
        keep_accents: Keep accents and other combining marks, which Google's released
            code removes. Default: the vocabulary's setting, or false if it has none.
        input_file_mode: Handling of invalid UTF-8: r raises an error, rb drops the
            bytes.
        encoding: Encoding of the text, such as gbk. A byte order mark has priority.
        replace_invalid_utf8: Replace invalid UTF-8 by U+FFFD instead of raising an
            error.
        max_seq_length: Number of tokens per record, including padding.
        objective: Sentence-level objective. A record has two segments, A and B. sop
            swaps A and B in half of the records; nsp takes B from another document in
            about half of the records; none does neither. Records with swapped segments
            or with B from another document have label 1, the others label 0.
        random_next_sentence: Alias of --objective=nsp.
        dupe_factor: Number of times to use each document, with different masks.
        short_seq_prob: Fraction of records with a random, shorter target length.
        favor_shorter_ngram: Draw spans of n words with probability proportional to 1/n;
            otherwise prefer longer spans.
        do_whole_word_mask: Mask whole words instead of single tokens.
        word_rule: Rule for the starts of words. word_mark uses the word marks of the
            tokens, for any script. spaces uses only spaces, for segmented Chinese text.
            released is the rule of Google's released code: with SentencePiece, a word
            also starts at every single punctuation mark, and at every token with
            characters other than English letters and punctuation.
        do_permutation: Also draw other spans with as many tokens as the masked spans,
            shuffle the tokens of these other spans, and predict them, too.
        released_behaviour: Follow Google's released generator wherever this one differs
            on purpose; docs/pretraining_data.md lists the differences.
        random_seed: Random seed.
        eval_fraction: Fraction of documents to hold out for evaluation. The name of
            their record file contains .eval.
        compress: Compress the records with gzip.
        num_workers: Number of worker processes (0 for one per core). Ignored if
            --runner is given.
        runner: Apache Beam runner, such as DirectRunner. Default: run without Beam.
        runner_options: Options of the Beam runner, comma-separated
            (--region=...,--project=...).

    Raises:
        InputError: a value is out of range, or two values contradict each other.
    """

    input_file: tuple[str, ...] = flags.field()
    output_file: tuple[str, ...] = flags.field()
    spm_model_file: str | None = flags.field(None)
    vocab_file: str | None = flags.field(None)
    do_lower_case: bool | None = flags.field(None)
    keep_accents: bool | None = flags.field(None)
    input_file_mode: Literal["r", "rb"] = flags.field("r")
    encoding: str = flags.field("utf-8")
    replace_invalid_utf8: bool = flags.field(False, excludes=("input_file_mode",))
    max_seq_length: int = flags.field(512, at_least=8, at_most=1 << 16)
    objective: Literal["sop", "nsp", "none"] = flags.field("sop")
    random_next_sentence: bool = flags.field(False)
    dupe_factor: int = flags.field(40, at_least=1, at_most=100_000)
    short_seq_prob: float = flags.field(0.1, at_least=0, at_most=1)
    favor_shorter_ngram: bool = flags.field(True)
    do_whole_word_mask: bool = flags.field(True)
    word_rule: Literal["word_mark", "spaces", "released"] = flags.field("word_mark")
    do_permutation: bool = flags.field(False)
    released_behaviour: bool = flags.field(False)
    random_seed: int = flags.field(12345, alias="seed", at_least=0)
    eval_fraction: float = flags.field(0.0, at_least=0, below=1)
    compress: bool = flags.field(False)
    num_workers: int = flags.field(0, at_least=0, at_most=4096)
    runner: str | None = flags.field(None)
    runner_options: tuple[str, ...] = flags.field((), requires=("runner",))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(self.output_file):
            raise InputError("--output_file: expected at least one file, got none")
        path, times = Counter(map(os.path.normpath, self.outputs)).most_common(1)[0]
        if times > 1:
            raise InputError(
                f"--output_file: {path} would be written twice; it is given twice, "
                f"or is this run's own description (.json) or held-out file (.eval)"
            )
        if self.random_next_sentence and self.objective == "none":
            raise InputError("--random_next_sentence and --objective=none: give one")

    def base_path(self, subset: Subset) -> str:
        """Returns the path that names a subset, such as records/text.tfrecord.

        The name of the subset's description begins with this path. The folder of
        unfinished files of both subsets is named after the path of "train". For
        "train", the path is the first name in `output_file` without @N. For "eval",
        .eval is added before the suffix: text.tfrecord becomes text.eval.tfrecord.
        """
        base = re.sub("(?<=.)@[0-9]+$", "", self.output_file[0])
        stem, suffix = os.path.splitext(base)
        return base if subset == "train" else f"{stem}.eval{suffix}"

    def description_path(self, subset: Subset) -> str:
        """Returns the path of the JSON file that describes a subset's files."""
        return files.description_path(self.base_path(subset))

    def record_files(self, subset: Subset) -> list[str]:
        """Returns the record files of a subset.

        "train" has all files of `output_file`; a name@N becomes N names. "eval" has one
        file.
        """
        if subset == "eval":
            return [self.base_path("eval")]
        paths = []
        for name in self.output_file:
            sharded = re.fullmatch("(.+)@([0-9]+)", name)
            if not sharded:
                paths.append(name)
                continue
            stem, count = sharded[1], int(sharded[2])
            if not 1 <= count <= 99_999:
                raise InputError(
                    f"--output_file={name}: expected 1 to 99999 files after the @"
                )
            paths += [f"{stem}-{i:05}-of-{count:05}" for i in range(count)]
        return paths

    @property
    def outputs(self) -> list[str]:
        """All files that a run writes: first the records, then the descriptions."""
        return [
            *(path for subset in self.subsets for path in self.record_files(subset)),
            *map(self.description_path, self.subsets),
        ]

    @property
    def subsets(self) -> list[Subset]:
        """The subsets of the documents, each with its own files; "eval" is held out."""
        return ["train", "eval"] if self.eval_fraction else ["train"]

    @property
    def samples_other_documents(self) -> bool:
        """Whether B, the second text of a pair, may be from another document.

        For nsp, it may. For sop, it may only with `released_behaviour`: if the text for
        a pair is a single line, this line becomes A, and B comes from another document.
        Without `released_behaviour`, such a line is divided into A and B.
        """
        objective = self.sentence_objective
        return objective == "nsp" or (objective == "sop" and self.released_behaviour)

    @property
    def sentence_objective(self) -> str:
        """The objective; "nsp" if `random_next_sentence` is set."""
        return "nsp" if self.random_next_sentence else self.objective

    @property
    def word_start_rule(self) -> Literal["word_mark", "spaces", "released"]:
        """The rule for word starts; "released" if `released_behaviour` is set."""
        return "released" if self.released_behaviour else self.word_rule

    @property
    def max_num_tokens(self) -> int:
        """Maximum number of text tokens in a record, without [CLS] and two [SEP]."""
        return self.max_seq_length - 3

    @property
    def max_predictions(self) -> int:
        """Maximum number of predictions in a record before `do_permutation` doubles it.

        It is 0 if the records have no masks, which --dynamic_masking draws later.
        """
        if not self.masked_lm_prob:
            return 0
        if self.max_predictions_per_seq is not None:
            return self.max_predictions_per_seq
        if self.released_behaviour:
            return 20
        return max(1, round(self.masked_lm_prob * self.max_seq_length))

    @property
    def prediction_slots(self) -> int:
        """P, the number of slots for predictions in a record; unused slots have 0."""
        return self.max_predictions * (2 if self.do_permutation else 1)

    @property
    def decode_errors(self) -> Literal["strict", "replace", "ignore"]:
        """The argument `errors` of `bytes.decode`: the handling of invalid bytes."""
        if self.input_file_mode == "rb":
            return "ignore"
        return "replace" if self.replace_invalid_utf8 else "strict"

    def to_dict(self) -> dict[str, object]:
        """Returns the settings that decide the records, as JSON values.

        The vocabulary and the input also decide them; `manifest.identify` adds these.
        """
        values = dataclasses.asdict(self)
        for name in (*_PATH_FIELDS, *_WORKER_FIELDS, "random_next_sentence"):
            del values[name]
        values["objective"] = self.sentence_objective
        values["output_file"] = [os.path.basename(name) for name in self.output_file]
        values["max_predictions_per_seq"] = self.max_predictions
        values["word_rule"] = self.word_start_rule
        return values

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "CorpusSettings":
        """Restores settings from a result of `to_dict`, with "-" for all file names.

        Raises:
            InputError: a value is out of range.
            TypeError: a setting is unknown.
        """
        values = dict(settings)
        # For records without masks, `to_dict` gives 0, which the flag does not accept.
        values["max_predictions_per_seq"] = values["max_predictions_per_seq"] or None
        # `to_dict` stores names without folders. Two files in different folders can
        # have the same name, and `__post_init__` would reject this name as given twice.
        values["output_file"] = ("-",)
        return cls(input_file=("-",), spm_model_file="-", **values)
