"""The description beside record files: settings, vocabulary, counts, statistics."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import numpy as np

from albert_tf import errors
from albert_tf.corpus import files, units
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.data import json_values
from albert_tf.errors import InputError
from albert_tf.model.config import read_json_object
from albert_tf.text.tokenization import Tokenizer

# Raise it when the same settings begin to give other bytes.
FORMAT = 5
MOST_UNKNOWN = 0.01  # share of the tokens from which on there is a warning
_INPUT_COUNTERS = (
    *("lines", "lines_without_tokens", "lines_cut", "undecodable_lines"),
    *("documents_without_tokens", "divided_documents"),
)
# What programs that train on records read of their description.
_REQUIRED_KEYS: Mapping[str, Mapping[str, type]] = {
    "settings": {"objective": str},
    "vocabulary": {"fingerprint": str, "size": int},
}
# Of the subset, all duplicates together.
_RECORD_COUNTERS = (
    *("truncated_tokens", "dropped_tokens", "dropped_segments"),
    *("instances", "instance_tokens"),
)


def path_for(record_file: str) -> str:
    """Returns where the description of a record file is, or would be."""
    return files.description_of(record_file)


def of(record_file: str) -> dict[str, Any] | None:
    """Reads the description of a record file, for a program that trains on it.

    Where several unrelated names were given to `--output_file`, the description stands
    beside the first.

    Returns:
        The description, or None where there is none or it is not about this file.

    Raises:
        InputError: it is damaged: no JSON, or a value is missing, of another type, or
            contradicts another one.
    """
    path = path_for(record_file)
    description = read(path)
    if not description:
        return None
    get, name = json_values.get, os.path.basename(record_file)
    files_of = get(description, "files", dict, path)
    if name not in files_of:
        return None
    for key in ("records", "bytes"):
        get(files_of[name], key, int, f"{path}: {name}")
    for part, keys in _REQUIRED_KEYS.items():
        for key, kind in keys.items():
            get(get(description, part, dict, path), key, kind, f"{path}: {part}")
    # What a run takes for the length of an epoch, without counting.
    number = sum(get(each, "records", int, path) for each in files_of.values())
    statistics = description.get("statistics", {"instances": number})
    instances = get(statistics, "instances", int, f"{path}: statistics")
    if number != instances:
        raise InputError(
            f"{path}: {instances} instances, and {number} records in its files; "
            f"expected as many"
        )
    return description


def read(path: str) -> dict[str, Any] | None:
    """Reads a JSON object, or None where there is no file.

    Raises:
        InputError: it cannot be read or does not hold an object.
    """
    if not files.is_remote(path):
        return read_json_object(path) if os.path.exists(path) else None
    if files.size_of(path) is None:
        return None
    with files.open_binary(path) as file, errors.wrap_read(path, "a description"):
        return json.loads(file.read())


def write(path: str, content: Mapping[str, Any]) -> None:
    """Writes a JSON object; the file is complete or not there at all."""
    with files.create(path) as file:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        file.write(text.encode())


def copy_vocabulary(description: str, vocabulary: str) -> None:
    """Copies a vocabulary beside a description, unless a file of its name is there.

    Raises:
        InputError: the copy cannot be written.
    """
    target = os.path.join(os.path.dirname(description), os.path.basename(vocabulary))
    if files.size_of(target) is None:
        with files.open_binary(vocabulary) as source, files.create(target) as file:
            file.write(source.read())


def identity(
    config: CorpusSettings, tokenizer: Tokenizer, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Returns all that decides the bytes of the records; of the text, size and time."""
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
        "modified": {path: files.modified(path) for path in sizes},
    }


def is_complete(
    config: CorpusSettings, identity: Mapping[str, Any], log: IO[str]
) -> bool:
    """Returns whether an earlier run made all files, held-out documents' too.

    Args:
        config: the run's settings.
        identity: what `identity` returned for them.
        log: gets a line if the text has changed since.

    Raises:
        InputError: the earlier run had other settings or another vocabulary.
    """
    for subset in config.subsets:
        path = path_for(config.base_of(subset))
        content = read(path)
        if content is None:
            return False
        for part in ("settings", "vocabulary"):
            _check_same(path, part, content.get(part, {}), identity[part])
        if any(content.get(key) != value for key, value in identity.items()):
            log.write(f"{path}: the text has changed; creating the files again\n")
            return False
        for file, entry in zip(
            config.files_of(subset), content["files"].values(), strict=True
        ):
            if files.size_of(file) != entry["bytes"]:
                return False
        if not content["statistics"]["held_out_documents"]:
            return True
    return True


