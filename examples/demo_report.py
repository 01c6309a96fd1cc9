"""Shows what a pretrained model learned: filled masks, sentence order, metrics."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from albert_tf.serve import predict
from albert_tf.serve.predict import AnswerSettings, Predictor
from albert_tf.text.inputs import MASK
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights.folder import ModelFolder

# Written for this page, before there was a model to try them on.
SENTENCES = (
    f"This function returns the {MASK} of the array.",
    f"An error is raised if the file does not {MASK}.",
    f"The first {MASK} is the name of the class.",
    f"If the argument is not given, the default {MASK} is used.",
)


def show(folder: Path, held_out: Path, length: int) -> None:
    """Prints fills, judgements of order, and metrics.

    Args:
        folder: the output of `run_pretraining.py`, with the vocabulary in it.
        held_out: documents that the model never saw, one sentence a line.
        length: T, the tokens of an input.
    """
    documents = held_out.read_text(encoding="utf-8").strip().split("\n\n")
    fill = predict.load(folder, AnswerSettings(task="fill_mask", top_k=3))
    judge = predict.load(folder, AnswerSettings(task="sentence_order"))
    tokenizer = ModelFolder(folder).tokenizer
    print("Words for the mask:\n")
    _show_fills(fill, SENTENCES)
    print("\nThe same in documents it has never seen, and what the author wrote:\n")
    masked = itertools.islice(_masked(documents, tokenizer), 4)
    texts, words = zip(*masked, strict=True)
    _show_fills(fill, texts, [f"   (author: {word})" for word in words])
    print("\nIs this order right? The beginnings of documents it has never seen:\n")
    for first, second in itertools.islice(_pairs(documents, tokenizer, length), 4):
        orders = [(first, second), (second, first)]
        answers = judge({"text_a": a, "text_b": b} for a, b in orders)
        right, swapped = (answer["in_order"] for answer in answers)
        print(f"  1 {first}\n  2 {second}")
        print(f"      1, 2: {right:.0%} yes     2, 1: {swapped:.0%} yes\n")
    _show_figures(folder, documents, tokenizer)


def _show_fills(
    fill: Predictor, texts: Sequence[str], after: Sequence[str] = ()
) -> None:
    answers = fill({"text": text} for text in texts)
    ends = after or [""] * len(texts)
    for text, end, answer in zip(texts, ends, answers, strict=True):
        (gap,) = answer["gaps"]
        fills = (f"{g['token'].lstrip('▁')} {g['probability']:.0%}" for g in gap)
        print(f"  {text}\n      {', '.join(fills)}{end}")


def _masked(documents: list[str], tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    """Yields first sentences of documents with a masked word, and that word.

    It is the first word in the second half that is one piece of four letters or more.
    """
    for document in documents:
        words = document.split("\n")[0].split(" ")
        for at in range(len(words) // 2, len(words) if len(words) <= 15 else 0):
            word = words[at]
            if word.isalpha() and len(word) > 3 and len(tokenizer.encode(word)) == 1:
                yield " ".join([*words[:at], MASK, *words[at + 1 :]]), word
                break


def _pairs(
    documents: list[str], tokenizer: Tokenizer, length: int
) -> Iterator[tuple[str, str]]:
    """Yields the first two sentences of documents, where they are short enough."""
    # From the end, so that other documents are seen than those with masks.
    for document in reversed(documents):
        first, second = document.split("\n")[:2]
        if sum(map(len, tokenizer.encode_batch([first, second]))) <= length - 3:
            yield first, second


def _show_figures(folder: Path, documents: list[str], tokenizer: Tokenizer) -> None:
    """Prints what the best checkpoint scored, beside what needs no learning."""
    best = json.loads((folder / "model.ckpt-best.json").read_text())
    pieces = np.bincount(np.concatenate(tokenizer.encode_batch(documents)))
    print(
        f"Right on {len(documents)} documents it has never seen (best at step "
        f"{best['step']:,}):\n"
    )
    for name, key, chance in (
        ("masked words", "masked_lm_accuracy", pieces.max() / pieces.sum()),
        ("sentence order", "sentence_order_accuracy", 0.5),
    ):
        print(f"  {name:14} {best[key]:6.1%}   without learning {chance:6.1%}")
    print(f"\nThe curves: {folder / 'training_curves.png'}")
