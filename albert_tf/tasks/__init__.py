"""Tasks: data, heads, losses and metrics.

    base            base classes of all tasks
    registry        the classes of all task types, by name
    pipelines       base classes that answer raw text in Python, with any runtime
    serving         functions that answer raw text in a TensorFlow graph
    pretraining     masked LM and sentence order
    classification  the family of tasks that predict labels or numbers for texts
    text_task       a data set of texts: files, columns, labels, metrics
    glue            the data sets of GLUE
    custom          a data set that settings describe, such as a user's table
    catalogue       data sets by name
    metrics         accuracy, F1, correlations, reports by label
    confusion       confusion matrices and their pictures
    submission      prediction files as released, and for the GLUE website
    text_pipeline   predicts labels or numbers for texts, in Python
    text_graphs     the same in a TensorFlow graph, and embeddings
    race/           multiple choice
    tagging/        labels for words: named entities, parts of speech
    squad/          question answering
    pretrained      fill-mask, scores, sentence order and embeddings
    settings/       the scripts' flags, and the keys of `task.json`

A new family of tasks is a folder and a line in `registry`. A new data set of texts is a
`TextTask` in `catalogue`.
"""
