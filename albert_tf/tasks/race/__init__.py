"""Multiple choice about a passage: RACE (Lai et al. 2017) and similar data sets.

reading    reads questions
features   encodes questions as inputs of the model
task       the task class: loss, accuracies, files with predictions
pipeline   chooses answers, in Python
graph      chooses answers, in a TensorFlow graph
"""
