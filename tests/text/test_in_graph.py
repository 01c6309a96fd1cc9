# Letters that look alike are the point of these strings.
# ruff: noqa: RUF001
import json
import random
import unicodedata

import pytest
import sentencepiece
import tensorflow as tf
from helpers import DATA, SHARED, SMALL_MODEL, slow_except

from albert_tf.text import in_graph, tokenization

SENTENCEPIECE = json.loads((DATA / "tokenizer_sentencepiece.json").read_text())
WORDPIECE = json.loads((DATA / "tokenizer_wordpiece.json").read_text())
HARD = [
    *("", "  ", "ΑΣ ΑΣΑ Σ 'ΑΣ' ΑΣ'Α ΣΑΣ.", "ΟΔΟΣ", "İIı ΑΣ\u0301 ϹΑϹ", "x" * 200),
    *("\u302e\u302f", "é" * 201, "a5, ▁ 5字, 1995,,", "ﷺ½ ㍿ 한국 각"),
    *("\u2028a\x1cb\x85", "Йи\u0306 ệe\u0302\u0323 \u0323\u0302 \u0344"),
    "\u0323\u0301",
]


# By kind of the vocabulary, lower-casing and keeping accents.
PAIRS = [(kind, lower, False) for kind in ("spm", "words") for lower in (True, False)]
PAIRS += [("spm", True, True), ("words", True, True)]
FAST = [("spm", True, False), ("words", True, True)]


@pytest.fixture(scope="module", params=PAIRS, ids=str)
def pair(request, tmp_path_factory):
    """A Python tokenizer, the same in a graph with offsets, and recorded rows."""
    kind, lower, accents = request.param
    if kind == "spm":
        tokenizer = tokenization.load(SMALL_MODEL, None, lower, accents)
        rows = SENTENCEPIECE["rows"]
    else:
        path = tmp_path_factory.mktemp("words") / "vocab.txt"
        path.write_text("\n".join(WORDPIECE["vocab"]), encoding="utf-8")
        tokenizer = tokenization.load(None, str(path), lower, accents)
        rows = WORDPIECE["rows"]
    graph = in_graph.GraphTokenizer(tokenizer, with_offsets=True)
    rows = [row for row in rows if row[0] == lower]
    if accents:
        rows = [[*row[:4], tokenizer.encode(row[1])] for row in rows]
    return tokenizer, graph, rows


def test_recorded_ids(pair, eagerly):
    _, graph, rows = pair
    ids = graph(tf.constant([row[1] for row in rows]))
    assert ids.dtype == tf.int32
    assert ids.to_list() == [row[4] for row in rows]


@pytest.mark.parametrize("pair", slow_except(FAST[:1], PAIRS), indirect=True, ids=str)
def test_every_character_is_cleaned_as_in_python(pair):
    tokenizer, graph, _ = pair
    # Of the planes 2 and 3, only compatibility ideographs change.
    parts = [range(0xD800), range(0xF900, 0x20000), range(0x2F800, 0x2FA20)]
    parts += [range(0xE0000, 0xE1000)]
    characters = [chr(code) for part in parts for code in part]
    characters = [c for c in characters if unicodedata.category(c) != "Cn"]
    # Also some that Unicode has not assigned.
    characters += map(chr, range(0xE000, 0x110000, 251))
    # Separate, inside a word, and on both sides of a capital sigma.
    texts = [
        "".join(f"{c} a{c}b a{c}Σ aΣ{c}b " for c in characters[begin : begin + 61])
        for begin in range(0, len(characters), 61)
    ]
    # A letter of the text before does not end a word.
    texts = ["a", "Σ", "aΣ", "b", "", "Σ", *texts]
    for begin in range(0, len(texts), 300):
        batch = texts[begin : begin + 300]
        for text, result in zip(batch, graph.clean(tf.constant(batch)), strict=True):
            assert result.numpy().decode() == tokenizer.clean(text)


