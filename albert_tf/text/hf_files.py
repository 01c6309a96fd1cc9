"""Reads the tokenizer files of transformers.

Both `tokenizer_config.json` and `tokenizer.json` describe how text is cleaned.
`tokenizer.json` also contains the vocabulary, and transformers 5 saves the vocabulary
in no other file.
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from albert_tf import errors
from albert_tf.data import json_values
from albert_tf.errors import InputError

CONFIG = "tokenizer_config.json"
TOKENIZER = "tokenizer.json"

ModelType = Literal["Unigram", "WordPiece"]

# Special pieces, which never match text. If a `tokenizer.json` lists any other piece as
# an added token, the piece matches text.
_CONTROL = {"<pad>", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"}


def read(path: str | Path) -> dict[str, Any]:
    """Reads a `tokenizer.json`.

    Returns:
        The contents; empty if the file is missing or not from transformers.
    """
    contents = _read_object(Path(path))
    return contents if isinstance(contents.get("model"), dict) else {}


def _read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON object; empty if there is no file."""
    return json_values.read_object(path) if path.is_file() else {}


def detect_type(contents: Mapping[str, Any]) -> str:
    """Returns "Unigram", "WordPiece" or another type of model in a `tokenizer.json`.

    Old files do not store the type. A vocabulary that maps pieces to ids is then
    WordPiece, and a list of pieces is Unigram.
    """
    model = contents.get("model", {})
    has_ids = isinstance(model.get("vocab"), dict)
    return model.get("type") or ("WordPiece" if has_ids else "Unigram")


def read_vocabulary(path: str | Path, model_type: ModelType) -> bytes:
    """Converts a `tokenizer.json` to a vocabulary file of SentencePiece or BERT.

    Returns:
        The contents of a SentencePiece model ("Unigram") or a `vocab.txt`
        ("WordPiece").

    Raises:
        InputError: the file has no model of type `model_type`, or the vocabulary cannot
            be converted.
    """
    contents = read(path)
    if not contents or detect_type(contents) != model_type:
        actual = f"a model of type {detect_type(contents)}" if contents else "no model"
        raise InputError(f"{path}: {actual}; expected one of type {model_type}")
    with errors.wrap_read(path, "a tokenizer.json of transformers"):
        vocab, added = contents["model"]["vocab"], contents.get("added_tokens", ())
        if model_type == "Unigram":  # a list of pairs (piece, score)
            vocab = {item[0]: id for id, item in enumerate(vocab)}
        ids = vocab | {token["content"]: token["id"] for token in added}
        pieces = sorted(ids, key=ids.__getitem__)
        if [ids[piece] for piece in pieces] != list(range(len(ids))):
            raise ValueError("its ids are not 0, 1, 2 and so on")
        if model_type == "Unigram":
            return _make_unigram_model(contents, pieces)
        prefix = contents["model"].get("continuing_subword_prefix", "##")
        if prefix != "##":
            raise ValueError(f'pieces inside a word begin with "{prefix}", not "##"')
        return "".join(f"{piece}\n" for piece in pieces).encode()


def _make_unigram_model(contents: Mapping[str, Any], pieces: list[str]) -> bytes:
    """Returns a SentencePiece model equivalent to the contents of `tokenizer.json`."""
    from sentencepiece import sentencepiece_model_pb2

    model = contents["model"]
    scores = dict(map(tuple, model["vocab"]))
    added = {token["content"] for token in contents.get("added_tokens", ())}
    proto = sentencepiece_model_pb2.ModelProto()
    kinds = proto.SentencePiece
    has_bytes = bool(model.get("byte_fallback"))
    for id, piece in enumerate(pieces):
        kind = kinds.USER_DEFINED if piece in added else kinds.NORMAL
        if id == model["unk_id"]:
            kind = kinds.UNKNOWN
            proto.trainer_spec.unk_piece = piece
        elif piece in _CONTROL:
            kind = kinds.CONTROL
        elif has_bytes and re.fullmatch("<0x[0-9A-F]{2}>", piece):
            kind = kinds.BYTE
        # The module `weights.huggingface` writes `tokenizer.json` files. It appends a
        # space to each piece that must never match text. This line removes the space.
        name = piece.removesuffix(" ")
        proto.pieces.add(piece=name, score=scores.get(piece, 0), type=kind)
    proto.trainer_spec.pad_piece = "[PAD]" if "[PAD]" in pieces else "<pad>"
    proto.trainer_spec.byte_fallback = has_bytes
    # The normalizer and the pre-tokenizer may be nested steps, so this function
    # searches the text of their JSON.
    text = json.dumps(contents.get("normalizer"))
    if rules := re.search('"precompiled_charsmap": "(.*?)"', text):
        proto.normalizer_spec.precompiled_charsmap = base64.b64decode(rules[1])
    text = json.dumps(contents.get("pre_tokenizer"))
    proto.normalizer_spec.add_dummy_prefix = '"prepend_scheme": "never"' not in text
    return proto.SerializeToString()


