"""Word vectors: what stands beside what decides which tokens are alike."""

import numpy as np
import pytest

from albert_tf.corpus import word_vectors

SEP, PAD = 0, 1
ARTICLES, NOUNS, VERBS = range(2, 5), range(5, 11), range(11, 16)
RARE, V = 16, 17


@pytest.fixture(scope="module")
def rows():
    """Sentences: an article, a noun, a verb, over and over."""
    random = np.random.default_rng(3)
    draw = [random.choice(kind, (300, 4)) for kind in (ARTICLES, NOUNS, VERBS)]
    ids = np.stack(draw, axis=2).reshape(300, 12)
    ids[:, 6] = SEP
    ids[:, 11] = PAD
    ids[7, 2] = RARE
    return ids


def of(rows):
    neighbours = word_vectors.Neighbours(V)
    for part in np.split(rows, 3):
        neighbours.add(part, part > PAD)
    return neighbours


def cosine(vectors, tokens):
    lengths = np.linalg.norm(vectors, axis=1)
    table = vectors @ vectors.T / np.outer(lengths, lengths)
    return {
        (a, b): table[i, j] for i, a in enumerate(tokens) for j, b in enumerate(tokens)
    }


def test_tokens_with_like_neighbours_get_like_vectors(rows):
    tokens, vectors = of(rows).vectors(5)
    # Neither what is no text nor what is rare has one.
    assert tokens.tolist() == [*ARTICLES, *NOUNS, *VERBS]
    assert vectors.shape == (14, 5)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.square(vectors).mean(1), 1, rtol=1e-5)
    alike = cosine(vectors, tokens.tolist())
    kinds = (ARTICLES, NOUNS, VERBS)
    within = [alike[a, b] for kind in kinds for a in kind for b in kind]
    across = [alike[a, b] for a in NOUNS for b in (*ARTICLES, *VERBS)]
    assert min(within) > max(across)


def test_what_is_counted(rows):
    ids = np.array([[2, 5, 11, 0, 6, 12, 3], [3, 5, 1, 1, 1, 1, 1]])
    neighbours = word_vectors.Neighbours(V)
    neighbours.add(ids, ids > PAD)
    neighbours._count()
    counted = [
        {
            (int(a), int(b)): int(n)
            for a, b, n in zip(*table.nonzero(), table.data, strict=True)
        }
        for table in neighbours._counts
    ]
    # Two before, one before, one behind, two behind: none across SEP.
    assert counted[2] == {(2, 5): 1, (5, 11): 1, (6, 12): 1, (12, 3): 1, (3, 5): 1}
    assert counted[3] == {(2, 11): 1, (6, 3): 1}
    assert counted[1] == {(b, a): n for (a, b), n in counted[2].items()}
    assert counted[0] == {(b, a): n for (a, b), n in counted[3].items()}


def test_more_numbers_than_there_is_to_tell(rows):
    tokens, vectors = of(rows).vectors(40)
    assert vectors.shape == (len(tokens), 40)
    assert np.isfinite(vectors).all()


def test_the_same_rows_give_the_same_bits(rows, monkeypatch):
    _, expected = of(rows).vectors(6)
    monkeypatch.setattr(word_vectors, "_TOKENS_AT_ONCE", 1000)
    np.testing.assert_array_equal(of(rows).vectors(6)[1], expected)
