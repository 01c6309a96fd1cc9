"""Vocabularies and cleaning in the files of transformers."""

import base64
import json
import shutil

import pytest
from helpers import SMALL_MODEL, refusal

from albert_tf.text import tokenization
from albert_tf.weights import huggingface

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "É", "é", "e", "aula", "Aula"]
TEXT = "É Aula"


def normalizer(*types, **bert):
    steps = [{"type": kind} for kind in types]
    if bert:
        steps = [{"type": "BertNormalizer", "handle_chinese_chars": True, **bert}]
    return {"type": "Sequence", "normalizers": steps}


def write(folder, config=None, steps=None, model=None, **more):
    """Writes `tokenizer_config.json` and `tokenizer.json`, unless they are None."""
    if config is not None:
        text = json.dumps(config)
        (folder / "tokenizer_config.json").write_text("\ufeff" + text, "utf-8")
    if steps is not None or model is not None:
        whole = {"normalizer": steps, "model": model or {"type": "Unigram"}, **more}
        (folder / "tokenizer.json").write_text(json.dumps(whole))


def open_tokenizer(folder, kind, **flags):
    if kind == "spiece.model":
        shutil.copy(SMALL_MODEL, folder / kind)
        return tokenization.load(str(folder / kind), None, **flags)
    (folder / kind).write_text("".join(f"{word}\n" for word in WORDS))
    return tokenization.load(None, str(folder / kind), **flags)


SPM, BERT = "spiece.model", "vocab.txt"
LOWER = {"lowercase": True, "strip_accents": None}


@pytest.mark.parametrize(
    ("kind", "config", "steps", "expected"),
    [
        (SPM, None, None, "e aula"),
        (SPM, {}, None, "e aula"),
        (SPM, {"do_lower_case": False}, None, "E Aula"),
        (SPM, {"keep_accents": True}, None, "e\u0301 aula"),
        (SPM, {"do_lower_case": False, "keep_accents": True}, None, "E\u0301 Aula"),
        (SPM, {"do_lower_case": None}, normalizer("NFKD", "StripAccents"), "E Aula"),
        (SPM, {"keep_accents": True}, normalizer("Lowercase"), "e\u0301 aula"),
        (SPM, None, normalizer("Precompiled"), "E\u0301 Aula"),
        (SPM, None, {"type": "Lowercase"}, "e\u0301 aula"),
        (BERT, {"do_lower_case": True}, None, "e aula"),
        (BERT, {"do_lower_case": False}, None, "É Aula"),
        (BERT, {"strip_accents": False}, None, "é aula"),
        (BERT, {"keep_accents": True}, None, "é aula"),
        (BERT, None, normalizer(**LOWER), "e aula"),
        (BERT, {"strip_accents": None}, normalizer(**LOWER), "e aula"),
        (BERT, None, normalizer(lowercase=True, strip_accents=False), "é aula"),
        (BERT, None, normalizer(lowercase=False, strip_accents=None), "É Aula"),
        (BERT, None, normalizer("Lowercase", "NFD", "StripAccents"), "e aula"),
    ],
)
def test_text_is_cleaned_as_the_files_say(kind, config, steps, expected, tmp_path):
    write(tmp_path, config, steps)
    tokenizer = open_tokenizer(tmp_path, kind)
    assert tokenizer.clean(TEXT) == expected
    same = {"do_lower_case": tokenizer.do_lower_case}
    same["keep_accents"] = tokenizer.keep_accents
    assert open_tokenizer(tmp_path, kind, **same).fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    ("kind", "config", "steps", "flags", "message"),
    [
        (SPM, {"do_lower_case": False}, None, {"do_lower_case": True},
         "--do_lower_case=true, but {}/tokenizer_config.json: do_lower_case=false; "
         "expected the same"),
        (SPM, None, normalizer("Lowercase"), {"keep_accents": False},
         "--keep_accents=false, but {}/tokenizer.json: keep_accents=true; expected the "
         "same"),
        (BERT, {"do_lower_case": "no"}, None, {},
         '{}/tokenizer_config.json: do_lower_case="no": expected true or false'),
        (BERT, {"do_lower_case": False, "strip_accents": True}, None, {},
         "{}/tokenizer_config.json: strip_accents=true with do_lower_case=false: "
         "expected both true or both false"),
        (BERT, {"tokenize_chinese_chars": False}, None, {},
         "{}/tokenizer_config.json: tokenize_chinese_chars=false: expected true"),
        (SPM, [1], None, {},
         "{}/tokenizer_config.json: expected a JSON object, got [1]"),
    ],
)  # fmt: skip
def test_bad_or_contradicted_files(kind, config, steps, flags, message, tmp_path):
    write(tmp_path, config, steps)
    assert refusal(open_tokenizer, tmp_path, kind, **flags) == message.format(tmp_path)


