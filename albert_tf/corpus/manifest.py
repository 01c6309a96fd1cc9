"""The description of record files: settings, vocabulary, counts, statistics.

A run writes one description for each subset: the training files, and with
`eval_fraction` the file of held-out documents ("eval").
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any

from albert_tf.corpus import files
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.errors import InputError
from albert_tf.text.tokenization import Tokenizer

# Increase this number when the same settings begin to give other bytes.
FORMAT = 5
MAX_UNKNOWN = 0.01  # a larger share of unknown tokens causes a warning
# Counters of lost text, summed over all duplicates of the documents: with a
# `dupe_factor` of 40, a segment that is always dropped counts 40 times.
_LOST_TEXT = ("truncated_tokens", "dropped_tokens", "dropped_segments")


def read(record_file: str) -> dict[str, Any] | None:
    """Reads the description of a record file.

    All files of a subset share one description, which is named after the first path in
    `--output_file`. This function looks for a description that is named after
    `record_file`. So it finds none for the second and all further paths.

    Returns:
        The description, or None if none is found.

    Raises:
        InputError: the description cannot be read or is damaged.
    """
    path = files.description_path(record_file)
    description = files.read_json(path) or {}
    if os.path.basename(record_file) not in description.get("files", ()):
        return None
    if not description.keys() >= {"settings", "vocabulary"}:
        raise InputError(
            f"{path}: damaged, or of another version; make the records again with "
            f"create_pretraining_data.py"
        )
    return description


def copy_vocabulary(description_path: str, vocabulary: str) -> None:
    """Copies a vocabulary to the folder of a description.

    If the folder has a file of this name, nothing is copied.

    Args:
        description_path: the path of the description.
        vocabulary: the path of the vocabulary.

    Raises:
        InputError: the copy cannot be written.
    """
    folder = os.path.dirname(description_path)
    target = os.path.join(folder, os.path.basename(vocabulary))
    if files.size(target) is None:
        with files.open_binary(vocabulary) as source, files.create(target) as file:
            file.write(source.read())


def identify(
    config: CorpusSettings, tokenizer: Tokenizer, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Returns all values that decide the records, so runs can be compared.

    The input files are identified by their sizes and modification times.

    Args:
        config: the run's settings.
        tokenizer: the tokenizer of the vocabulary.
        sizes: {path: bytes} of the input files.
    """
    return {
        "format": FORMAT,
        "settings": config.to_dict(),
        "vocabulary": describe_vocabulary(tokenizer),
        "input": dict(sizes),
        "modified": {path: files.modification_time(path) for path in sizes},
    }


