"""The description beside record files: settings, vocabulary, counts, statistics."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO, Any

from albert_tf import errors
from albert_tf.corpus import examples, files, text
from albert_tf.corpus.config import CorpusSettings, Subset
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.model.config import read_json_object

# Raise it when the same settings begin to give other bytes.
FORMAT = 3
# Of the whole input: from "lines" to "empty_files". Of the subset, all duplicates
# together: the others.
_COUNTERS = (
    *("lines", "lines_without_tokens", "lines_cut", "undecodable_lines"),
    *("documents_without_tokens", "divided_documents", "empty_files"),
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
        InputError: it is damaged.
    """
    description = read(path_for(record_file))
    if description and os.path.basename(record_file) in description["files"]:
        return description
    return None


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
    config: CorpusSettings, vocabulary: examples.Vocabulary, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Returns all that decides the bytes of the records; of the text, size and time."""
    return {
        "format": FORMAT,
        "settings": config.to_dict(),
        "vocabulary": {
            "fingerprint": vocabulary.fingerprint,
            "size": vocabulary.size,
            "pad_id": vocabulary.pad_id,
            "cls_id": vocabulary.cls_id,
            "sep_id": vocabulary.sep_id,
            "mask_id": vocabulary.mask_id,
            "special_ids": sorted(vocabulary.special_ids),
        },
        "input": dict(sizes),
        "modified": {path: files.modified(path) for path in sizes},
    }


def check_same(path: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Compares what an earlier run noted with what this one is about to do.

    Of the input the names are compared; `changed_file` compares the text.

    Raises:
        InputError: they differ; the message names the first difference.
    """
    for part in ("format", "settings", "vocabulary", "input"):
        old, new = found.get(part), wanted[part]
        if part == "settings" and old and old.get("released_behaviour"):
            # Earlier versions noted the flag, which has no say here.
            old = {**old, "word_rule": "released"}
        if part == "input" and old and old.keys() == new.keys():
            continue
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            keys = sorted(key for key in old | new if old.get(key) != new.get(key))
            part, old, new = f"{part}: {keys[0]}", old.get(keys[0]), new.get(keys[0])
        raise InputError(
            f"{path} is from a run with other settings ({part} was {json.dumps(old)}, "
            f"is now {json.dumps(new)}); delete it or choose another --output_file"
        )


def changed_file(
    path: str, found: Mapping[str, Any], wanted: Mapping[str, Any], log: IO[str]
) -> str | None:
    """Looks for text that is another than when a description was written.

    Size and time of a file decide, or its digest where the time alone is another.

    Args:
        path: the description. Of one without times and digests, as earlier versions
            wrote them, the size decides, and a file that is newer gets a warning.
        found: its contents.
        wanted: what `identity` returned.
        log: gets the warning.

    Returns:
        The first input file whose text has changed.
    """
    for file, size in wanted["input"].items():
        time = wanted["modified"][file]
        if size != found["input"][file]:
            return file
        if "digests" not in found:
            if files.written(file) > files.written(path):
                log.write(
                    f"warning: {file} is newer than {path}, which an earlier version "
                    f"wrote without a digest of the text; where the text has changed, "
                    f"delete {path}\n"
                )
        elif time != found["modified"][file]:
            ranges = (part for split in text.plan({file: size}) for part in split)
            if text.digest_of(file, text.digests(ranges)) != found["digests"][file]:
                return file
    return None


def is_finished(
    config: CorpusSettings, identity: Mapping[str, Any], log: IO[str]
) -> bool:
    """Says whether an earlier run made all files, those of held-out documents too.

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
    sizes: Sequence[int],
    counts: Counter,
) -> dict[str, Any]:
    """Returns the description of a subset's files.

    Args:
        identity: what `identity` returned.
        config: the run's settings.
        subset: "train" or "eval".
        sizes: bytes of each file.
        counts: the counters that the steps of the generator raised.
    """
    folder = os.path.dirname(config.base_of(subset)) or "."
    # Files of one name in two folders must not become one.
    names = (os.path.relpath(path, folder) for path in config.files_of(subset))
    found = {
        name: {"records": counts[f"records/{number}"], "bytes": size}
        for number, (name, size) in enumerate(zip(names, sizes, strict=True))
    }
    vocabulary = config.spm_model_file or config.vocab_file
    return {
        "subset": subset,
        **identity,
        "digests": {path: text.digest_of(path, counts) for path in identity["input"]},
        "vocabulary_file": os.path.basename(str(vocabulary)),
        "files": found,
        "statistics": _statistics(subset, counts, config),
    }


def _statistics(
    subset: Subset, counts: Counter, config: CorpusSettings
) -> dict[str, Any]:
    tokens, instances = counts["instance_tokens"], counts["instances"]
    kinds = ("masked", "kept", "random", "permuted")
    predictions = {kind: counts[f"predictions_{kind}"] for kind in kinds}
    return {
        "documents": counts[f"{subset}_documents"],
        "tokens": counts[f"{subset}_tokens"],
        "unknown_tokens": counts[f"{subset}_unknown_tokens"],
        "held_out_documents": counts["eval_documents"],
        **{name: counts[name] for name in _COUNTERS},
        "mean_length": tokens / instances,
        "padding_share": 1 - tokens / (instances * config.max_seq_length),
        "label_1_share": counts["instances_with_label_1"] / instances,
        "predicted_share": sum(predictions.values()) / tokens,
        "predictions": predictions,
        "words_per_span": _histogram(counts, "spans"),
        "words_per_drawn_span": _histogram(counts, "spans_drawn"),
        "length_histogram_bin": examples.length_bin(config),
        "length_histogram": _histogram(counts, "lengths"),
    }


def _histogram(counts: Counter, name: str) -> dict[str, int]:
    bins = {
        int(key.removeprefix(f"{name}/")): value
        for key, value in counts.items()
        if key.startswith(f"{name}/")
    }
    return {str(bin): bins[bin] for bin in sorted(bins)}
