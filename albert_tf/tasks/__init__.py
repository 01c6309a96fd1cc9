"""Tasks: their data, heads, losses and scores.

    base            the contract of a task with the loop and the driver
    registry        every kind of task, by name
    pipelines       how a kind answers raw text in Python, whatever runs the model
    serving         how it does in a TensorFlow graph, as SavedModels hold it
    pretraining     masked LM and sentence order, from records
    classification  texts to labels or numbers
    text_task       a data set of it: files, columns, labels, metrics
    glue            the tasks of GLUE
    custom          the task that settings describe, such as your own table
    catalogue       all of them by name
    metrics         accuracy, F1, Matthews's and other correlations, reports by label
    confusion       the confusion matrix and its picture
    submission      predictions as released, and as GLUE's site takes them
    text_pipeline   labels and numbers of a text, in Python
    text_graphs     the same in a graph, and embeddings
    race/           one of several answers is right
    tagging/        a label for each word: named entities, parts of speech
    squad/          answers that are spans of a text
    pretrained      gaps, the order of sentences and embeddings, without fine-tuning
    settings/       the scripts' flags, and the keys of `task.json`

A family of tasks is a folder and a line of `registry`; a data set of texts is one
`TextTask` of `catalogue`.
"""
