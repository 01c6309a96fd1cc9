"""Tasks: data, heads, losses and metrics.

    base            base classes of all tasks
    registry        the classes of all task types, by name
    pipelines       base classes of pipelines, which answer raw text in Python
    serving         functions that answer raw text in a TensorFlow graph
    pretraining     masked LM and sentence order
    classification  predicts labels or numbers for texts
    text_task       a data set of texts: files, columns, labels, metrics
    glue            the data sets of GLUE
    custom          makes the data set that settings describe, such as a user's table
    catalogue       the data sets that `--task_name` can name, such as MNLI
    head_labels     matches the labels of a loaded head with the labels of a task
    metrics         accuracy, F1, correlations, reports by label
    confusion       confusion matrices and their pictures
    text_pipeline   pipelines that predict labels or numbers for texts
    text_graphs     TensorFlow graphs that predict labels or numbers, or embed texts
    race/           multiple choice
    tagging/        labels for words: named entities, parts of speech
    squad/          question answering
    pretrained      pipelines without fine-tuning: fill-mask, scores, embeddings
    settings/       the scripts' flags, and the keys of `task.json`

A new family of task types (see `registry`) needs a folder and a line in `registry`. A
new data set of texts needs a `TextTask` in `catalogue`.
"""
