"""Makes the configuration and the tokenizer files that transformers reads.

The tokenizer is a `tokenizer.json`, which lists all steps from text to ids. The class
`AlbertTokenizer` of transformers is not used, because it differs from the release: it
rewrites quotation marks, does not split pieces that end in a digit and a comma, and
treats user-defined symbols as ordinary pieces.
"""

import base64
import functools
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.text import tokenization
from albert_tf.text.tokenization import WORD_MARK, SentencePieceTokenizer, Tokenizer
from albert_tf.weights.formats.hf import ACTIVATIONS
from albert_tf.weights.metadata import HF_PROBLEMS, HF_TASKS, to_json

# A JSON object in `tokenizer.json`, usually for one step from text to ids.
Step = dict[str, Any]
# Inserted before text that does not begin a word, and removed before the text is cut
# into pieces. It is a Unicode noncharacter, which no text contains.
_NO_WORD_START = "\ufdd0"


def make_files(
    model, config: AlbertConfig, task: Mapping[str, Any], tokenizer: Tokenizer | None
) -> dict[str, bytes]:
    """Makes all files of a model's folder except its weights.

    Args:
        model: a model of `albert_tf.model.models` whose class transformers also has.
        config: the model's configuration. Its `num_hidden_groups` is the number of
            groups in the file of weights.
        task: the contents of a `task.json`, of which only the keys "labels", "kind" and
            "max_seq_length" are used. Each of them may be missing.
        tokenizer: the model's tokenizer. None for no tokenizer files, and for the
            released ids of special tokens in `config.json`.

    Returns:
        The contents of each file, by name.

    Raises:
        InputError: the number of labels differs from the number of outputs, or
            `tokenizer` cannot be written for transformers.
    """
    if isinstance(model, models.AlbertEncoder):
        architecture = "AlbertModel"
    elif isinstance(model, models.AlbertPretrainer) and model.sentence is not None:
        architecture = "AlbertForPreTraining"
    else:
        architecture = f"AlbertFor{HF_TASKS[type(model).__name__][0]}"
    values = config.to_dict()
    values.pop("down_scale_factor")  # no model uses it
    if isinstance(model, models.AlbertClassifier | models.AlbertTokenClassifier):
        values |= _describe_labels(model.head.num_labels, task)
    # Several names in transformers can mean the same activation. The first of them is
    # written: the order is reversed, so the first name is the last one to be set.
    activations = {value: key for key, value in reversed(ACTIVATIONS.items())}
    values |= {
        "architectures": [architecture],
        "bos_token_id": tokenizer.cls_id if tokenizer else 2,
        "classifier_dropout_prob": config.classifier_dropout_prob,
        "eos_token_id": tokenizer.sep_id if tokenizer else 3,
        "hidden_act": activations[config.hidden_act or "linear"],
        "layer_norm_eps": 1e-12,
        "model_type": "albert",
        "pad_token_id": tokenizer.pad_id if tokenizer else 0,
    }
    contents = {"config.json": to_json(values)}
    if tokenizer is not None:
        positions = config.max_position_embeddings
        max_length = min(positions, task.get("max_seq_length") or positions)
        contents |= make_tokenizer_files(tokenizer, max_length)
    return contents


def _describe_labels(count: int, task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of `config.json` for the labels of `count` outputs."""
    labels = task.get("labels") or [f"LABEL_{i}" for i in range(count)]
    if len(labels) != count:
        raise InputError(
            f"task: labels {', '.join(map(str, labels))}: expected {count}, one for "
            f"each output of the model"
        )
    values: dict[str, Any] = {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    if task.get("kind") in HF_PROBLEMS:
        values["problem_type"] = HF_PROBLEMS[task["kind"]]
    return values


def make_tokenizer_files(tokenizer: Tokenizer, max_length: int) -> dict[str, bytes]:
    """Makes the files that `AutoTokenizer.from_pretrained` reads.

    With these files, transformers gives the same ids as `tokenizer`, with two
    exceptions. If a text contains "[SEP]" or another special token, transformers gives
    the id of this special token. If two ways to cut a word into pieces are equally
    likely, transformers and `tokenizer` may choose different ones.

    Args:
        tokenizer: the tokenizer of the model.
        max_length: number of tokens to which transformers truncates on request.

    Returns:
        The contents of each file, by name.

    Raises:
        InputError: the vocabulary lacks a special token, or is a SentencePiece model of
            another type than unigram.
    """
    names = ("pad", "unk", "cls", "sep", "mask")
    ids = {f"{name}_token": getattr(tokenizer, f"{name}_id") for name in names}
    special = {name: tokenizer.id_to_piece(id) for name, id in ids.items()}
    if isinstance(tokenizer, tokenization.WordPieceTokenizer):
        vocabulary, steps = "vocab.txt", _make_wordpiece(tokenizer)
    else:
        assert isinstance(tokenizer, SentencePieceTokenizer)
        special |= {"bos_token": "[CLS]", "eos_token": "[SEP]"}
        vocabulary, steps = "spiece.model", _make_sentencepiece(tokenizer)
    cls, sep = ["[CLS]", tokenizer.cls_id], ["[SEP]", tokenizer.sep_id]
    tokenizer_json = {
        "version": "1.0",
        "added_tokens": [_describe_token(tokenizer, i) for i in sorted(ids.values())],
        "post_processor": {"type": "BertProcessing", "cls": cls, "sep": sep},
        **steps,
    }
    tokenizer_config = {
        **special,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "do_lower_case": tokenizer.do_lower_case,
        "keep_accents": tokenizer.keep_accents,
    }
    return {
        vocabulary: tokenizer.contents,
        "tokenizer.json": to_json(tokenizer_json),
        "tokenizer_config.json": to_json(tokenizer_config),
        "special_tokens_map.json": to_json(special),
    }


def _describe_token(tokenizer: Tokenizer, id: int) -> Step:
    """Describes a special token, which transformers then also finds in texts."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": tokenizer.id_to_piece(id), **flags, "special": True}


