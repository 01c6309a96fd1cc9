"""What serving functions and pipelines refuse."""

import pytest

from albert_tf.model import models
from albert_tf.tasks import pretrained, text_graphs
from albert_tf.tasks.settings.pipeline import PipelineSettings
from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad.graph import question_answering

# Of each: the function, the outputs of a classifier or another model, options.
REFUSED = [
    (text_graphs.classifier, models.AlbertMultipleChoice,
     {"labels": "a", "max_seq_length": 9},
     "AlbertMultipleChoice: must be an AlbertClassifier"),
    (text_graphs.classifier, 3, {"labels": ("a", "b"), "max_seq_length": 9},
     "2 labels (a, b); expected 3, one for each output of the model"),
    (text_graphs.classifier, 3,
     {"labels": "abc", "max_seq_length": 9, "threshold": 0.5},
     "threshold 0.5: requires two labels, or several labels per text; got 3 labels"),
    (text_graphs.classifier, 2, {"labels": "ab", "max_seq_length": 9, "threshold": 1.5},
     "threshold 1.5: must be in [0, 1]"),
    (text_graphs.classifier, 2, {"labels": "ab", "max_seq_length": 97},
     "--max_seq_length=97: must be at most 96, the model's max_position_embeddings"),
    (text_graphs.regressor, 2, {"max_seq_length": 3},
     "a model of 2 outputs; expected 1"),
    (text_graphs.regressor, 1, {"max_seq_length": 3},
     "--max_seq_length=3: expected at least 4, for [CLS], two [SEP] and text"),
    (question_answering, models.AlbertSpanLabeler,
     {"threshold": 0.5, "settings": SquadSettings(max_seq_length=96)},
     "threshold 0.5: a model of SQuAD 1.1 has no null odds"),
    (question_answering, 3, {},
     "AlbertClassifier: must be an AlbertSpanLabeler or AlbertConditionalSpanLabeler"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "build", "options", "message"), REFUSED)
def test_what_does_not_fit(function, build, options, message, tokenizer, tiny, refuses):
    config = tiny(vocab_size=1503, max_position_embeddings=96)
    is_count = isinstance(build, int)
    model = models.AlbertClassifier(config, build) if is_count else build(config)
    with refuses(message):
        function(model, tokenizer, **options)


def test_targets_are_tokens(tokenizer, tiny, refuses):
    options = PipelineSettings(targets=("file", "filex"))
    with refuses(
        "target 'filex': must be one token of the vocabulary, not ['▁file', 'x']"
    ):
        pretrained.FillMask(None, tiny(vocab_size=1503), tokenizer, options)
