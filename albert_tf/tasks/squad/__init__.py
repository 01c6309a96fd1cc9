"""Questions about a text, answered from it: SQuAD 1.1, SQuAD 2.0 and similar files.

reading     files to questions
locating    training answers to their places in the contexts
features    questions to windows, the inputs of a model
answers     scores of positions to answers: n-best lists, null odds, files
pipeline    raw text to answers in Python
graph       raw text to answers in a TensorFlow graph, for SavedModels
scores      exact match and F1 of the official scripts, thresholds
task        the family: heads, losses, thresholds, files
"""

from albert_tf.tasks.squad.scores import evaluate_files

__all__ = ["evaluate_files"]