def describe_vocabulary(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the fingerprint, the size and the special ids of a vocabulary."""
    return {
        "fingerprint": tokenizer.fingerprint,
        "size": tokenizer.vocab_size,
        "pad_id": tokenizer.pad_id,
        "cls_id": tokenizer.cls_id,
        "sep_id": tokenizer.sep_id,
        "mask_id": tokenizer.mask_id,
        "special_ids": sorted(tokenizer.special_ids),
    }


def is_complete(
    config: CorpusSettings, identity: Mapping[str, Any], log: IO[str]
) -> bool:
    """Returns whether an earlier run with the same `identity` made all files.

    Args:
        config: the run's settings.
        identity: the result of `identify` for these settings.
        log: gets a line if the input files or the format have changed.

    Raises:
        InputError: the earlier run had other settings or another vocabulary.
    """
    for subset in config.subsets:
        path = config.description_path(subset)
        description = files.read_json(path)
        if description is None:
            return False
        old = {**description.get("settings", {}), **description.get("vocabulary", {})}
        new = {**identity["settings"], **identity["vocabulary"]}
        differences = [
            f"{key} was {json.dumps(old.get(key))}, is now {json.dumps(new.get(key))}"
            for key in {**old, **new}
            if old.get(key) != new.get(key)
        ]
        if differences:
            raise InputError(
                f"{path} is from a run with other settings ({'; '.join(differences)}); "
                f"delete it or choose another --output_file"
            )
        if any(description.get(key) != value for key, value in identity.items()):
            log.write(f"{path}: the text has changed; creating the files again\n")
            return False
        sizes = [entry["bytes"] for entry in description["files"].values()]
        if [files.size(file) for file in config.record_files(subset)] != sizes:
            return False
        # If no document was held out, there are no files of "eval", the next subset.
        if not description["statistics"]["held_out_documents"]:
            break
    return True


def summarize(description: Mapping[str, Any]) -> str:
    """Returns the main numbers of a description, as a line for the log."""
    numbers = description["statistics"]
    lost = numbers["truncated_tokens"] + numbers["dropped_tokens"]
    return (
        f"{description['subset']}: {numbers['instances']:,} instances of "
        f"{numbers['mean_length']:.1f} tokens on average, "
        f"{numbers['predicted_share']:.1%} of them predicted, "
        f"{numbers['label_1_share']:.1%} with label 1, {lost:,} tokens truncated or "
        f"dropped, {len(description['files'])} files\n"
    )


def build(
    identity: Mapping[str, Any],
    config: CorpusSettings,
    subset: Subset,
    subset_counts: Mapping[Subset, Counter],
    num_records: Mapping[tuple[Subset, int], int],
) -> dict[str, Any]:
    """Returns the description of a subset's files.

    Args:
        identity: the result of `identify`.
        config: the run's settings.
        subset: "train" or "eval".
        subset_counts: for each subset, the sum of its shards' counters.
        num_records: the number of records of each file, by its subset and its number.
    """
    folder = os.path.dirname(config.base_path(subset)) or "."
    # Entries have relative paths, since files in two folders may have the same name.
    entries = {}
    for number, path in enumerate(config.record_files(subset)):
        entry = {"records": num_records[subset, number], "bytes": files.size(path)}
        entries[os.path.relpath(path, folder)] = entry
    vocabulary = config.spm_model_file or config.vocab_file
    return {
        "subset": subset,
        **identity,
        "vocabulary_file": os.path.basename(str(vocabulary)),
        "files": entries,
        "statistics": _statistics(config, subset, subset_counts),
    }


def check_input(
    subset_counts: Mapping[Subset, Counter], config: CorpusSettings
) -> list[str]:
    """Checks the counters of the input.

    Args:
        subset_counts: for each subset, the sum of its shards' counters.
        config: the run's settings.

    Returns:
        Warnings about input that is usable, but probably not intended.

    Raises:
        InputError: there is no text to train on, there are too few documents, or a
            subset has documents but no records.
    """
    input_file = f"--input_file={','.join(config.input_file)}"
    eval_fraction = f"--eval_fraction={config.eval_fraction}"
    total = sum(subset_counts.values(), Counter())
    num_train, num_held_out = total["train_documents"], total["eval_documents"]
    num_documents = num_train + num_held_out
    unknown_share = total["train_unknown_tokens"] / max(total["train_tokens"], 1)
    needs_others = config.samples_other_documents
    # A subset with documents has no records only if all its segments were dropped.
    all_dropped = any(
        counts[f"{subset}_documents"] and not counts["instances"]
        for subset, counts in subset_counts.items()
    )
    # {message: whether the mistake was made}. Only the first mistake is reported.
    mistakes = {
        f"{input_file}: no text in it": not num_documents,
        f"{eval_fraction}: holds out all documents ({num_documents})": not num_train,
        f"{input_file}: one document, and the second segment must come from another; "
        f"expected a blank line between documents": needs_others and num_train < 2,
        f"{eval_fraction}: holds out one document of {num_documents}, and the second "
        f"segment must come from another": needs_others and num_held_out == 1,
        f"{input_file}: all {total['dropped_segments']} segments are single words; "
        f"expected sentences": all_dropped,
    }
    for message, applies in mistakes.items():
        if applies:
            raise InputError(message)
    undecodable, lines = total["undecodable_lines"], total["lines"]
    warnings = {
        f"the input is one document of {lines:,} lines, without a blank line": (
            num_documents == 1 and lines > 1
        ),
        f"{undecodable} lines have bytes that are not UTF-8": undecodable,
        f"{eval_fraction}: holds out no document of {num_documents}": (
            config.eval_fraction and not num_held_out
        ),
        f"{unknown_share:.1%} of the tokens are unknown: the vocabulary does not fit "
        f"this text": unknown_share > MAX_UNKNOWN,
    }
    return [message for message, applies in warnings.items() if applies]


def _statistics(
    config: CorpusSettings, subset: Subset, subset_counts: Mapping[Subset, Counter]
) -> dict[str, Any]:
    """Returns the statistics of a subset; the arguments are those of `describe`."""
    counts, total = subset_counts[subset], sum(subset_counts.values(), Counter())
    tokens, instances = counts["instance_tokens"], counts["instances"]
    kinds = ("masked", "kept", "random", "permuted")
    predictions = {kind: counts[f"predictions_{kind}"] for kind in kinds}
    text_counters = ("documents", "tokens", "unknown_tokens")
    return {
        **{name: counts[f"{subset}_{name}"] for name in text_counters},
        "held_out_documents": total["eval_documents"],
        **{name: total[name] for name in ("lines", "lines_cut", "undecodable_lines")},
        **{name: counts[name] for name in _LOST_TEXT},
        "instances": instances,
        "instance_tokens": tokens,
        "mean_length": tokens / instances,
        "padding_share": 1 - tokens / (instances * config.max_seq_length),
        "label_1_share": counts["instances_with_label_1"] / instances,
        "predicted_share": sum(predictions.values()) / tokens,
        "predictions": predictions,
        "words_per_span": _histogram(counts, "spans", config.ngram),
        "words_per_drawn_span": _histogram(counts, "spans_drawn", config.ngram),
    }


def _histogram(counts: Counter, name: str, ngram: int) -> dict[str, int]:
    """Returns {number of words: number of spans with this number of words}.

    Args:
        counts: the counters of a subset.
        name: "spans" for accepted spans, or "spans_drawn" for drawn spans.
        ngram: the maximum number of words per span.
    """
    spans = {str(words): counts[f"{name}/{words}"] for words in range(1, ngram + 1)}
    return {words: count for words, count in spans.items() if count}
