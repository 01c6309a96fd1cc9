import re
import runpy

from helpers import ROOT

from albert_tf.text.tokenization import WordPieceTokenizer


def test_numbers_tell_the_places_of_sentences_and_the_vocabulary_has_them(tmp_path):
    script = runpy.run_path(str(ROOT / "examples/ordered_corpus.py"))
    documents = script["documents"]
    made = documents(60, seed=5)
    assert made == documents(60, seed=5) != documents(60, seed=2)
    for document in made:
        _, *middle, _ = document.strip().split("\n")
        numbers = [int(re.search(r"\d+", sentence)[0]) for sentence in middle]
        assert 4 <= len(numbers) <= 8
        assert numbers == sorted(set(numbers))
    path = tmp_path / "words.txt"
    path.write_text("\n".join(script["vocabulary"](made)))
    tokenizer = WordPieceTokenizer(str(path))
    ids = {id for ids in tokenizer.encode_batch(made) for id in ids}
    assert ids == set(range(5, tokenizer.vocab_size))
