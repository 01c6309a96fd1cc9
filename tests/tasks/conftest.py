"""Files, and the recorded SQuAD sets for the tests of features and of answers."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from helpers import DATA, SHARED

from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad import features, reading
from albert_tf.text import tokenization

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "ran", "?", *"abcdefgh", "##x"]


@pytest.fixture
def write(tmp_path):
    """Writes a file with a text or JSON; returns its path."""

    def to_file(name, contents):
        text = contents if isinstance(contents, str) else json.dumps(contents)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return to_file


@pytest.fixture
def pieces(tmp_path):
    """A tokenizer of letters and a few words; an id is an index of `PIECES`."""
    path = tmp_path / "pieces.txt"
    path.write_text("\n".join(PIECES))
    return tokenization.WordPieceTokenizer(str(path))


# Name: max_seq_length, doc_stride, max_query_length, do_lower_case.
SETS = {
    "own_96_small": (96, 32, 24, True),
    "own_384_official": (384, 128, 64, True),
    "own_64_official": (64, 20, 16, True),
    "own_64_cased_official": (64, 20, 16, False),
}


@dataclasses.dataclass
class Recorded:
    name: str
    dataset: reading.Dataset
    tokenizer: tokenization.Tokenizer
    lengths: SquadSettings
    arrays: dict[str, np.ndarray]
    results: dict[str, Any]

    def windows(self, training=False):
        """The windows of the questions that the release kept."""
        return [
            window
            for window in features.make_windows(
                self.dataset, self.tokenizer, self.lengths, training=training
            )
            if window.question.id not in ("q023", "q024")
        ]

    def released_spans(self):
        """The release's map of each window, int [C, 2]: [begin, end)."""
        starts, ends = (
            self.arrays[f"predict/tok_{side}_to_orig_index"].astype(int)
            for side in ("start", "end")
        )
        cuts = np.cumsum(self.arrays["predict/tok_map_len"])[:-1]
        return np.split(np.stack([starts, ends + 1], axis=1), cuts)


@pytest.fixture(scope="session", params=SETS)
def recorded(request):
    """One of the recorded sets; those of the official vocabulary where it is there."""
    name = request.param
    folder, model = DATA, DATA / "spm_small.model"
    if name.endswith("official"):
        folder = SHARED / "golden"
        model = SHARED / "data/albert_vocab/30k-clean.model"
        if not model.exists():
            pytest.skip("needs the official vocabulary")
    length, stride, max_query_length, do_lower_case = SETS[name]
    results = json.loads((folder / "squad_own_results.json").read_text())
    with np.load(folder / "squad_own.npz") as arrays:
        return Recorded(
            name,
            reading.read(DATA / "squad_own.json"),
            tokenization.SentencePieceTokenizer(str(model), do_lower_case),
            SquadSettings(
                max_seq_length=length,
                doc_stride=stride,
                max_query_length=max_query_length,
            ),
            {
                key.removeprefix(f"{name}/"): arrays[key]
                for key in arrays
                if key.startswith(f"{name}/")
            },
            {version: results[f"{name} {version}"] for version in ("v1", "v2")},
        )


@pytest.fixture(scope="session")
def dataset():
    """Makes paragraphs of (context, (question, answer or None, its start), ...).

    Without a start, the first occurrence counts. Questions are q00, q01, ..., q10, ...
    """

    def make(*paragraphs):
        made = []
        for i, (context, *asked) in enumerate(paragraphs):
            questions = []
            for j, (text, answer, *start) in enumerate(asked):
                [start] = start or [context.find(answer or "")]
                known = () if answer is None else (reading.Answer(answer, start),)
                question = reading.Question(f"q{i}{j}", text, known, answer is None)
                questions.append(question)
            made.append(reading.Paragraph(context, tuple(questions)))
        return reading.Dataset("f.json", "2.0", tuple(made))

    return make
