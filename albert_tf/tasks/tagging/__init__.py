"""A label for each word: named entities as in CoNLL-2003, parts of speech.

reading     files to sentences, and the notations of labels
graph       windows of words, and spans in raw text
task        the family: its loss, scores and files
"""
