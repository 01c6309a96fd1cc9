"""Strings to ids: vocabularies, and the inputs of a model, in Python and in a graph.

- `tokenization`: SentencePiece and WordPiece as released: cleaning, ids, offsets of
  tokens, first tokens of words.
- `hf_files`: vocabularies and cleaning in the files of transformers.
- `inputs`: texts and pairs of texts to `[CLS] a [SEP] b [SEP]`, cut and padded.
- `words`: words of raw text, for labels of words.
- `in_graph`: the same as TensorFlow operations, for exports.
"""
