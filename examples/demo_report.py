"""Shows what a pretrained model learned: filled masks, sentence order, figures."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np

from albert_tf import AlbertConfig, AlbertPretrainer, weights
from albert_tf.tokenization import SentencePieceTokenizer

MASK = "[MASK]"
# Written for this page, before there was a model to try them on.
SENTENCES = (
    f"This function returns the {MASK} of the array.",
    f"An error is raised if the file does not {MASK}.",
    f"The first {MASK} is the name of the class.",
    f"If the argument is not given, the default {MASK} is used.",
)


class Model:
    """A pretrained model with its vocabulary.

    Args:
        checkpoint: a released TF1 checkpoint; `albert_config.json` lies beside it.
        vocabulary: the SentencePiece model.
        length: T, the tokens of an input.
    """

    def __init__(self, checkpoint: Path, vocabulary: Path, length: int):
        config = AlbertConfig.from_json_file(checkpoint.parent / "albert_config.json")
        self.tokenizer = SentencePieceTokenizer(str(vocabulary))
        self.length = length
        self._model = AlbertPretrainer(config)
        weights.load(self._model, checkpoint)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, in which [MASK] stands for one piece."""
        first, *others = map(self.tokenizer.encode, text.split(MASK))
        ids = list(first)
        for part in others:
            # A part such as "." begins with the piece of a space, which is not there.
            space = part and self.tokenizer.id_to_piece(part[0]) == "▁"
            ids += [self.tokenizer.mask_id, *part[bool(space) :]]
        return ids

    def fill(self, text: str, count: int = 3) -> list[tuple[str, float]]:
        """Returns the likeliest pieces for the one [MASK] of a text.

        Args:
            text: at most T - 2 pieces.
            count: how many to return.

        Returns:
            The piece, without the mark of a space, and its probability in [0, 1].
        """
        inputs = self._inputs(self.encode(text), [])
        at = inputs["input_ids"][0].tolist().index(self.tokenizer.mask_id)
        inputs["masked_lm_positions"] = np.array([[at]], np.int32)
        chances = _softmax(self._model(inputs)["mlm_logits"])[0, 0]
        best = np.argsort(-chances)[:count]
        pieces = [self.tokenizer.id_to_piece(int(id)).lstrip("▁") for id in best]
        return list(zip(pieces, chances[best].tolist(), strict=True))

    def in_order(self, first: str, second: str) -> float:
        """Returns the probability, in [0, 1], that two texts stand in order."""
        inputs = self._inputs(self.encode(first), self.encode(second))
        inputs["masked_lm_positions"] = np.zeros((1, 1), np.int32)
        return float(_softmax(self._model(inputs)["sop_logits"])[0, 0])

    def _inputs(self, first: list[int], second: list[int]) -> dict[str, np.ndarray]:
        """Puts [CLS] A [SEP] B [SEP] and padding into arrays [1, T]."""
        cls, sep = self.tokenizer.cls_id, self.tokenizer.sep_id
        ids = [cls, *first, sep, *second, *([sep] if second else [])]
        rows = np.full((3, self.length), self.tokenizer.pad_id, np.int32)
        rows[0, : len(ids)] = ids
        rows[1, : len(ids)] = 1
        rows[2, len(first) + 2 : len(ids)] = 1
        names = ("input_ids", "input_mask", "segment_ids")
        return {name: row[None] for name, row in zip(names, rows, strict=True)}


def show(folder: Path, vocabulary: Path, held_out: Path, length: int) -> None:
    """Prints fills, judgements of order, and figures.

    Args:
        folder: the output of `run_pretraining.py`.
        vocabulary: the SentencePiece model.
        held_out: documents that the model never saw, one sentence a line.
        length: T, the tokens of an input.
    """
    model = Model(folder / "model.ckpt-best", vocabulary, length)
    documents = held_out.read_text(encoding="utf-8").strip().split("\n\n")
    print("Words for the mask:\n")
    for text in SENTENCES:
        _show_fill(model, text)
    print("\nThe same in documents it has never seen, and what the author wrote:\n")
    for text, word in itertools.islice(_masked(documents, model.tokenizer), 4):
        _show_fill(model, text, f"   (author: {word})")
    print("\nIs this order right? The beginnings of documents it has never seen:\n")
    for first, second in itertools.islice(_pairs(documents, model), 4):
        right, swapped = model.in_order(first, second), model.in_order(second, first)
        print(f"  1 {first}\n  2 {second}")
        print(f"      1, 2: {right:.0%} yes     2, 1: {swapped:.0%} yes\n")
    _show_figures(folder, documents, model.tokenizer)


def _show_fill(model: Model, text: str, after: str = "") -> None:
    fills = ", ".join(f"{piece} {chance:.0%}" for piece, chance in model.fill(text))
    print(f"  {text}\n      {fills}{after}")


def _masked(
    documents: list[str], tokenizer: SentencePieceTokenizer
) -> Iterator[tuple[str, str]]:
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


def _pairs(documents: list[str], model: Model) -> Iterator[tuple[str, str]]:
    """Yields the first two sentences of documents, where they are short enough."""
    # From the end, so that other documents are seen than those with masks.
    for document in reversed(documents):
        first, second = document.split("\n")[:2]
        if len(model.encode(first)) + len(model.encode(second)) <= model.length - 3:
            yield first, second


def _show_figures(
    folder: Path, documents: list[str], tokenizer: SentencePieceTokenizer
) -> None:
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


def _softmax(logits) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.ops.softmax(logits))
