"""Tasks: data, heads, losses and metrics.

    base            base classes of all tasks
    registry        the classes of all task types, by name
    pipelines       base classes that answer raw text in Python, with any runtime
    serving         functions that answer raw text in a TensorFlow graph
    pretraining     masked LM and sentence order
    classification  the family of tasks that predict labels or numbers of texts
    text_task       a data set of texts: files, columns, labels, metrics
    glue            the data sets of GLUE
    custom          the data set of the settings, such as a user's table
    catalogue       the data sets with a name, such as MNLI
    head_labels     matches the labels of a loaded head with the labels of a task
    metrics         accuracy, F1, correlations, reports by label
    confusion       confusion matrices and their pictures
    text_pipeline   predicts labels or numbers of texts, in Python
    text_graphs     predicts labels, numbers or embeddings in a TensorFlow graph
    race/           multiple choice
    tagging/        labels for words: named entities, parts of speech
    squad/          question answering
    pretrained      pipelines without fine-tuning: fill-mask, scores, embeddings
    settings/       the scripts' flags, and the keys of `task.json`

A new family of tasks needs a folder and a line in `registry`. A new data set of texts
needs a `TextTask` in `catalogue`.
"""
