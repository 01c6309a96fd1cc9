"""Prints a pretrained model's predictions for masks and sentence order, and metrics."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from albert_tf.serve import predict
from albert_tf.serve.predict import PipelineSettings, Predictor
from albert_tf.text.inputs import MASK
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights.folder import ModelFolder

# Examples in the style of the text; they were not chosen by the model's predictions.
SENTENCES = (
    f"This function returns the {MASK} of the array.",
    f"An error is raised if the file does not {MASK}.",
    f"The first {MASK} is the name of the class.",
    f"If the argument is not given, the default {MASK} is used.",
)


def show(folder: Path, held_out: Path, length: int) -> None:
    """Prints predictions for masks and for sentence order, and metrics.

    Args:
        folder: the output folder of `run_pretraining.py`, with the vocabulary.
        held_out: a file of documents that are not in the training data, with one
            sentence per line.
        length: T, the maximum number of tokens of an input.
    """
    documents = held_out.read_text(encoding="utf-8").strip().split("\n\n")
    fill_mask = predict.load(folder, PipelineSettings(task="fill_mask", top_k=3))
    score_order = predict.load(folder, PipelineSettings(task="sentence_order"))
    tokenizer = ModelFolder(folder).tokenizer
    print("Predicted words for the mask:\n")
    _print_masks(fill_mask, SENTENCES)
    print("\nThe same for documents outside the training data, with the true word:\n")
    examples = list(itertools.islice(_mask_words(documents, tokenizer), 4))
    texts = [text for text, _ in examples]
    _print_masks(fill_mask, texts, [f"   (true: {word})" for _, word in examples])
    print("\nProbability that the order is right, for other documents:\n")
    for first, second in itertools.islice(_pairs(documents, tokenizer, length), 4):
        orders = [(first, second), (second, first)]
        answers = score_order({"text_a": a, "text_b": b} for a, b in orders)
        right, swapped = (answer["in_order"] for answer in answers)
        print(f"  1 {first}\n  2 {second}")
        print(f"      1, 2: {right:.0%}     2, 1: {swapped:.0%}\n")
    _print_metrics(folder, documents, tokenizer)


def _print_masks(
    fill_mask: Predictor, texts: Sequence[str], notes: Sequence[str] = ()
) -> None:
    """Prints predictions for texts with one mask each; each text can have a note."""
    answers = fill_mask({"text": text} for text in texts)
    notes = notes or [""] * len(texts)
    for text, note, answer in zip(texts, notes, answers, strict=True):
        [tokens] = answer["gaps"]
        words = [f"{t['token'].lstrip('▁')} {t['probability']:.0%}" for t in tokens]
        print(f"  {text}\n      {', '.join(words)}{note}")


def _mask_words(
    documents: list[str], tokenizer: Tokenizer
) -> Iterator[tuple[str, str]]:
    """Yields the first sentence of documents with a masked word, and that word.

    The masked word is the first word in the sentence's second half that is a single
    token of at least four letters. Sentences of more than 15 words are skipped.
    """
    for document in documents:
        words = document.split("\n")[0].split(" ")
        if len(words) > 15:
            continue
        for i in range(len(words) // 2, len(words)):
            word = words[i]
            if word.isalpha() and len(word) > 3 and len(tokenizer.encode(word)) == 1:
                yield " ".join([*words[:i], MASK, *words[i + 1 :]]), word
                break


def _pairs(
    documents: list[str], tokenizer: Tokenizer, length: int
) -> Iterator[tuple[str, str]]:
    """Yields the first two sentences of each document, if they fit into an input.

    An input of `length` tokens also has [CLS] and two [SEP].
    """
    # From the end, because `_mask_words` uses documents from the beginning.
    for document in reversed(documents):
        first, second = document.split("\n")[:2]
        if sum(map(len, tokenizer.encode_batch([first, second]))) <= length - 3:
            yield first, second


def _print_metrics(folder: Path, documents: list[str], tokenizer: Tokenizer) -> None:
    """Prints accuracies of the best checkpoint and of constant predictions."""
    best = json.loads((folder / "model.ckpt-best.json").read_text())
    token_counts = np.bincount(np.concatenate(tokenizer.encode_batch(documents)))
    print(
        f"Accuracy on {len(documents)} documents outside the training data (best "
        f"checkpoint, step {best['step']:,}):\n"
    )
    for name, key, baseline in (
        ("masked words", "masked_lm_accuracy", token_counts.max() / token_counts.sum()),
        ("sentence order", "sentence_order_accuracy", 0.5),
    ):
        print(f"  {name:14} {best[key]:6.1%}   constant prediction {baseline:6.1%}")
    print(f"\nTraining curves: {folder / 'training_curves.png'}")
