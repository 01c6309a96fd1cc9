import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertConfig, fine_tuning, metrics, tokenization
from albert_tf.tasks import classification
from albert_tf.tasks.text_task import TextTask

CONFIG = AlbertConfig(
    vocab_size=1500,
    embedding_size=8,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=40,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.2,
)
WORDS = ["file", "list", "string", "object"]


def declare(**changes):
    fields = {
        "name": "words",
        "source": "made here",
        "files": {"train": "train.tsv", "dev": "dev.tsv"},
        "text": ("text",),
        "label": "label",
        "labels": ("no", "yes"),
        "metrics": {"eval_accuracy": metrics.accuracy},
        "key_metric": "eval_accuracy",
    }
    return TextTask(**{**fields, **changes})


@pytest.fixture(scope="session")
def tokenizer(data):
    return tokenization.SentencePieceTokenizer(str(data / "spm_small.model"))


@pytest.fixture
def split(tmp_path, tokenizer):
    """Writes a table whose label says whether the text has the word "file"."""

    def make(declared, name, count, label):
        random = np.random.default_rng(len(name))
        lines = ["text\tlabel"]
        for _ in range(count):
            words = random.choice(WORDS, random.integers(1, 6))
            lines.append(f"{' '.join(words)}\t{label(set(words))}")
        path = tmp_path / declared.files[name]
        path.write_text("\n".join(lines) + "\n")
        table = declared.read(name, tmp_path)
        return classification.convert(
            declared, name, path, table, tokenizer, 24, tmp_path
        )

    return make


def run(task, folder, **settings):
    config = fine_tuning.FineTuningConfig(
        **{
            "output_dir": str(folder),
            "do_train": True,
            "do_eval": True,
            "train_batch_size": 8,
            "num_train_steps": 200,
            "learning_rate": 0.003,
            "save_checkpoints_steps": 50,
            **settings,
        }
    )
    return fine_tuning.run(task, config, tf.distribute.OneDeviceStrategy("/cpu:0"))


def task_of(declared, tokenizer, train, *dev):
    return classification.Classification(
        declared,
        CONFIG,
        tokenizer,
        max_seq_length=24,
        training=train,
        evaluation=dev,
    )


def has_file(words):
    return "yes" if "file" in words else "no"


def test_it_learns_and_predicts_in_order(split, tokenizer, tmp_path):
    declared = declare()
    train, dev = (
        split(declared, "train", 96, has_file),
        split(declared, "dev", 37, has_file),
    )
    task = task_of(declared, tokenizer, train, dev)
    outcome = run(task, tmp_path / "run")
    assert outcome.best["eval_accuracy"] > 0.95
    source = task.source([dev], labelled=False)
    found = classification.stacked(outcome.trainer.predict(source, 5))
    assert found.shape == (37, 2)
    right = declared.predict(found) == declared.targets(dev.examples)
    assert right.mean() == pytest.approx(outcome.best["eval_accuracy"])
    batch = task.training.make(np.array([3]), 24)
    single = outcome.trainer.model({n: v for n, v in batch.items() if n != "labels"})
    on_train = classification.stacked(
        outcome.trainer.predict(task.source([train], labelled=False), 7)
    )
    np.testing.assert_allclose(
        on_train[3], keras.ops.softmax(single["logits"])[0], atol=1e-6
    )
