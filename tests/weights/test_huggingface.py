"""Files for transformers in the folder of weights; tests/huggingface runs them."""

import dataclasses
import json
from pathlib import Path

import pytest
from helpers import SMALL_MODEL, refusal, tiny

from albert_tf import weights
from albert_tf.corpus import vocabulary
from albert_tf.model import models
from albert_tf.serve import convert
from albert_tf.serve.settings import ConversionSettings
from albert_tf.text import tokenization
from albert_tf.weights import huggingface, metadata

CONFIG = tiny(vocab_size=1500, num_hidden_layers=1, max_position_embeddings=64)
TEXTS = [
    *("", " ", "  two  spaces ", "größe Größe Straße ﬁn", "ΩΣ ΣΩΣ Σ", "İstanbul"),
    *(
        "각 한국어",
        "用python写 中文 (hello)",
        "😀😀 emoji 👩‍👧 ok",
        "€5 \u2013 “q” \u2018x\u2019",
    ),
    *("``quoted'' text", "tab\there\nnew\x0bvt\x1cfs\x85nel\u2028ls\u3000id", "й ї ё"),
    *("हिन्दी में", "মো কো", "ẍ̂ q̣̇ q̣̇", "zero\u200bwidth soft\u00adhyphen", "が パ"),
    *("In 1,000 or in 2,000, the list of 1997, as of (1998).", "¨ \u00b4 ˚", "x" * 300),
]
RUN = {"kind": "classification", "texts": 1, "max_seq_length": 40}


@pytest.fixture(scope="module")
def small():
    return tokenization.SentencePieceTokenizer(SMALL_MODEL)


@pytest.fixture
def wordpiece(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "मि", "of", "é", "e"]
    pieces += ["##" + piece for piece in (*pieces[5:], "ि", "ω", "ς", "n")]
    pieces += [*"($).中ςω", "म", "हिन्दी", "x" * 200, "x", "in"]
    (tmp_path / "own.txt").write_text("\n".join(pieces) + "\n")
    return str(tmp_path / "own.txt")


def write_and_read(tokenizer, folder):
    """Writes the files, and returns the tokenizer that transformers makes of them."""
    tokenizers = pytest.importorskip("tokenizers")
    for name, contents in huggingface.make_tokenizer_files(tokenizer, 40).items():
        (folder / name).write_bytes(contents)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def settings_in(folder):
    return json.loads((folder / "tokenizer_config.json").read_text())


def assert_same_ids(tokenizer, folder, texts=TEXTS):
    theirs = write_and_read(tokenizer, folder)
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert theirs.encode(text, add_special_tokens=False).ids == ids, text
    return theirs


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("accents", [True, False])
def test_sentencepiece_ids_are_the_same(lower, accents, tmp_path):
    tokenizer = tokenization.SentencePieceTokenizer(SMALL_MODEL, lower, accents)
    theirs = assert_same_ids(tokenizer, tmp_path)
    a, b = tokenizer.encode("the list"), tokenizer.encode("of a file")
    pair = theirs.encode("the list", "of a file")
    assert pair.ids == [2, *a, 3, *b, 3]
    assert pair.type_ids == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert (tmp_path / "spiece.model").read_bytes() == tokenizer.contents
    settings = settings_in(tmp_path)
    assert settings["do_lower_case"] is lower
    assert settings["keep_accents"] is accents
    assert settings["model_max_length"] == 40
    special = json.loads((tmp_path / "special_tokens_map.json").read_text())
    expected = {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]"}
    expected |= {"mask": "[MASK]", "bos": "[CLS]", "eos": "[SEP]"}
    assert special == {f"{name}_token": token for name, token in expected.items()}


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("accents", [True, False])
def test_wordpiece_ids_are_the_same(lower, accents, wordpiece, tmp_path):
    tokenizer = tokenization.WordPieceTokenizer(wordpiece, lower, accents)
    more = ["मि é É e\u0301 OF of", "x" * 200, "x" * 201, "in\x07of \ue000 of\u0378of"]
    assert_same_ids(tokenizer, tmp_path, [*TEXTS, *more])
    assert (tmp_path / "vocab.txt").read_text() == Path(wordpiece).read_text()


def test_bytes_and_symbols_of_ones_own_are_the_same(tmp_path):
    (tmp_path / "text").write_text("some words of a <name> and others\n" * 30)
    vocabulary.train_files(
        vocabulary.VocabularySettings(
            input_file=(str(tmp_path / "text"),),
            model_prefix=str(tmp_path / "own"),
            vocab_size=277,
            byte_fallback=True,
            user_defined_symbols=("<name>",),
        )
    )
    tokenizer = tokenization.SentencePieceTokenizer(str(tmp_path / "own.model"))
    texts = ["words of<name>and", "ø 中 words", "<name> <NAME>"]
    assert_same_ids(tokenizer, tmp_path, texts)
    assert tokenizer.unk_id not in tokenizer.encode(texts[1])


def test_text_after_a_gap_begins_a_word_but_punctuation_does_not(small, tmp_path):
    theirs = write_and_read(small, tmp_path)
    text = "The [MASK] of a [MASK].[MASK]list"
    assert theirs.encode(text, add_special_tokens=False).ids == [
        *(*small.encode("The"), small.mask_id, *small.encode("of a"), small.mask_id),
        *(small.piece_to_id("."), small.mask_id, *small.encode("list")),
    ]


