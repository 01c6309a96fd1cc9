"""The description of record files: settings, vocabulary, counts, statistics."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO, Any

from albert_tf.corpus import files
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.errors import InputError
from albert_tf.text.tokenization import Tokenizer

# Increase this number when the same settings begin to give other bytes.
FORMAT = 5
MAX_UNKNOWN = 0.01  # share of unknown tokens above which there is a warning
# Names of the counters of input lines, which are sums over all subsets.
_INPUT_COUNTERS = ("lines", "lines_cut", "undecodable_lines")
# Names of the counters of a subset, which count a text once for each duplicate.
_RECORD_COUNTERS = (
    *("truncated_tokens", "dropped_tokens", "dropped_segments"),
    *("instances", "instance_tokens"),
)


def read(record_file: str) -> dict[str, Any] | None:
    """Reads the description of a record file.

    If `--output_file` had several names, a description is found only for files of the
    first name.

    Returns:
        The description, or None if the file has none.

    Raises:
        InputError: the description cannot be read or is damaged.
    """
    path = files.description_path(record_file)
    description = files.read_json(path) or {}
    if os.path.basename(record_file) not in description.get("files", ()):
        return None
    if not _is_valid(description):
        raise InputError(
            f"{path}: damaged, or of another version; make the records again with "
            f"create_pretraining_data.py"
        )
    return description


def _is_valid(description: Mapping[str, Any]) -> bool:
    """Returns whether a description has the keys that training reads."""
    try:
        settings, vocabulary = description["settings"], description["vocabulary"]
        ids = [*vocabulary["special_ids"], vocabulary["mask_id"]]
        counts = [entry["records"] for entry in description["files"].values()]
        statistics = description.get("statistics", {"instances": sum(counts)})
        return (
            isinstance(settings["objective"], str)
            and isinstance(vocabulary["fingerprint"], str)
            and all(type(id) is int and 0 <= id < vocabulary["size"] for id in ids)
            # Training takes the length of an epoch from these numbers.
            and sum(counts) == statistics["instances"]
        )
    except (AttributeError, KeyError, TypeError):
        return False


def copy_vocabulary(description_path: str, vocabulary: str) -> None:
    """Copies a vocabulary to a description's folder if the name is free there.

    Raises:
        InputError: the copy cannot be written.
    """
    folder = os.path.dirname(description_path)
    target = os.path.join(folder, os.path.basename(vocabulary))
    if files.size(target) is None:
        with files.open_binary(vocabulary) as source, files.create(target) as file:
            file.write(source.read())


def identity(
    config: CorpusSettings, tokenizer: Tokenizer, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Returns all values that decide the records.

    The sizes and modification times of the input files represent the text.
    """
    return {
        "format": FORMAT,
        "settings": config.to_dict(),
        "vocabulary": {
            "fingerprint": tokenizer.fingerprint,
            "size": tokenizer.vocab_size,
            "pad_id": tokenizer.pad_id,
            "cls_id": tokenizer.cls_id,
            "sep_id": tokenizer.sep_id,
            "mask_id": tokenizer.mask_id,
            "special_ids": sorted(tokenizer.special_ids),
        },
        "input": dict(sizes),
        "modified": {path: files.modification_time(path) for path in sizes},
    }


def is_complete(
    config: CorpusSettings, identity: Mapping[str, Any], log: IO[str]
) -> bool:
    """Returns whether an earlier run made all files.

    Args:
        config: the run's settings.
        identity: the result of `identity` for these settings.
        log: gets a line if the text has changed.

    Raises:
        InputError: the earlier run had other settings or another vocabulary.
    """
    for subset in config.subsets:
        path = config.description_path(subset)
        description = files.read_json(path)
        if description is None:
            return False
        if differences := _differences(description, identity):
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
        # If no document was held out, there are no files of the subset "eval".
        if not description["statistics"]["held_out_documents"]:
            return True
    return True


