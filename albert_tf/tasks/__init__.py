"""Tasks: data, heads, losses and metrics.

    base            base classes of all tasks
    registry        the classes of all task types, by name
    pipelines       base classes of pipelines: from raw text to a prediction, in Python
    serving         functions that predict from raw text in a TensorFlow graph
    pretraining     masked LM and sentence order
    classification  predicts labels or numbers for texts
    text_task       a data set of texts: files, columns, labels, metrics
    glue            the data sets of GLUE
    custom          makes the `TextTask` that settings describe, also for a user's table
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

Task types with the same task class are a family, see `registry`. A new family needs a
folder, and a line in `registry` for each of its task types. A new data set of texts
needs a `TextTask` in `catalogue`.
"""