def test_a_model_of_another_type_is_refused(small, tmp_path):
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(small.contents)
    proto.trainer_spec.model_type = proto.trainer_spec.BPE
    path = tmp_path / "bpe.model"
    path.write_bytes(proto.SerializeToString())
    tokenizer = tokenization.SentencePieceTokenizer(str(path))
    assert refusal(huggingface.make_tokenizer_files, tokenizer, 40) == (
        f"{path}: a SentencePiece model of type bpe; expected unigram, the only "
        f"type that can be written for transformers"
    )


# --- whole folders ---


def converted(folder, output, **more):
    files = {"input": str(folder), "output": str(output)}
    convert.convert(ConversionSettings(**files, output_format="hf", **more))
    return json.loads((output / "config.json").read_text())


def classifier(count):
    return lambda config: models.AlbertClassifier(config, count)


@pytest.mark.parametrize(
    ("kind", "model", "labels", "architecture", "problem"),
    [
        ("classification", classifier(3), ["größe", "no", "yes"],
         "SequenceClassification", "single_label_classification"),
        ("multi_label", classifier(2), ["a", "b"],
         "SequenceClassification", "multi_label_classification"),
        ("regression", classifier(1), None, "SequenceClassification", "regression"),
        ("token_classification", lambda c: models.AlbertTokenClassifier(c, 3),
         ["O", "B-PER", "I-PER"], "TokenClassification", None),
        ("multiple_choice", models.AlbertMultipleChoice, None, "MultipleChoice", None),
        ("question_answering", models.AlbertSpanLabeler, None, "QuestionAnswering",
         None),
    ],
)  # fmt: skip
def test_a_run_is_written_with_its_head_and_labels(
    kind, model, labels, architecture, problem, small, tmp_path, capsys
):
    run, length = tmp_path / "run", 40 if labels else 90  # the model has 64 positions
    task = {"kind": kind, "labels": labels, "max_seq_length": length}
    metadata.write(run, small, {**RUN, **task})
    weights.save(model(CONFIG), run, "tf1")
    config = converted(run, tmp_path / "hf")
    assert config["architectures"] == [f"AlbertFor{architecture}"]
    assert config.get("problem_type") == problem
    names = ["LABEL_0"] if kind == "regression" else labels or []
    assert config.get("id2label", {}) == {str(i): name for i, name in enumerate(names)}
    assert config.get("label2id", {}) == {name: i for i, name in enumerate(names)}
    assert {path.name for path in (tmp_path / "hf").iterdir()} == {
        *("config.json", "model.safetensors", "spiece.model", "tokenizer.json"),
        *("tokenizer_config.json", "special_tokens_map.json"),
    }
    assert settings_in(tmp_path / "hf")["model_max_length"] == min(length, 64)
    assert "\nskipped" not in capsys.readouterr().out


def test_the_vocabulary_comes_from_the_folder_or_a_flag(wordpiece, tmp_path, capsys):
    config = dataclasses.replace(CONFIG, vocab_size=40)
    weights.save(models.AlbertEncoder(config), tmp_path / "from", "tf1")
    converted(tmp_path / "from", tmp_path / "bare")
    assert capsys.readouterr().out.splitlines()[-2] == (
        f"skipped  the vocabulary: none in {tmp_path / 'from'}; pass "
        f"--spm_model_file or --vocab_file"
    )
    cased = {"vocab_file": wordpiece, "do_lower_case": False, "keep_accents": True}
    values = converted(tmp_path / "from", tmp_path / "cased", **cased)
    # The ids of the vocabulary, not the released ones.
    special = [values[f"{name}_token_id"] for name in ("pad", "bos", "eos")]
    assert special == [0, 2, 3]
    folder = tmp_path / "cased"
    settings = settings_in(folder)
    assert not settings["do_lower_case"] and settings["keep_accents"]
    (tmp_path / "from" / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
    converted(tmp_path / "from", tmp_path / "lower")
    assert "\nskipped" not in capsys.readouterr().out
    settings = settings_in(tmp_path / "lower")
    assert settings["do_lower_case"] is True
    assert settings["model_max_length"] == 64


def test_labels_have_to_fit(tmp_path):
    model, task = models.AlbertClassifier(CONFIG, 3), {**RUN, "labels": ["a", "b"]}
    assert refusal(weights.save, model, tmp_path / "hf", "hf", task=task) == (
        "task: labels a, b: expected 3, one for each output of the model"
    )
    assert not (tmp_path / "hf").exists()


def test_places_begin_where_words_do(small, tmp_path):
    tokenizer = write_and_read(small, tmp_path)
    for text in [*TEXTS[2:], "No [MASK] (of it)"]:
        theirs = tokenizer.encode(text, add_special_tokens=False)
        _, spans = small.encode_with_offsets(text.replace("[MASK]", "      "))
        # Here a single word mark is empty; in transformers it has the span of its word.
        begins = [
            begin
            for (begin, _), piece in zip(theirs.offsets, theirs.tokens, strict=True)
            if piece not in ("▁", "[MASK]")
        ]
        assert begins == [begin for begin, end in spans if end > begin], text