def read_cleaning(
    path: str | Path, flags: Mapping[str, bool | None], is_wordpiece: bool
) -> dict[str, bool]:
    """Combines the settings of cleaning in flags and in files of transformers.

    `tokenizer_config.json` has precedence over `tokenizer.json`. A flag and a file must
    not contradict each other.

    Args:
        path: the vocabulary file. The files of transformers are in its folder, and may
            be missing.
        flags: the values of `do_lower_case` and `keep_accents`; None if a flag is not
            set.
        is_wordpiece: whether the tokenizer is WordPiece. WordPiece that does not
            lower-case always keeps accents. So in a file with `do_lower_case=false`,
            `keep_accents` is ignored, and `strip_accents=true` is an error.

    Returns:
        The values of `do_lower_case` and `keep_accents`. A key that neither a flag nor
        a file sets is missing.

    Raises:
        InputError: a flag contradicts a file, or `tokenization` cannot clean text as a
            file says.
    """
    cleaning: dict[str, bool] = {}
    config_file, tokenizer_file = map(Path(path).with_name, (CONFIG, TOKENIZER))
    # The settings in each file, in order of precedence.
    files = {config_file: _read_object(config_file)}
    if contents := read(tokenizer_file):
        files[tokenizer_file] = _read_normalizer(contents.get("normalizer"))
    for file, contents in files.items():
        values = {key: value for key, value in contents.items() if value is not None}
        for key in values.keys() & {*flags, "strip_accents"}:
            if not isinstance(values[key], bool):
                raise InputError(
                    f"{file}: {key}={errors.quote(values[key])}: expected true or false"
                )
        if is_wordpiece and values.get("tokenize_chinese_chars") is False:
            raise InputError(f"{file}: tokenize_chinese_chars=false: expected true")
        # Some tokenizers of transformers have the opposite of `keep_accents`.
        if "strip_accents" in values:
            values.setdefault("keep_accents", not values["strip_accents"])
        if is_wordpiece and values.get("do_lower_case") is False:
            values.pop("keep_accents", None)
            if values.get("strip_accents"):
                raise InputError(
                    f"{file}: strip_accents=true with do_lower_case=false: expected "
                    f"both true or both false"
                )
        for key, flag in flags.items():
            value = values.get(key, flag)
            if flag is not None and flag != value:
                raise InputError(
                    f"--{key}={errors.quote(flag)}, but {file}: "
                    f"{key}={errors.quote(value)}; expected the same"
                )
            if value is not None:
                cleaning.setdefault(key, value)
    return cleaning


def _read_normalizer(normalizer: Any) -> dict[str, Any]:
    """Returns the settings of a normalizer, by their keys in `tokenizer_config.json`.

    A normalizer may be nested steps, so this function searches the text of its JSON.
    """
    text = json.dumps(normalizer)
    bert_lowers = '"lowercase": true' in text  # an option of BertNormalizer
    # Texts that show that a step removes accents. The last two are the beginnings of
    # regular expressions: for marks from U+0300 on, and for all marks.
    accent_steps = ('"StripAccents"', '"strip_accents": true', r'"[\\x{300}', "p{M")
    # If `strip_accents` is null, BertNormalizer removes accents if it lower-cases.
    bert_strips = bert_lowers and '"strip_accents": null' in text
    return {
        "do_lower_case": bert_lowers or '"Lowercase"' in text,
        "strip_accents": bert_strips or any(step in text for step in accent_steps),
    }
