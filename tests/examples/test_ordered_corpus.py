import re
import runpy
from pathlib import Path

import pytest

from albert_tf.text.tokenization import WordPieceTokenizer

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(EXAMPLES / "ordered_corpus.py"))


@pytest.fixture(scope="module")
def documents(script):
    return script["documents"]


def test_every_sentence_between_the_ends_has_a_number_that_tells_its_place(documents):
    for document in documents(60, seed=5):
        _, *middle, _ = document.strip().split("\n")
        numbers = [int(re.search(r"\d+", sentence)[0]) for sentence in middle]
        assert 4 <= len(numbers) <= 8
        assert numbers == sorted(set(numbers))


def test_the_seed_decides(documents):
    assert documents(7, seed=1) == documents(7, seed=1) != documents(7, seed=2)


def test_the_vocabulary_knows_every_word(script, tmp_path):
    made = script["documents"](50, seed=3)
    path = tmp_path / "words.txt"
    path.write_text("\n".join(script["vocabulary"](made)))
    tokenizer = WordPieceTokenizer(str(path))
    ids = {id for ids in tokenizer.encode_batch(made) for id in ids}
    assert ids == set(range(5, tokenizer.vocab_size))
