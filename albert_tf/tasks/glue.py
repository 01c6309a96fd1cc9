"""The tasks of the GLUE benchmark (Wang et al. 2019), in its standard layout.

Labels are in the released order, names of metrics are the released ones where the
release has them; F1 and Spearman are not in the release. Recommended settings: paper,
appendix, the table of hyper-parameters, whose columns have the same order.
"""

import dataclasses

from albert_tf.data.tables import Column
from albert_tf.tasks import metrics
from albert_tf.tasks.text_task import Recommended, TextTask

_ACCURACY = {"eval_accuracy": metrics.accuracy}
_ACCURACY_AND_F1 = {"eval_accuracy": metrics.accuracy, "f1": metrics.f1}
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_COLA_COLUMNS = ("source", "label", "mark", "sentence")


def _files(folder: str) -> dict[str, str]:
    return {split: f"{folder}/{split}.tsv" for split in ("train", "dev", "test")}


COLA = TextTask(
    name="cola",
    source="Warstadt et al. 2018: The Corpus of Linguistic Acceptability",
    files=_files("CoLA"),
    headers={"train": _COLA_COLUMNS, "dev": _COLA_COLUMNS},
    text=("sentence",),
    label="label",
    labels=("0", "1"),
    metrics={"matthew_corr": metrics.matthews, **_ACCURACY},
    key_metric="matthew_corr",
    submission={"test": "CoLA.tsv"},
    names=("unacceptable", "acceptable"),
    recommended=Recommended(1e-5, 16, 0.0, 0.1, 5336, 320),
)

SST2 = TextTask(
    name="sst-2",
    source="Socher et al. 2013: The Stanford Sentiment Treebank",
    files=_files("SST-2"),
    text=("sentence",),
    label="label",
    labels=("0", "1"),
    metrics=_ACCURACY,
    key_metric="eval_accuracy",
    submission={"test": "SST-2.tsv"},
    names=("negative", "positive"),
    recommended=Recommended(1e-5, 32, 0.0, 0.1, 20935, 1256),
)

MRPC = TextTask(
    name="mrpc",
    source="Dolan and Brockett 2005: The Microsoft Research Paraphrase Corpus",
    files=_files("MRPC"),
    text=("#1 String", "#2 String"),
    label="Quality",
    labels=("0", "1"),
    metrics=_ACCURACY_AND_F1,
    key_metric="eval_accuracy",
    submission={"test": "MRPC.tsv"},
    names=("not_equivalent", "equivalent"),
    recommended=Recommended(2e-5, 32, 0.0, 0.1, 800, 200),
)

QQP = TextTask(
    name="qqp",
    source="Iyer et al. 2017: Quora Question Pairs",
    files=_files("QQP"),
    text=("question1", "question2"),
    label="is_duplicate",
    labels=("0", "1"),
    metrics=_ACCURACY_AND_F1,
    key_metric="eval_accuracy",
    index="id",
    submission={"test": "QQP.tsv"},
    names=("not_duplicate", "duplicate"),
    recommended=Recommended(5e-5, 128, 0.1, 0.1, 14000, 1000),
)

STSB = TextTask(
    name="sts-b",
    source="Cer et al. 2017: The Semantic Textual Similarity Benchmark",
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
    recommended=Recommended(2e-5, 16, 0.0, 0.1, 3598, 214),
)

MNLI = TextTask(
    name="mnli",
    source="Williams et al. 2018: The Multi-Genre NLI Corpus",
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
    metrics=_ACCURACY,
    key_metric="eval_accuracy",
    submission={"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
    recommended=Recommended(3e-5, 128, 0.0, 0.1, 10000, 1000),
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
AX = dataclasses.replace(
    MNLI,
    name="ax",
    source="Wang et al. 2019: GLUE's diagnostic table, for models trained on MNLI",
    files={
        "train": "MNLI/train.tsv",
        "dev": "MNLI/dev_matched.tsv",
        "test": "diagnostic/diagnostic.tsv",
    },
    submission={"test": "AX.tsv"},
    aliases=("diagnostic",),
)

QNLI = TextTask(
    name="qnli",
    source="Rajpurkar et al. 2016: SQuAD, recast as sentence pairs by GLUE",
    files=_files("QNLI"),
    text=(Column("question", "sentence1"), Column("sentence", "sentence2")),
    label="label",
    labels=_ENTAILMENT,
    metrics=_ACCURACY,
    key_metric="eval_accuracy",
    submission={"test": "QNLI.tsv"},
    recommended=Recommended(1e-5, 32, 0.0, 0.1, 33112, 1986),
)

RTE = TextTask(
    name="rte",
    source="Dagan et al. 2006 and others: Recognizing Textual Entailment 1, 2, 3, 5",
    files=_files("RTE"),
    text=_PAIR,
    label="label",
    labels=_ENTAILMENT,
    metrics=_ACCURACY,
    key_metric="eval_accuracy",
    submission={"test": "RTE.tsv"},
    recommended=Recommended(3e-5, 32, 0.1, 0.1, 800, 200),
)

WNLI = TextTask(
    name="wnli",
    source="Levesque et al. 2011: The Winograd Schema Challenge, recast by GLUE",
    files=_files("WNLI"),
    text=_PAIR,
    label="label",
    labels=("0", "1"),
    metrics=_ACCURACY,
    key_metric="eval_accuracy",
    submission={"test": "WNLI.tsv"},
    names=("not_entailment", "entailment"),
    recommended=Recommended(2e-5, 16, 0.1, 0.1, 2000, 250),
)
