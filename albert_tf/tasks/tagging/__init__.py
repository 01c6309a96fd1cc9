"""A label for each word: named entities as in CoNLL-2003, parts of speech.

reading     reads files, and converts notations of labels
task        the task class: loss, metrics, files
pipeline    finds spans in raw text, in Python
graph       divides sentences into windows, and finds spans in a TensorFlow graph
"""