def _make_replace(pattern: str, content: str) -> Step:
    """Makes the step that replaces each match of a regular expression by a text."""
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


@functools.cache  # calling the condition on every character takes 0.1 s
def _list_characters(condition: Callable[[str], Any]) -> str:
    """Lists the characters that meet a condition, for [...] of a regular expression."""
    return _escape(filter(condition, map(chr, range(sys.maxunicode + 1))))


def _is_control(c: str) -> bool:
    return unicodedata.category(c) in ("Cc", "Cf") and c not in "\t\n\r"


def _is_nonspacing_mark(c: str) -> bool:
    return unicodedata.category(c) == "Mn"


def _escape(characters: Iterable[str]) -> str:
    """Writes characters for [...] of a regular expression."""
    return "".join(f"\\x{{{ord(character):x}}}" for character in characters)


def _make_lower_case() -> list[Step]:
    """Makes the steps that lower-case text as Python does."""
    # Python gives a capital sigma another lower-case form at the end of a word than
    # elsewhere. The step "Lowercase" has only one form. So a step before it replaces
    # each sigma at the end of a word.
    cased = r"[\p{Lu}\p{Ll}\p{Lt}]"
    sigma = _make_replace(f"(?<={cased})\N{GREEK CAPITAL LETTER SIGMA}(?!{cased})", "ς")
    return [sigma, {"type": "Lowercase"}]


