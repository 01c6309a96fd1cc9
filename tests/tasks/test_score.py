"""The score of a text: each token masked in turn, as a loop over its tokens has it."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from albert_tf import AlbertPretrainer
from albert_tf.serve.service import Service
from albert_tf.tasks import pretrained
from albert_tf.text import tokenization

TEXTS = ["the file is a list", "", "object", "the name of the string " * 4]
LENGTH = 12


@pytest.fixture(scope="module")
def tokenizer(data):
    return tokenization.load(str(data / "spm_small.model"), None)


@pytest.fixture(scope="module")
def model(tiny):
    return AlbertPretrainer(tiny(vocab_size=1500), sentence_head=False)


def one_by_one(model, tokenizer, text):
    """The log probabilities of a text's tokens, each in a call of its own."""
    pieces = tokenizer.encode(text)[: LENGTH - 2]
    ids = [tokenizer.cls_id, *pieces, tokenizer.sep_id]
    logs = []
    for place, piece in enumerate(pieces, 1):
        masked = [*ids[:place], tokenizer.mask_id, *ids[place + 1 :]]
        tokens = {"input_ids": [masked], "masked_lm_positions": [[place]]}
        tokens = {name: np.array(value, "int32") for name, value in tokens.items()}
        chances = ops.log_softmax(model(tokens)["mlm_logits"][0, 0])
        logs.append(float(chances[piece]))
    return logs


@pytest.mark.parametrize("at_once", [8192, 30])
def test_each_token_is_masked_in_turn(model, tokenizer, monkeypatch, at_once):
    monkeypatch.setattr(pretrained, "_TOKENS_AT_ONCE", at_once)
    answer = pretrained.score(model, tokenizer, max_seq_length=LENGTH)
    outputs = Service(answer).compiled(text=tf.constant(TEXTS))
    outputs = {name: value.numpy() for name, value in outputs.items()}
    logs = [one_by_one(model, tokenizer, text) for text in TEXTS]
    sums = [sum(each) for each in logs]
    np.testing.assert_allclose(outputs["score"], sums, atol=1e-4)
    means = [np.mean(each) if each else 0 for each in logs]
    np.testing.assert_allclose(outputs["per_token"], means, atol=1e-5)
    assert outputs["tokens"].tolist() == list(map(len, logs))
    whole = [len(tokenizer.encode(text)) for text in TEXTS]
    beyond = [length - len(each) for length, each in zip(whole, logs, strict=True)]
    assert outputs["beyond_length"].tolist() == beyond
    assert beyond[-1] > 0 == sum(beyond[:-1])


def test_an_answer_names_what_does_not_count(model, tokenizer):
    describe = pretrained.score(model, tokenizer, max_seq_length=LENGTH).describe
    outputs = {"score": -2.5, "per_token": -1.25, "tokens": 2, "beyond_length": 0}
    outputs = {name: np.array(value) for name, value in outputs.items()}
    expected = {"score": -2.5, "per_token": -1.25, "tokens": 2}
    assert describe(outputs) == expected
    longer = {**outputs, "beyond_length": np.array(3)}
    assert describe(longer) == {**expected, "beyond_length": 3}
