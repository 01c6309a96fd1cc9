"""The description beside record files: settings, vocabulary, counts, statistics."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import numpy as np

from albert_tf import errors
from albert_tf.corpus import documents, files, units
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.corpus.documents import TextError
from albert_tf.data import json_values
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.model.config import read_json_object
from albert_tf.text.tokenization import Tokenizer

# Raise it when the same settings begin to give other bytes.
FORMAT = 4
MOST_UNKNOWN = 0.01  # share of the tokens from which on there is a warning
_OF_THE_INPUT = (
    *("lines", "lines_without_tokens", "lines_cut", "undecodable_lines"),
    *("documents_without_tokens", "divided_documents", "empty_files"),
)
# What programs that train on records read of their description.
_TRAITS: Mapping[str, Mapping[str, type]] = {
    "settings": {"objective": str, "random_next_sentence": bool},
    "vocabulary": {"fingerprint": str, "size": int},
}
# Of the subset, all duplicates together.
_OF_THE_RECORDS = (
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
    for part, keys in _TRAITS.items():
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
    with files.open_binary(path) as file, errors.reading(path, "a description"):
        return json.loads(file.read())


def write(path: str, content: Mapping[str, Any]) -> None:
    """Writes a JSON object; the file is complete or not there at all."""
    with atomic(path) as file:
        file.write(to_bytes(content))


def copy_vocabulary(description: str, vocabulary: str) -> None:
    """Copies a vocabulary beside a description, unless a file of its name is there.

    Raises:
        InputError: the copy cannot be written.
    """
    folder, name = os.path.dirname(description), os.path.basename(vocabulary)
    target = os.path.join(folder, name)
    if files.size_of(target) is None:
        create: Any = atomic(target)
        if files.is_remote(target):
            systems = files.beam_file_systems()
            create = systems.create(target, compression_type="uncompressed")
        with files.open_binary(vocabulary) as source, create as file:
            file.write(source.read())


def to_bytes(content: Mapping[str, Any]) -> bytes:
    """Returns a JSON object as text for people to read, in UTF-8."""
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


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


def check_same(path: str, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Compares what an earlier run wrote down with what this one is about to do.

    Of the input the names are compared; `changed_file` compares the text.

    Raises:
        InputError: they differ; the message names every difference.
    """
    differences = []
    for part in ("settings", "vocabulary", "input"):
        old, new = earlier.get(part, {}), now[part]
        if part == "settings" and old.get("released_behaviour"):
            # Earlier versions wrote the flag down, which has no effect here.
            old = {**old, "word_rule": "released"}
        for key in sorted(old.keys() | new.keys()):
            was, is_now = old.get(key), new.get(key)
            if (key in old) != (key in new) if part == "input" else was != is_now:
                differences.append(
                    f"{part}: {key} was {json.dumps(was)}, is now {json.dumps(is_now)}"
                )
    if differences:
        raise InputError(
            f"{path} is from a run with other settings ({'; '.join(differences)}); "
            f"delete it or choose another --output_file"
        )


def changed_file(
    path: str, earlier: Mapping[str, Any], now: Mapping[str, Any], log: IO[str]
) -> str | None:
    """Looks for text that is another than when a description was written.

    Size and time of a file decide, or its digest where the time alone is another.

    Args:
        path: the description. Of one that an earlier version wrote the size decides,
            and a file that is newer gets a warning.
        earlier: its contents.
        now: what `identity` returned.
        log: gets the warning.

    Returns:
        The first input file whose text has changed.
    """
    for file, size in now["input"].items():
        if size != earlier["input"][file]:
            return file
        if earlier["format"] != FORMAT:
            if files.written(file) > files.written(path):
                log.write(
                    f"warning: {file} is newer than {path}, which an earlier version "
                    f"wrote; where the text has changed, delete {path}\n"
                )
        elif now["modified"][file] != earlier["modified"][file]:
            ranges = (part for part, _ in documents.ranges({file: size}))
            digests = documents.digests(ranges)
            if documents.digest_of(file, digests) != earlier["digests"][file]:
                return file
    return None


def is_finished(
    config: CorpusSettings, identity: Mapping[str, Any], log: IO[str]
) -> bool:
    """Returns whether an earlier run made all files, held-out documents' too.

    Args:
        config: the run's settings.
        identity: what `identity` returned for them.
        log: gets a line where text has changed since.

    Raises:
        InputError: the earlier run had other settings.
    """
    path = path_for(config.base_of("train"))
    content = read(path)
    if content is None:
        return False
    check_same(path, content, identity)
    if not _has_its_files(content, config):
        return False
    changed = changed_file(path, content, identity, log)
    if changed:
        log.write(f"{path}: {changed} has changed since, so its files are made anew\n")
        return False
    if not content["statistics"]["held_out_documents"]:
        return True
    held_out = read(path_for(config.base_of("eval")))
    if held_out is None:
        return False
    check_same(path_for(config.base_of("eval")), held_out, identity)
    return _has_its_files(held_out, config)


