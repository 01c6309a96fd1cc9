"""Turns text into the inputs of a model, in Python and in TensorFlow graphs.

- `tokenization`: SentencePiece and WordPiece as released: cleaning, ids, offsets of
  tokens, first tokens of words.
- `hf_files`: reads vocabularies and cleaning from the files of transformers.
- `inputs`: joins the ids of one or two texts to `[CLS] a [SEP] b [SEP]`, truncates and
  pads.
- `words`: splits raw text into words, for labels of words.
- `in_graph`: the functions of these modules as TensorFlow operations, for exports.
"""