def _make_sentencepiece(tokenizer: SentencePieceTokenizer) -> dict[str, Step]:
    """Makes the parts of `tokenizer.json` for a SentencePiece model of type unigram."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.contents)
    spec, trainer = proto.normalizer_spec, proto.trainer_spec
    if trainer.model_type != trainer.UNIGRAM:
        kind = trainer.ModelType.Name(trainer.model_type).lower()
        raise InputError(
            f"{tokenizer.path}: a SentencePiece model of type {kind}; expected "
            f"unigram, the only type that can be written for transformers"
        )
    space = f"[{_list_characters(str.isspace)}]+"
    steps = [_make_replace(space, " "), {"type": "NFKD"}]
    if not tokenizer.keep_accents:
        marks = _list_characters(unicodedata.combining)
        steps += [_make_replace(f"[{marks}]", "")]
    if tokenizer.do_lower_case:
        steps += _make_lower_case()
    if spec.precompiled_charsmap:
        # "Precompiled" applies the model's normalisation rules to few characters at a
        # time, so it would not compose Hangul from its jamo. "NFC" composes it first.
        chars = base64.b64encode(spec.precompiled_charsmap).decode()
        steps += [{"type": "NFC"}]
        steps += [{"type": "Precompiled", "precompiled_charsmap": chars}]
    if spec.remove_extra_whitespaces:
        steps += [_make_replace(" {2,}", " ")]
        steps += [{"type": "Strip", "strip_left": False, "strip_right": True}]
    pieces = [piece.piece for piece in proto.pieces]
    # Whether text can be cut into words before it is cut into pieces. It cannot if a
    # piece contains the end of one word and the beginning of the next.
    can_split = not any(WORD_MARK in piece[1:] for piece in pieces)
    metaspace = {"type": "Metaspace", "replacement": WORD_MARK, "split": can_split}
    # With `add_dummy_prefix`, SentencePiece puts a word mark before each text.
    scheme = "first" if spec.add_dummy_prefix else "never"
    cuts: list[Step] = [{**metaspace, "prepend_scheme": scheme}]
    if spec.add_dummy_prefix:
        # Without splitting, "Metaspace" inserts a word mark only at the beginning of
        # the input, so `_NO_WORD_START` is not needed.
        steps += _begin_words_after_masks(pieces, _NO_WORD_START if can_split else "")
        cuts = _cut_words(metaspace) if can_split else cuts
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts},
        "decoder": {**metaspace, "prepend_scheme": "always"},
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": _score_pieces(tokenizer, proto),
            "byte_fallback": bool(tokenizer.byte_values),
        },
    }


def _begin_words_after_masks(pieces: Sequence[str], no_word_start: str) -> list[Step]:
    """Makes steps that give text after a [MASK] the ids of `inputs.encode_masked`.

    transformers cuts a text at each [MASK], and applies the steps to each part. A part
    begins a new word in two cases: it begins with a space, or some piece begins with
    the word mark and then the first character of the part. In other cases,
    `no_word_start` is inserted before the part.

    Args:
        pieces: all pieces of the vocabulary.
        no_word_start: a text that `_cut_words` removes, or "".
    """
    initials = {p[1] for p in pieces if len(p) > 1 and p[0] == WORD_MARK}
    return [
        {"type": "Prepend", "prepend": " "},
        # For a part that does not begin a word: replaces the space of the first step.
        _make_replace(f"^ (?=[^ {_escape(sorted(initials))}])", no_word_start),
        _make_replace("^ {2}", " "),  # for a part that already began with a space
    ]


def _cut_words(metaspace: Step) -> list[Step]:
    """Makes steps that cut text into words at spaces, and put a mark before each word.

    Text after `_NO_WORD_START` gets no mark, unless it is the beginning of the input.

    Args:
        metaspace: the step that replaces spaces by word marks, without the key
            "prepend_scheme". This key says where the step also inserts a word mark.
    """
    mark = {**metaspace, "split": False}
    split = {"type": "Split", "behavior": "Removed", "invert": False}
    return [
        # Replaces spaces by word marks, and inserts a mark at the beginning of the
        # input.
        {**mark, "prepend_scheme": "first"},
        # Cuts at each mark and removes it. At the beginning of the input, a
        # `_NO_WORD_START` after the mark is removed, too.
        {**split, "pattern": {"Regex": f"{WORD_MARK}{_NO_WORD_START}?"}},
        # Inserts a mark before each word.
        {**mark, "prepend_scheme": "always"},
        # Removes the mark before text that does not begin a word.
        {**split, "pattern": {"String": f"{WORD_MARK}{_NO_WORD_START}"}},
    ]


def _score_pieces(tokenizer: SentencePieceTokenizer, proto) -> list[tuple[str, float]]:
    """Returns the pieces of a model with their log-probabilities.

    A piece that must not match any text gets a space at its end. Then it never matches,
    because the normalised text has word marks instead of spaces.
    """
    kinds = proto.SentencePiece
    special = tokenizer.special_ids
    highest = max(p.score for p in proto.pieces if p.type == kinds.NORMAL)
    scores = []
    for id, piece in enumerate(proto.pieces):
        name, score = piece.piece, piece.score
        if piece.type == kinds.USER_DEFINED:
            score = len(name.encode()) * highest - 0.1  # as SentencePiece scores it
        # These pieces never match: pieces that end in a digit and a comma, which the
        # tokenizer splits, and control, unknown and unused pieces that are no special
        # tokens.
        elif name in tokenizer.comma_pieces or (
            piece.type not in (kinds.NORMAL, kinds.BYTE) and id not in special
        ):
            name += " "
        scores.append((name, score))
    return scores


def _make_wordpiece(tokenizer: tokenization.WordPieceTokenizer) -> dict[str, Step]:
    """Makes the parts of `tokenizer.json` for a WordPiece vocabulary."""
    prefix = tokenization.CONTINUATION
    flags = dict.fromkeys(("clean_text", "strip_accents", "lowercase"), False)
    steps = [
        _make_replace(f"[\ufffd{_list_characters(_is_control)}]", ""),
        {"type": "BertNormalizer", "handle_chinese_chars": True, **flags},
    ]
    if tokenizer.do_lower_case:
        steps += _make_lower_case()
        if not tokenizer.keep_accents:
            # "StripAccents" would also remove spacing marks (Mc).
            marks = _list_characters(_is_nonspacing_mark)
            steps += [{"type": "NFD"}, _make_replace(f"[{marks}]", "")]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": prefix, "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.id_to_piece(tokenizer.unk_id),
            "continuing_subword_prefix": prefix,
            "max_input_chars_per_word": tokenization.MAX_WORD_CHARS,
            "vocab": {piece: id for id, piece in enumerate(tokenizer.pieces)},
        },
    }
