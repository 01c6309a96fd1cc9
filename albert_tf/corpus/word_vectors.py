"""Word vectors from which tokens stand beside which: a start for short runs.

Of each token, its pointwise mutual information with the frequent tokens at each of four
places beside it, where that is positive (Levy, Goldberg & Dagan, 2015), reduced to E
numbers by a singular value decomposition. Tokens of one part of speech and of like
meaning get like vectors, which a masked LM would need millions of tokens to find.
"""

from typing import Any

import numpy as np
from scipy import sparse

# Places beside a token.
_OFFSETS = (-2, -1, 1, 2)
# Rare neighbours tell little, and cost memory.
_MOST_NEIGHBOURS = 3000
# A token that was seen fewer times has no vector.
_LEAST_COUNT = 4
# Neighbours are as frequent as their counts to this power: rare ones weigh less.
_SMOOTHING = 0.75
_TOKENS_AT_ONCE = 1 << 20


class Neighbours:
    """Counts which tokens stand beside which.

    Args:
        vocab_size: number of tokens, V.
    """

    def __init__(self, vocab_size: int):
        self._shape = (vocab_size, vocab_size)
        self._counts = [sparse.csr_matrix(self._shape, dtype=np.int64)] * len(_OFFSETS)
        self._seen = np.zeros(vocab_size, np.int64)
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._tokens_waiting = 0

    def add(self, ids: np.ndarray, is_text: np.ndarray) -> None:
        """Counts the neighbours in some rows.

        Args:
            ids: int [B, T], not masked.
            is_text: bool [B, T], no padding and no special token.
        """
        self._waiting.append((ids, is_text))
        self._tokens_waiting += ids.size
        if self._tokens_waiting >= _TOKENS_AT_ONCE:
            self._count()

    def vectors(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens that were seen often enough, and a vector for each.

        Args:
            size: E.

        Returns:
            int [K] and float32 [K, E], the vectors of mean square 1.
        """
        # Imported late: it takes a second.
        from sklearn.utils.extmath import randomized_svd

        self._count()
        tokens = np.flatnonzero(self._seen >= _LEAST_COUNT)
        neighbours = np.argsort(-self._seen, kind="stable")[:_MOST_NEIGHBOURS]
        table = sparse.hstack(
            [_information(counts[tokens][:, neighbours]) for counts in self._counts]
        ).tocsr()
        left, strengths, _ = randomized_svd(
            table, min(size, *table.shape), n_iter=3, random_state=0
        )
        vectors = np.zeros((len(tokens), size))
        vectors[:, : len(strengths)] = left * np.sqrt(strengths)
        vectors -= vectors.mean(0)
        root = np.sqrt(np.square(vectors).mean(1, keepdims=True))
        return tokens, (vectors / np.maximum(root, 1e-12)).astype(np.float32)

    def _count(self) -> None:
        for ids, is_text in self._waiting:
            self._seen += np.bincount(ids[is_text], minlength=len(self._seen))
        for i, offset in enumerate(_OFFSETS):
            pairs = [_pairs(*rows, offset) for rows in self._waiting]
            if pairs:
                places = np.concatenate(pairs, axis=1)
                ones = np.ones(places.shape[1], np.int64)
                added = sparse.coo_matrix((ones, places), self._shape)
                self._counts[i] = self._counts[i] + added.tocsr()
        self._waiting, self._tokens_waiting = [], 0


def _pairs(ids: np.ndarray, is_text: np.ndarray, offset: int) -> np.ndarray:
    """Returns int [2, N]: each token of the text, and the one at the offset from it."""
    first, second = slice(max(-offset, 0), None), slice(max(offset, 0), None)
    length = ids.shape[1] - abs(offset)
    both = is_text[:, first][:, :length] & is_text[:, second][:, :length]
    # With nothing between them, such as [SEP], which parts two texts.
    if abs(offset) == 2:
        both &= is_text[:, 1:-1]
    return np.stack([ids[:, first][:, :length][both], ids[:, second][:, :length][both]])


def _information(counts: Any) -> Any:
    """Returns the positive pointwise mutual information of rows and columns, sparse."""
    table = counts.tocoo()
    of_row = np.asarray(counts.sum(1), float).ravel()
    of_column = np.asarray(counts.sum(0), float).ravel() ** _SMOOTHING
    share = of_column / max(of_column.sum(), 1e-12)
    expected = of_row[table.row] * share[table.col]
    information = np.maximum(np.log(table.data / expected), 0.0)
    kept = sparse.coo_matrix((information, (table.row, table.col)), table.shape)
    kept.eliminate_zeros()
    return kept
