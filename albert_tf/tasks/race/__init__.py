"""Reading comprehension with choices: RACE (Lai et al. 2017), and sets like it.

reading    files to questions
features   questions to the model's inputs
task       the family: loss, accuracies, predictions
pipeline   questions with choices to answers, in Python
graph      the same in a TensorFlow graph
"""
