"""What serving functions and pipelines refuse."""

import pytest

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.tasks import pretrained, text_graphs
from albert_tf.tasks.settings.answer import AnswerSettings
from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad.graph import question_answering
from albert_tf.text.tokenization import SentencePieceTokenizer

MODELS = {
    "labels": lambda config: models.AlbertClassifier(config, 3),
    "two": lambda config: models.AlbertClassifier(config, 2),
    "value": lambda config: models.AlbertClassifier(config, 1),
    "choice": models.AlbertMultipleChoice,
    "spans": models.AlbertSpanLabeler,
}


@pytest.fixture(scope="module")
def tokenizer(data):
    return SentencePieceTokenizer(str(data / "spm_small.model"))


REFUSED = [
    (
        text_graphs.classifier,
        "labels",
        {"labels": ("a", "b"), "max_seq_length": 9},
        "2 labels (a, b); expected 3, one for each output of the model",
    ),
    (
        text_graphs.classifier,
        "labels",
        {"labels": "abc", "max_seq_length": 9, "threshold": 0.5},
        "threshold 0.5: requires two labels, or several labels per text; got 3 labels",
    ),
    (
        text_graphs.classifier,
        "two",
        {"labels": "ab", "max_seq_length": 9, "threshold": 1.5},
        "threshold 1.5: must be in [0, 1]",
    ),
    (
        text_graphs.classifier,
        "two",
        {"labels": "ab", "max_seq_length": 97},
        "--max_seq_length=97: must be at most 96, the model's max_position_embeddings",
    ),
    (
        text_graphs.classifier,
        "choice",
        {"labels": "a", "max_seq_length": 9},
        "AlbertMultipleChoice: must be an AlbertClassifier",
    ),
    (
        question_answering,
        "labels",
        {},
        "AlbertClassifier: must be an AlbertSpanLabeler or "
        "AlbertConditionalSpanLabeler",
    ),
    (
        text_graphs.regressor,
        "two",
        {"max_seq_length": 3},
        "a model of 2 outputs; expected 1",
    ),
    (
        text_graphs.regressor,
        "value",
        {"max_seq_length": 3},
        "--max_seq_length=3: expected at least 4, for [CLS], two [SEP] and text",
    ),
    (
        question_answering,
        "spans",
        {"threshold": 0.5, "settings": SquadSettings(max_seq_length=96)},
        "threshold 0.5: a model of SQuAD 1.1 has no null odds",
    ),
    (
        question_answering,
        "spans",
        {"settings": SquadSettings(max_seq_length=384)},
        "--max_seq_length=384: must be at most 96, the model's max_position_embeddings",
    ),
]


@pytest.mark.parametrize(("function", "kind", "options", "message"), REFUSED)
def test_what_does_not_fit(function, kind, options, message, tokenizer, tiny):
    model = MODELS[kind](tiny(vocab_size=1503, max_position_embeddings=96))
    with pytest.raises(InputError) as refused:
        function(model, tokenizer, **options)
    assert str(refused.value) == message


def test_targets_are_tokens(tokenizer, tiny):
    options = AnswerSettings(targets=("file", "filex"))
    with pytest.raises(InputError) as refused:
        pretrained.FillMask(None, tiny(vocab_size=1503), tokenizer, options)
    assert str(refused.value) == (
        "target 'filex': must be one token of the vocabulary, not ['▁file', 'x']"
    )