@pytest.mark.parametrize("pair", FAST[:1], indirect=True, ids=str)
def test_equally_likely_pieces_are_chosen_as_in_python(pair, eagerly):
    tokenizer, graph, _ = pair
    texts = [f"{'the ' * n}1110 1081\u20131118). a 1114." for n in range(97)]
    assert graph(tf.constant(texts)).to_list() == tokenizer.encode_batch(texts)


def test_bytes_that_are_not_utf8_count_as_replacement_characters(pair, eagerly):
    tokenizer, graph, _ = pair
    ids = graph(tf.constant([b"the \xff\xfe test"])).to_list()
    assert ids == [tokenizer.encode("the \ufffd\ufffd test")]


@pytest.mark.slow  # tests/serve/test_service.py loads such a SavedModel, too
@pytest.mark.parametrize(
    "pair", [("spm", True, True), ("words", True, False)], indirect=True, ids=str
)
def test_a_saved_model_keeps_ids_and_offsets(pair, tmp_path):
    tokenizer, graph, _ = pair
    texts = tf.constant(HARD)
    both = tf.Module()
    both.graph = graph
    spec = tf.TensorSpec([None], tf.string)
    both.align = tf.function(graph.encode_with_offsets, input_signature=[spec])
    tf.saved_model.save(both, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.graph(texts).to_list() == tokenizer.encode_batch(HARD)
    expected = graph.encode_with_offsets(texts)
    for ours, theirs in zip(expected, loaded.align(texts), strict=True):
        assert ours.to_list() == theirs.to_list()


def test_a_saved_model_may_hold_several_vocabularies(tmp_path):
    paths = SMALL_MODEL, str(DATA / "earlier_version/vocab.model")
    tokenizers = [tokenization.SentencePieceTokenizer(path, False) for path in paths]
    both = tf.Module()
    both.graphs = [in_graph.GraphTokenizer(tokenizer) for tokenizer in tokenizers]
    tf.saved_model.save(both, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for graph, tokenizer in zip(loaded.graphs, tokenizers, strict=True):
        assert graph(tf.constant(HARD)).to_list() == tokenizer.encode_batch(HARD)


@pytest.mark.parametrize("pair", slow_except(FAST, PAIRS), indirect=True, ids=str)
def test_batches_of_any_size_pass_a_dataset(pair):
    tokenizer, graph, _ = pair
    batches = tf.data.Dataset.from_tensor_slices(HARD).batch(4).map(graph)
    ids = [row for batch in batches for row in batch.to_list()]
    assert ids == tokenizer.encode_batch(HARD)
    assert graph(tf.constant([], tf.string)).to_list() == []


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the official vocabulary is not here")
@pytest.mark.parametrize("lower", [True, False])
def test_a_real_text_has_the_ids_of_python(lower):
    model = SHARED / "data" / "albert_vocab" / "30k-clean.model"
    tokenizer = tokenization.SentencePieceTokenizer(str(model), lower)
    graph = in_graph.GraphTokenizer(tokenizer)
    text = (SHARED / "data" / "wiki_40mb.sent.txt").read_text(encoding="utf-8")
    texts = json.loads((SHARED / "golden" / "tokenizer.json").read_text())["strings"]
    texts += text.split("\n", 100_000)[:100_000]
    for begin in range(0, len(texts), 20_000):
        batch = texts[begin : begin + 20_000]
        assert graph(tf.constant(batch)).to_list() == tokenizer.encode_batch(batch)


# Deleted, expanded, composed and split characters, in words, alone and at the ends.
_ODD = [
    *("a\u200bb", "a\u200b\x01b", "a \u200b b ", "\u200b", "\x01", "ab\x01c \u200b"),
    *("각\u1100\u1161\u11a8 x", "word \u0301 x", "\u0301 x", "x \u0301", "ß ﷺ ß1997,"),
]


def fuzzed(count, strings):
    rng = random.Random(5)
    pool = "".join(strings) + " \u200b\x01\u0301,5Σß" * 200
    return ["".join(rng.choices(pool, k=rng.randrange(60))) for _ in range(count)]


def assert_same_offsets(tokenizer, graph, texts):
    ids, begins, ends = graph.encode_with_offsets(tf.constant(texts))
    assert {x.dtype for x in (ids, begins, ends)} == {tf.int32}
    offsets = zip(begins.to_list(), ends.to_list(), strict=True)
    for text, row, (begin, end) in zip(texts, ids.to_list(), offsets, strict=True):
        expected_ids, expected_offsets = tokenizer.encode_with_offsets(text)
        assert row == expected_ids, text
        assert list(zip(begin, end, strict=True)) == expected_offsets, text


def test_offsets_are_those_of_python(pair):
    tokenizer, graph, rows = pair
    texts = [*HARD, *_ODD, *(row[1] for row in rows)]
    contexts = json.loads((DATA / "squad_own.json").read_text())["data"]
    texts += [p["context"] for article in contexts for p in article["paragraphs"]]
    assert_same_offsets(tokenizer, graph, texts + fuzzed(150, texts))
    for part in graph.encode_with_offsets(tf.constant([], tf.string)):
        assert part.to_list() == []


def test_offsets_of_bytes_and_folded_characters_are_those_of_python(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("some words of text, and (more) strasse\n" * 9)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(tmp_path / "bytes"),
        vocab_size=276,
        byte_fallback=True,
        normalization_rule_name="nmt_nfkc_cf",
        user_defined_symbols=["(more)", "—"],
        minloglevel=2,
    )
    tokenizer = tokenization.SentencePieceTokenizer(
        str(tmp_path / "bytes.model"), False
    )
    texts = ["Straße", "aß ß", "字 (more)—(more), ẞx", *HARD, *_ODD]
    graph = in_graph.GraphTokenizer(tokenizer, with_offsets=True)
    assert_same_offsets(tokenizer, graph, texts + fuzzed(150, texts))


@pytest.mark.parametrize("pair", slow_except(FAST, PAIRS), indirect=True, ids=str)
def test_only_the_beginning_of_long_texts_is_tokenized(pair, eagerly):
    tokenizer, _, _ = pair
    graph = in_graph.GraphTokenizer(tokenizer, 7)
    texts = ["the quick " * 20_000, f"{'x' * 900} " * 100, "the"]
    expected = [ids[:7] for ids in tokenizer.encode_batch(texts)]
    rows = graph(tf.constant(texts)).to_list()
    assert [ids[:7] for ids in rows] == expected
    if isinstance(tokenizer, tokenization.SentencePieceTokenizer):
        assert len(rows[0]) < 10_000


# --- words ---

split_words = tf.function(
    in_graph.split_words,
    input_signature=[tf.TensorSpec([None], tf.string)],
    autograph=False,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        (" \u2028\t ", ""),
        ("(U.S.-based), Anna's dog...", "( U.S.-based ) , Anna 's dog . . ."),
        ("'tis James' 's s's A’S. é's", "' tis James ' ' s s 's A ’S . é 's"),
        ("don’t it's'", "don’t it 's '"),
        ("中文,国 ab中cd", "中 文 , 国 ab 中 cd"),
        ("1,000.5% $5 1996-12-06", "1,000.5 % $ 5 1996-12-06"),
        ("😀x\x07 «¡Olé!»", "😀x\x07 « ¡ Olé ! »"),
    ],
)
def test_words_and_offsets(text, words):
    parts = [part.to_list() for part in split_words(tf.constant(["a b", text, "c"]))]
    assert [word.decode() for word in parts[0][1]] == words.split()
    assert [len(part[1]) for part in parts[1:]] == [len(parts[0][1])] * 2
    for word, begin, end in zip(*(part[1] for part in parts), strict=True):
        assert text[begin:end] == word.decode()
    assert (parts[1][0], parts[2][0], parts[0][2]) == ([0, 2], [1, 3], [b"c"])


def test_bytes_that_are_not_utf8_count_as_one_character_of_a_word():
    words, begins, ends = in_graph.split_words(tf.constant([b"a\xff b"]))
    assert words.to_list() == [["a\ufffd".encode(), b"b"]]
    assert (begins.to_list(), ends.to_list()) == ([[0, 3]], [[2, 4]])
