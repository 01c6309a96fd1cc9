"""Prints pretraining records as tables with one token per line.

    python examples/show_records.py --input_file=train.tfrecord --records=2

The folder of the records must also have the description and the vocabulary that
`create_pretraining_data.py` (the generator) wrote there. docs/data_flow.md explains the
tables.
"""

import argparse
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from albert_tf.corpus import manifest
from albert_tf.data import records
from albert_tf.errors import InputError
from albert_tf.text import tokenization
from albert_tf.text.tokenization import Tokenizer

# The meaning of 0 and 1 in `next_sentence_labels`: the order of the segments A and B.
LABELS = ("A before B", "swapped")


def tables(path: str, count: int) -> Iterator[str]:
    """Yields the first records of a file as tables.

    Args:
        path: a file of records that the generator wrote.
        count: the number of records.

    Raises:
        InputError: the file, its description or its vocabulary cannot be read.
    """
    description = manifest.read(path)
    if description is None:
        raise InputError(f"{path}: expected the generator's description in its folder")
    vocabulary = str(Path(path).parent / description["vocabulary_file"])
    is_wordpiece = vocabulary.endswith(".txt")
    tokenizer = tokenization.load(
        vocab_file=vocabulary if is_wordpiece else None,
        spm_model_file=None if is_wordpiece else vocabulary,
    )
    batches = records.dataset([path], records.features_of(path), batch_size=1)
    for batch in itertools.islice(batches.as_numpy_iterator(), count):
        yield table({name: values[0] for name, values in batch.items()}, tokenizer)


def table(record: Mapping[str, np.ndarray], tokenizer: Tokenizer) -> str:
    """Returns a record as a table: a line for each token, and one for all padding."""
    predictions = {
        int(position): tokenizer.id_to_piece(int(id))
        for position, id, weight in zip(
            record["masked_lm_positions"],
            record["masked_lm_ids"],
            record["masked_lm_weights"],
            strict=True,
        )
        if weight
    }
    [label] = record["next_sentence_labels"].tolist()
    lines = [f"next_sentence_labels {label}: {LABELS[label]}"]
    lines += ["position  input_ids  segment_ids  token_boundary  token      predict"]
    length = int(record["input_mask"].sum())
    for position in range(length):
        id = int(record["input_ids"][position])
        segment = int(record["segment_ids"][position])
        boundary = int(record["token_boundary"][position])
        lines.append(
            f"{position:8}  {id:9}  {segment:11}  {boundary:14}  "
            f"{tokenizer.id_to_piece(id):9}  {predictions.get(position, '')}".rstrip()
        )
    padding = len(record["input_ids"]) - length
    lines.append(f"input_mask: {length} times 1, {padding} times 0 (padding)")
    return "\n".join(lines)


def main() -> None:
    """Reads the flags, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--records", type=int, default=1)
    args = parser.parse_args()
    print("\n\n".join(tables(args.input_file, args.records)))


if __name__ == "__main__":
    main()