TEXTS = ["The café of 1997, a list (of files).", "Größe\u3000a5,", "e\u0301 [SEP]"]


@pytest.mark.parametrize("kind", [SPM, BERT])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("accents", [True, False])
def test_our_own_export_is_read_back(kind, lower, accents, tmp_path):
    original = open_tokenizer(tmp_path, kind, do_lower_case=lower, keep_accents=accents)
    for name, contents in huggingface.make_tokenizer_files(original, 9).items():
        (tmp_path / name).write_bytes(contents)
    (tmp_path / kind).unlink()
    for _ in range(2):  # also without a configuration
        copy = tokenization.load(str(tmp_path / "tokenizer.json"))
        if kind == SPM or lower:
            assert (copy.do_lower_case, copy.keep_accents) == (lower, accents)
        assert copy.encode_batch([TEXT, *TEXTS]) == original.encode_batch(
            [TEXT, *TEXTS]
        )
        assert copy.special_ids == original.special_ids
        assert copy.file_name == kind
        (tmp_path / "tokenizer_config.json").unlink(missing_ok=True)
    assert kind == SPM or copy.contents == original.contents


def albert(**more):
    """Returns the arguments of `write` for an `AlbertTokenizer` of transformers."""
    proto = tokenization.SentencePieceTokenizer(SMALL_MODEL)
    model = tokenization.sentencepiece.SentencePieceProcessor(SMALL_MODEL)
    vocab = [[p, model.get_score(i)] for i, p in enumerate(proto.pieces)]
    from sentencepiece import sentencepiece_model_pb2

    stored = sentencepiece_model_pb2.ModelProto.FromString(proto.contents)
    charsmap = stored.normalizer_spec.precompiled_charsmap
    rules = base64.b64encode(charsmap).decode()
    steps = normalizer("NFKD", "StripAccents", "Lowercase")
    steps["normalizers"].append({"type": "Precompiled", "precompiled_charsmap": rules})
    mark = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
    special = {piece: proto.piece_to_id(piece) for piece in ("<pad>", "<unk>", "[CLS]")}
    return {
        "steps": steps,
        "model": {"type": "Unigram", "unk_id": 1, "vocab": vocab},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [mark]},
        "added_tokens": [{"content": k, "id": i} for k, i in special.items()],
        **more,
    }


def test_a_unigram_model_of_transformers_is_the_sentencepiece_model(tmp_path):
    original = tokenization.load(SMALL_MODEL)
    write(tmp_path, {}, **albert())
    copy = tokenization.load(None, str(tmp_path / "tokenizer.json"))
    assert copy.encode_batch(TEXTS) == original.encode_batch(TEXTS)
    assert copy.encode_with_offsets(TEXTS[0]) == original.encode_with_offsets(TEXTS[0])
    assert copy.file_name == "spiece.model"
    (tmp_path / "copy.model").write_bytes(copy.contents)
    again = tokenization.load(str(tmp_path / "copy.model"), None, True, False)
    assert again.fingerprint == copy.fingerprint
    # An added token matches text, and a special token does not.
    more = [*albert()["added_tokens"], {"content": "<e1>", "id": 1500}]
    write(tmp_path, {}, **albert(added_tokens=more))
    copy = tokenization.load(str(tmp_path / "tokenizer.json"))
    assert copy.encode("a<e1>")[-1] == 1500 and copy.vocab_size == 1501
    assert copy.cls_id not in copy.encode("[CLS]")


PAIR = {"vocab": [["a", 0], ["b", 0]], "unk_id": 0}


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        ({"class_name": "AlbertTokenizer"}, "no model; expected one of type Unigram"),
        ({"model": {"type": "BPE"}}, "a model of type BPE; expected one of type Uni"),
        ({"model": PAIR, "added_tokens": 5},
         "'int' object is not iterable; expected a tokenizer.json of transformers"),
        ({"model": PAIR, "added_tokens": [{"content": "c", "id": 9}]},
         "its ids are not 0, 1, 2 and so on; expected a tokenizer.json of transfo"),
        ({"model": {"vocab": {"[UNK]": 0}, "continuing_subword_prefix": "@@"}},
         'pieces inside a word begin with "@@", not "##"; expected a tokenizer.json'),
    ],
)  # fmt: skip
def test_a_tokenizer_that_cannot_be_used_is_named(whole, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(whole))
    assert refusal(tokenization.load, str(path)).startswith(f"{path}: {message}")
