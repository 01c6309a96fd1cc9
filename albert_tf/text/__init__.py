"""Turns text into the inputs of a model, in Python and in TensorFlow graphs.

- `tokenization`: SentencePiece and WordPiece as released: cleans text, and returns ids,
  offsets of tokens and first tokens of words.
- `hf_files`: reads vocabularies and settings of cleaning from files of transformers.
- `inputs`: joins the ids of one or two texts to `[CLS] a [SEP] b [SEP]`, truncates and
  pads.
- `words`: splits raw text into words, for tasks with a label for each word.
- `in_graph`: does the same as `tokenization`, `inputs` and `words` in a TensorFlow
  graph, for exports.
"""