def _check_same(
    path: str, part: str, earlier: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Refuses other settings than those of finished records, and names them."""
    differences = [
        f"{part}: {key} was {json.dumps(earlier.get(key))}, is now "
        f"{json.dumps(now.get(key))}"
        for key in sorted(earlier.keys() | now.keys())
        if earlier.get(key) != now.get(key)
    ]
    if differences:
        raise InputError(
            f"{path} is from a run with other settings ({'; '.join(differences)}); "
            f"delete it or choose another --output_file"
        )


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
    parts: Sequence[units.Part],
    sizes: Sequence[int],
) -> dict[str, Any]:
    """Returns the description of a subset's files.

    Args:
        identity: what `identity` returned.
        config: the run's settings.
        subset: "train" or "eval".
        parts: what the units made, of both subsets.
        sizes: bytes of each file.
    """
    folder = os.path.dirname(config.base_of(subset)) or "."
    # Files of one name in two folders must not become one.
    names = [os.path.relpath(path, folder) for path in config.files_of(subset)]
    records = np.zeros(len(names), np.int64)
    for part in parts:
        if part.subset == subset and len(part.blocks):
            np.add.at(records, part.blocks[:, 0], part.blocks[:, 1])
    made = total(part for part in parts if part.subset == subset)
    vocabulary = config.spm_model_file or config.vocab_file
    return {
        "subset": subset,
        **identity,
        "vocabulary_file": os.path.basename(str(vocabulary)),
        "files": {
            name: {"records": count, "bytes": size}
            for name, count, size in zip(names, records.tolist(), sizes, strict=True)
        },
        "statistics": _statistics(subset, total(parts), made, config),
    }


def total(parts: Iterable[units.Part]) -> Counter:
    """Adds the counters of parts."""
    counts: Counter = Counter()
    for part in parts:
        counts.update(part.counts)
    return counts


def with_records(parts: Sequence[units.Part], config: CorpusSettings) -> list[Subset]:
    """Returns the subsets that have documents.

    Raises:
        InputError: no instance could be made of one's.
    """
    subsets = []
    for subset in config.subsets:
        made = total(part for part in parts if part.subset == subset)
        if made["instances"]:
            subsets.append(subset)
        elif made[f"{subset}_documents"]:
            raise InputError(
                f"no instance could be made: all {made['dropped_segments']} segments "
                f"are single words; expected sentences"
            )
    return subsets


def check_input(read: Counter, config: CorpusSettings) -> list[str]:
    """Judges what the units have read.

    Args:
        read: what `total` returned.
        config: the run's settings.

    Returns:
        Warnings about what is odd but can be used.

    Raises:
        InputError: there is no text to train on, or too few documents.
    """
    named = f"--input_file={','.join(config.input_file)}"
    held_out = f"--eval_fraction={config.eval_fraction}"
    documents = read["train_documents"] + read["eval_documents"]
    unknown = read["train_unknown_tokens"] / max(read["train_tokens"], 1)
    from_others = config.takes_other_documents
    mistakes = {
        f"{named}: no text in it": not documents,
        f"{held_out}: no document is left to train on; the input has {documents}": (
            not read["train_documents"]
        ),
        f"{named}: one document, and the second segment must come from another; "
        f"expected a blank line between documents": (
            from_others and read["train_documents"] < 2
        ),
        f"{held_out}: one document of {documents} is held out, and the second segment "
        f"must come from another; expected a larger share, or 0": (
            from_others and read["eval_documents"] == 1
        ),
    }
    for message, applies in mistakes.items():
        if applies:
            raise InputError(message)
    warnings = {
        f"the input is one document of {read['lines']:,} lines: no blank line parts "
        f"documents": documents == 1 and read["lines"] > 1,
        f"{read['undecodable_lines']} lines held bytes that are not UTF-8": (
            read["undecodable_lines"]
        ),
        f"no document was held out: {held_out} of {documents}": (
            config.eval_fraction and not read["eval_documents"]
        ),
        f"{unknown:.1%} of the tokens are unknown: the vocabulary is not made for this "
        f"text": unknown > MOST_UNKNOWN,
    }
    return [message for message, applies in warnings.items() if applies]


def _statistics(
    subset: Subset, read: Counter, made: Counter, config: CorpusSettings
) -> dict[str, Any]:
    tokens, instances = made["instance_tokens"], made["instances"]
    kinds = ("masked", "kept", "random", "permuted")
    predictions = {kind: made[f"predictions_{kind}"] for kind in kinds}
    return {
        "documents": made[f"{subset}_documents"],
        "tokens": made[f"{subset}_tokens"],
        "unknown_tokens": made[f"{subset}_unknown_tokens"],
        "held_out_documents": read["eval_documents"],
        **{name: read[name] for name in _INPUT_COUNTERS},
        **{name: made[name] for name in _RECORD_COUNTERS},
        "mean_length": tokens / instances,
        "padding_share": 1 - tokens / (instances * config.max_seq_length),
        "label_1_share": made["instances_with_label_1"] / instances,
        "predicted_share": sum(predictions.values()) / tokens,
        "predictions": predictions,
        "words_per_span": _histogram(made, "spans"),
        "words_per_drawn_span": _histogram(made, "spans_drawn"),
    }


def _histogram(counts: Counter, name: str) -> dict[str, int]:
    bins = {
        int(key.removeprefix(f"{name}/")): value
        for key, value in counts.items()
        if key.startswith(f"{name}/")
    }
    return {str(bin): bins[bin] for bin in sorted(bins)}