def _has_its_files(content: Mapping[str, Any], config: CorpusSettings) -> bool:
    return all(
        files.size_of(path) == file["bytes"]
        for path, file in zip(
            config.files_of(content["subset"]), content["files"].values(), strict=True
        )
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
    made = total((part for part in parts if part.subset == subset), {})
    digests = total((part for part in parts if part.subset == "train"), {})
    vocabulary = config.spm_model_file or config.vocab_file
    return {
        "subset": subset,
        **identity,
        "digests": {
            path: documents.digest_of(path, digests) for path in identity["input"]
        },
        "vocabulary_file": os.path.basename(str(vocabulary)),
        "files": {
            name: {"records": count, "bytes": size}
            for name, count, size in zip(names, records.tolist(), sizes, strict=True)
        },
        "statistics": _statistics(
            subset, total(parts, identity["input"]), made, config
        ),
    }


def total(parts: Iterable[units.Part], sizes: Mapping[str, int]) -> Counter:
    """Adds the counters of all parts; of the input, `sizes`, the empty files."""
    counts = Counter(empty_files=list(sizes.values()).count(0))
    for part in parts:
        counts.update(part.counts)
    return counts


def with_records(parts: Sequence[units.Part], config: CorpusSettings) -> list[Subset]:
    """Returns the subsets that have documents.

    Raises:
        TextError: no instance could be made of one's.
    """
    subsets = []
    for subset in config.subsets:
        made = total((part for part in parts if part.subset == subset), {})
        if made["instances"]:
            subsets.append(subset)
        elif made[f"{subset}_documents"]:
            raise TextError(
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
        TextError: there is no text to train on, or too few documents.
    """
    _check_documents(read, config)
    documents = read["train_documents"] + read["eval_documents"]
    unknown = read["train_unknown_tokens"] / max(read["train_tokens"], 1)
    warnings = {
        f"{read['empty_files']} input files are empty": read["empty_files"],
        f"the input is one document of {read['lines']:,} lines: no blank line parts "
        f"documents": documents == 1 and read["lines"] > 1,
        f"{read['divided_documents']} documents were divided because they are very "
        f"long: are blank lines between documents missing?": read["divided_documents"],
        f"{read['undecodable_lines']} lines held bytes that are not UTF-8": read[
            "undecodable_lines"
        ],
        f"{read['lines_without_tokens']} lines gave no token and were left out": read[
            "lines_without_tokens"
        ],
        f"no document was held out: --eval_fraction={config.eval_fraction} of "
        f"{documents}": config.eval_fraction and not read["eval_documents"],
        f"{unknown:.1%} of the tokens are unknown: the vocabulary is not made for this "
        f"text": unknown > MOST_UNKNOWN,
    }
    return [message for message, applies in warnings.items() if applies]


def _check_documents(read: Counter, config: CorpusSettings) -> None:
    named = ",".join(config.input_file)
    documents = read["train_documents"] + read["eval_documents"]
    if not documents:
        raise TextError(f"--input_file={named}: no text in it")
    if not read["train_documents"]:
        raise TextError(
            f"--eval_fraction={config.eval_fraction}: no document is left to train on; "
            f"the input has {documents}"
        )
    if config.takes_other_documents and read["train_documents"] < 2:
        raise TextError(
            f"--input_file={named}: one document, and the second segment must come "
            f"from another; expected a blank line between documents"
        )
    if config.takes_other_documents and read["eval_documents"] == 1:
        raise TextError(
            f"--eval_fraction={config.eval_fraction}: one document of {documents} is "
            f"held out, and the second segment must come from another; expected a "
            f"larger share, or 0"
        )


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
        **{name: read[name] for name in _OF_THE_INPUT},
        **{name: made[name] for name in _OF_THE_RECORDS},
        "mean_length": tokens / instances,
        "padding_share": 1 - tokens / (instances * config.max_seq_length),
        "label_1_share": made["instances_with_label_1"] / instances,
        "predicted_share": sum(predictions.values()) / tokens,
        "predictions": predictions,
        "words_per_span": _histogram(made, "spans"),
        "words_per_drawn_span": _histogram(made, "spans_drawn"),
        "length_histogram_bin": units.length_bin(config),
        "length_histogram": _histogram(made, "lengths"),
    }


def _histogram(counts: Counter, name: str) -> dict[str, int]:
    bins = {
        int(key.removeprefix(f"{name}/")): value
        for key, value in counts.items()
        if key.startswith(f"{name}/")
    }
    return {str(bin): bins[bin] for bin in sorted(bins)}
