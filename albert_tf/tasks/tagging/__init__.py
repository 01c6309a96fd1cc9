"""A label for each word: named entities as in CoNLL-2003, parts of speech.

reading     files to sentences, and what their labels mean
graph       windows of words, and spans in raw text
task        the family: what it learns, scores and writes
"""