def _differences(content: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """Returns a text about each key of the settings or vocabulary that differs."""
    differences = []
    for part in ("settings", "vocabulary"):
        old, new = content.get(part, {}), identity[part]
        for key in sorted(old.keys() | new.keys()):
            before, now = old.get(key), new.get(key)
            if before != now:
                change = f"was {json.dumps(before)}, is now {json.dumps(now)}"
                differences.append(f"{part}: {key} {change}")
    return differences


def summary(content: Mapping[str, Any]) -> str:
    """Returns a description's main numbers as a line of text."""
    numbers = content["statistics"]
    lost = numbers["truncated_tokens"] + numbers["dropped_tokens"]
    return (
        f"{content['subset']}: {numbers['instances']:,} instances of "
        f"{numbers['mean_length']:.1f} tokens on average, "
        f"{numbers['predicted_share']:.1%} of them predicted, "
        f"{numbers['label_1_share']:.1%} with label 1, {lost:,} tokens truncated or "
        f"dropped, {len(content['files'])} files\n"
    )


def describe(
    identity: Mapping[str, Any],
    config: CorpusSettings,
    subset: Subset,
    counts: Mapping[Subset, Counter],
    records: Sequence[int],
) -> dict[str, Any]:
    """Returns the description of a subset's files.

    Args:
        identity: the result of `identity`.
        config: the run's settings.
        subset: "train" or "eval".
        counts: for each subset, the sum of its shards' counters.
        records: number of records of each file.
    """
    folder = os.path.dirname(config.base_path(subset)) or "."
    # Files in two folders may have the same name.
    entries = {
        os.path.relpath(path, folder): {"records": count, "bytes": files.size(path)}
        for path, count in zip(config.record_files(subset), records, strict=True)
    }
    vocabulary = config.spm_model_file or config.vocab_file
    return {
        "subset": subset,
        **identity,
        "vocabulary_file": os.path.basename(str(vocabulary)),
        "files": entries,
        "statistics": _statistics(
            subset, sum(counts.values(), Counter()), counts[subset], config
        ),
    }


def nonempty_subsets(counts: Mapping[Subset, Counter]) -> list[Subset]:
    """Returns the subsets that have records, given the counters of all subsets.

    Raises:
        InputError: a subset has documents, but no records.
    """
    for subset, counter in counts.items():
        if counter[f"{subset}_documents"] and not counter["instances"]:
            raise InputError(
                f"no instance could be made: all {counter['dropped_segments']} "
                f"segments are single words; expected sentences"
            )
    return [subset for subset, counter in counts.items() if counter["instances"]]


def check_input(counts: Counter, config: CorpusSettings) -> list[str]:
    """Checks the shards' input.

    Args:
        counts: the sum of all shards' counters.
        config: the run's settings.

    Returns:
        Warnings about input that is odd but usable.

    Raises:
        InputError: there is no text to train on, or too few documents.
    """
    input_file = f"--input_file={','.join(config.input_file)}"
    eval_fraction = f"--eval_fraction={config.eval_fraction}"
    num_train, num_held_out = counts["train_documents"], counts["eval_documents"]
    documents = num_train + num_held_out
    unknown = counts["train_unknown_tokens"] / max(counts["train_tokens"], 1)
    # {message: whether it applies}
    mistakes = {
        f"{input_file}: no text in it": not documents,
        f"{eval_fraction}: no document is left to train on; the input has "
        f"{documents}": not num_train,
        f"{input_file}: one document, and the second segment must come from another; "
        f"expected a blank line between documents": (
            config.samples_other_documents and num_train < 2
        ),
        f"{eval_fraction}: one document of {documents} is held out, and the second "
        f"segment must come from another; expected a larger share, or 0": (
            config.samples_other_documents and num_held_out == 1
        ),
    }
    for message, applies in mistakes.items():
        if applies:
            raise InputError(message)
    warnings = {
        f"the input is one document of {counts['lines']:,} lines: no blank line parts "
        f"documents": documents == 1 and counts["lines"] > 1,
        f"{counts['undecodable_lines']} lines held bytes that are not UTF-8": (
            counts["undecodable_lines"]
        ),
        f"no document was held out: {eval_fraction} of {documents}": (
            config.eval_fraction and not num_held_out
        ),
        f"{unknown:.1%} of the tokens are unknown: the vocabulary is not made for this "
        f"text": unknown > MAX_UNKNOWN,
    }
    return [message for message, applies in warnings.items() if applies]


def _statistics(
    subset: Subset, total: Counter, counts: Counter, config: CorpusSettings
) -> dict[str, Any]:
    """Returns the statistics of a subset.

    Args:
        subset: "train" or "eval".
        total: the sum of the counters of all subsets.
        counts: the counters of the subset.
        config: the run's settings.
    """
    tokens, instances = counts["instance_tokens"], counts["instances"]
    kinds = ("masked", "kept", "random", "permuted")
    predictions = {kind: counts[f"predictions_{kind}"] for kind in kinds}
    return {
        "documents": counts[f"{subset}_documents"],
        "tokens": counts[f"{subset}_tokens"],
        "unknown_tokens": counts[f"{subset}_unknown_tokens"],
        "held_out_documents": total["eval_documents"],
        **{name: total[name] for name in _INPUT_COUNTERS},
        **{name: counts[name] for name in _RECORD_COUNTERS},
        "mean_length": tokens / instances,
        "padding_share": 1 - tokens / (instances * config.max_seq_length),
        "label_1_share": counts["instances_with_label_1"] / instances,
        "predicted_share": sum(predictions.values()) / tokens,
        "predictions": predictions,
        "words_per_span": _histogram(counts, "spans", config.ngram),
        "words_per_drawn_span": _histogram(counts, "spans_drawn", config.ngram),
    }


def _histogram(counts: Counter, name: str, ngram: int) -> dict[str, int]:
    """Returns {number of words: number of spans with so many words}."""
    spans = {str(words): counts[f"{name}/{words}"] for words in range(1, ngram + 1)}
    return {words: count for words, count in spans.items() if count}
