"""The tasks of the GLUE benchmark (Wang et al. 2019), in its standard layout.

Labels are in the released order, names of metrics are the released ones where the
release has them; F1 and Spearman are not in the release. `recipes` has the paper's
settings.
"""

import dataclasses

from albert_tf.data.tables import Column
from albert_tf.tasks import metrics
from albert_tf.tasks.text_task import TextTask

_ACCURACY_AND_F1 = {"eval_accuracy": metrics.accuracy, "f1": metrics.f1}
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_COLA_COLUMNS = ("source", "label", "mark", "sentence")


def _files(folder: str) -> dict[str, str]:
    return {split: f"{folder}/{split}.tsv" for split in ("train", "dev", "test")}


# Warstadt et al. 2018: The Corpus of Linguistic Acceptability.
COLA = TextTask(
    name="cola",
    files=_files("CoLA"),
    headers={"train": _COLA_COLUMNS, "dev": _COLA_COLUMNS},
    text=("sentence",),
    labels=("0", "1"),
    metrics={"matthew_corr": metrics.matthews, "eval_accuracy": metrics.accuracy},
    key_metric="matthew_corr",
    submission={"test": "CoLA.tsv"},
    names=("unacceptable", "acceptable"),
)

# Socher et al. 2013: The Stanford Sentiment Treebank.
SST2 = TextTask(
    name="sst-2",
    files=_files("SST-2"),
    text=("sentence",),
    labels=("0", "1"),
    submission={"test": "SST-2.tsv"},
    names=("negative", "positive"),
)

# Dolan and Brockett 2005: The Microsoft Research Paraphrase Corpus.
MRPC = TextTask(
    name="mrpc",
    files=_files("MRPC"),
    text=("#1 String", "#2 String"),
    label="Quality",
    labels=("0", "1"),
    metrics=_ACCURACY_AND_F1,
    submission={"test": "MRPC.tsv"},
    names=("not_equivalent", "equivalent"),
)

# Iyer et al. 2017: Quora Question Pairs.
QQP = TextTask(
    name="qqp",
    files=_files("QQP"),
    text=("question1", "question2"),
    label="is_duplicate",
    labels=("0", "1"),
    metrics=_ACCURACY_AND_F1,
    index="id",
    submission={"test": "QQP.tsv"},
    names=("not_duplicate", "duplicate"),
)

# Cer et al. 2017: The Semantic Textual Similarity Benchmark.
STSB = TextTask(
    name="sts-b",
    files=_files("STS-B"),
    text=_PAIR,
    label="score",
    labels=None,
    bounds=(0.0, 5.0),
    metrics={
        "pearson": metrics.pearson,
        "spearman": metrics.spearman,
        "MSE": metrics.mean_squared_error,
    },
    key_metric="pearson",
    submission={"test": "STS-B.tsv"},
)

# Williams et al. 2018: The Multi-Genre NLI Corpus.
MNLI = TextTask(
    name="mnli",
    files={
        "train": "MNLI/train.tsv",
        "dev": "MNLI/dev_matched.tsv",
        "test": "MNLI/test_matched.tsv",
        "dev_mismatched": "MNLI/dev_mismatched.tsv",
        "test_mismatched": "MNLI/test_mismatched.tsv",
    },
    text=_PAIR,
    label="gold_label",
    labels=("contradiction", "entailment", "neutral"),
    submission={"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
    aliases=("mnli-m", "mnli-matched"),
)

# As released: a task of its own, which evaluates on the mismatched genres alone.
MISMATCHED_MNLI = dataclasses.replace(
    MNLI,
    name="mismnli",
    files={
        "train": "MNLI/train.tsv",
        "dev": "MNLI/dev_mismatched.tsv",
        "test": "MNLI/test_mismatched.tsv",
    },
    submission={"test": "MNLI-mm.tsv"},
    aliases=("mnli-mm", "mnli-mismatched"),
)

# The released class for it is not registered, so it could not be run.
# Wang et al. 2019: GLUE's diagnostic table, for models trained on MNLI.
AX = dataclasses.replace(
    MNLI,
    name="ax",
    files={
        "train": "MNLI/train.tsv",
        "dev": "MNLI/dev_matched.tsv",
        "test": "diagnostic/diagnostic.tsv",
    },
    submission={"test": "AX.tsv"},
    aliases=("diagnostic",),
)

# Rajpurkar et al. 2016: SQuAD, recast as sentence pairs by GLUE.
QNLI = TextTask(
    name="qnli",
    files=_files("QNLI"),
    text=(Column("question", "sentence1"), Column("sentence", "sentence2")),
    labels=_ENTAILMENT,
    submission={"test": "QNLI.tsv"},
)

# Dagan et al. 2006 and others: Recognizing Textual Entailment 1, 2, 3, 5.
RTE = TextTask(
    name="rte",
    files=_files("RTE"),
    text=_PAIR,
    labels=_ENTAILMENT,
    submission={"test": "RTE.tsv"},
)

# Levesque et al. 2011: The Winograd Schema Challenge, recast by GLUE.
WNLI = TextTask(
    name="wnli",
    files=_files("WNLI"),
    text=_PAIR,
    labels=("0", "1"),
    submission={"test": "WNLI.tsv"},
    names=("not_entailment", "entailment"),
)
