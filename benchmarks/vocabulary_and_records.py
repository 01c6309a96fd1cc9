"""Times a vocabulary of 8,000 pieces and records for pretraining, beside Hugging Face.

From one file of text, a sentence a line and a blank line between documents, each
command in a process of its own. Hugging Face: the Unigram trainer of its tokenizers,
then the data set of sentence pairs for ALBERT that transformers had until version 4
(`LineByLineWithSOPTextDataset`, in memory, to be masked while training), stored as its
`datasets` store. Ours: `albert-tf vocabulary` and one use of each document, masked.

    python benchmarks/vocabulary_and_records.py --input_file=corpus.txt \
        --python=venv-with-transformers-4/bin/python
"""

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
PIECES, LENGTH = 8000, 128


def main():
    """Measures both, one part after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--python", default=sys.executable, help="for Hugging Face")
    args = parser.parse_args()

    from turns import measured  # of this package, which Hugging Face's Python lacks

    with tempfile.TemporaryDirectory() as folder:
        write_articles(args.input_file, Path(folder))
        ours = [sys.executable, "-m", "albert_tf.commands"]
        peer = [args.python, __file__, "--serve"]
        parts = {
            "vocabulary": (
                [
                    *(*ours, "vocabulary", f"--input_file={args.input_file}"),
                    *(f"--model_prefix={folder}/ours", f"--vocab_size={PIECES}"),
                ],
                [*peer, "vocabulary", args.input_file, folder],
            ),
            "records": (
                [
                    *(*ours, "corpus", f"--input_file={args.input_file}"),
                    f"--output_file={folder}/train.tfrecord",
                    *(f"--spm_model_file={folder}/ours.model", "--dupe_factor=1"),
                    f"--max_seq_length={LENGTH}",
                ],
                [*peer, "records", f"{folder}/articles", folder],
            ),
        }
        for name, commands in parts.items():
            own, theirs = map(measured, commands)
            for program, used in (("albert_tf", own), ("Hugging Face", theirs)):
                memory = used.memory / (1 << 30)
                print(f"{name:12}{program:14}{used.clock:8.1f} s {memory:6.2f} GiB")
            print(f"{name:12}{theirs.clock / own.clock:.1f} times as fast", flush=True)


def write_articles(path, folder):
    """Writes the text in the form that Hugging Face's data set reads."""
    (folder / "articles").mkdir()
    # The line after the first is taken for the title.
    begin, end = '<doc id="1">\n\n', "</doc>\n"
    with (
        open(path, encoding="utf-8") as lines,
        open(folder / "articles" / "text", "w", encoding="utf-8") as output,
    ):
        for is_text, article in itertools.groupby(
            lines, key=lambda line: line.strip() > ""
        ):
            if is_text:
                output.writelines([begin, *article, "\n" + end])


def serve(part, path, folder):
    """Does a part with Hugging Face's packages."""
    import transformers

    if part == "vocabulary":
        import tokenizers

        tokenizer = tokenizers.SentencePieceUnigramTokenizer()
        tokenizer.train(
            path,
            vocab_size=PIECES,
            special_tokens=SPECIAL,
            unk_token="<unk>",
            show_progress=False,
        )
        tokenizer.save(f"{folder}/theirs.json")
        return
    import datasets

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=f"{folder}/theirs.json",
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    pairs = transformers.LineByLineWithSOPTextDataset(tokenizer, path, LENGTH)
    rows = (
        {name: value.tolist() for name, value in pair.items()}
        for pair in pairs.examples
    )
    columns: dict[str, list] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    datasets.Dataset.from_dict(columns).save_to_disk(f"{folder}/theirs")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        main()
