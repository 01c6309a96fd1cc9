"""Question answering from a context: SQuAD 1.1, SQuAD 2.0 and similar files.

reading     reads questions and answers
locating    locates the training answers in the contexts
features    makes windows, the inputs of a model, from questions and contexts
answers     makes answers from scores of positions: n-best lists, null odds, files
scores      exact match and F1 as in the official scripts, thresholds
task        the task class: heads, losses, thresholds, files
pipeline    answers questions in raw text, in Python
graph       answers questions in raw text, in a TensorFlow graph
"""

from albert_tf.tasks.squad.scores import evaluate_files

__all__ = ["evaluate_files"]
