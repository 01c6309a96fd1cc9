"""The tasks of the GLUE benchmark (Wang et al. 2019), in its standard layout.

Labels have the order of the released code, and metrics have its names. The metrics F1
and Spearman correlation are additions. The folder `albert_tf/recipes` has the paper's
settings.
"""

import dataclasses
from typing import Any

from albert_tf.data.tables import Column
from albert_tf.tasks import metrics
from albert_tf.tasks.text_task import TextTask

# Metrics, columns of texts and labels that several tasks have.
_ACCURACY_AND_F1 = {"eval_accuracy": metrics.accuracy, "f1": metrics.f1}
_SENTENCE = ("sentence",)
_PAIR = ("sentence1", "sentence2")
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")


def _make_task(
    name: str, folder: str, text: tuple[str | Column, ...], **more: Any
) -> TextTask:
    """Makes a task with GLUE's usual file names.

    The tables are FOLDER/train.tsv, FOLDER/dev.tsv and FOLDER/test.tsv. The submission
    file is FOLDER.tsv.

    Args:
        name: the value of `--task_name`.
        folder: the folder of the tables.
        text: the column of the text, or the two columns of a pair.
        **more: other arguments of `TextTask`.
    """
    return TextTask(
        name=name,
        files={split: f"{folder}/{split}.tsv" for split in ("train", "dev", "test")},
        submission={"test": f"{folder}.tsv"},
        text=text,
        **more,
    )


# Warstadt et al. 2018: The Corpus of Linguistic Acceptability. The training and dev
# tables have no header.
COLA = _make_task(
    "cola",
    "CoLA",
    _SENTENCE,
    headers=dict.fromkeys(("train", "dev"), ("source", "label", "mark", "sentence")),
    labels=_BINARY,
    metrics={"matthew_corr": metrics.matthews, "eval_accuracy": metrics.accuracy},
    key_metric="matthew_corr",
    label_names=("unacceptable", "acceptable"),
)

# Socher et al. 2013: The Stanford Sentiment Treebank.
SST2 = _make_task(
    "sst-2", "SST-2", _SENTENCE, labels=_BINARY, label_names=("negative", "positive")
)

# Dolan and Brockett 2005: The Microsoft Research Paraphrase Corpus.
MRPC = _make_task(
    "mrpc",
    "MRPC",
    ("#1 String", "#2 String"),
    label="Quality",
    labels=_BINARY,
    metrics=_ACCURACY_AND_F1,
    label_names=("not_equivalent", "equivalent"),
)

# Iyer et al. 2017: Quora Question Pairs.
QQP = _make_task(
    "qqp",
    "QQP",
    ("question1", "question2"),
    label="is_duplicate",
    labels=_BINARY,
    metrics=_ACCURACY_AND_F1,
    index="id",
    label_names=("not_duplicate", "duplicate"),
)

# Cer et al. 2017: The Semantic Textual Similarity Benchmark.
STSB = _make_task(
    "sts-b",
    "STS-B",
    _PAIR,
    label="score",
    labels=None,
    bounds=(0.0, 5.0),
    metrics=metrics.REGRESSION,
    key_metric="pearson",
)

# The texts of the matched tables have the same genres as the training table. The texts
# of the mismatched tables have other genres.
_MNLI_FILES = {
    "train": "MNLI/train.tsv",
    "dev": "MNLI/dev_matched.tsv",
    "test": "MNLI/test_matched.tsv",
}
_MISMATCHED = {"dev": "MNLI/dev_mismatched.tsv", "test": "MNLI/test_mismatched.tsv"}

# Williams et al. 2018: The Multi-Genre NLI Corpus.
MNLI = TextTask(
    name="mnli",
    files=_MNLI_FILES | {f"{s}_mismatched": path for s, path in _MISMATCHED.items()},
    text=_PAIR,
    label="gold_label",
    labels=("contradiction", "entailment", "neutral"),
    submission={"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
    aliases=("mnli-m", "mnli-matched"),
)

# As released: a separate task that evaluates and predicts only mismatched genres.
MISMATCHED_MNLI = dataclasses.replace(
    MNLI,
    name="mismnli",
    files=_MNLI_FILES | _MISMATCHED,
    submission={"test": "MNLI-mm.tsv"},
    aliases=("mnli-mm", "mnli-mismatched"),
)

# Wang et al. 2019: GLUE's diagnostic table, for models trained on MNLI. The released
# code has a class for this table, but no name for --task_name.
AX = dataclasses.replace(
    MNLI,
    name="ax",
    files={**_MNLI_FILES, "test": "diagnostic/diagnostic.tsv"},
    submission={"test": "AX.tsv"},
    aliases=("diagnostic",),
)

# Rajpurkar et al. 2016: SQuAD as sentence pairs. Some copies of the tables name the
# columns sentence1 and sentence2.
QNLI = _make_task(
    "qnli",
    "QNLI",
    (Column("question", "sentence1"), Column("sentence", "sentence2")),
    labels=_ENTAILMENT,
)

# Dagan et al. 2006 and others: Recognizing Textual Entailment 1, 2, 3, 5.
RTE = _make_task("rte", "RTE", _PAIR, labels=_ENTAILMENT)

# Levesque et al. 2011: The Winograd Schema Challenge, converted to sentence pairs.
WNLI = _make_task(
    "wnli", "WNLI", _PAIR, labels=_BINARY, label_names=("not_entailment", "entailment")
)
