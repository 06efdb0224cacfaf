#!/usr/bin/env python3
"""Makes two small vocabularies of our own, as GGUF files without tensors, and texts with the ids that they become.

byte-level.gguf is a byte-level BPE with GPT-2's way of cutting text into words; sentencepiece.gguf has scores, bytes for
what it has no pieces for, and control tokens. Both are trained here on the texts of testdata/demo. The ids in NAME.json
come from the encoders below. They are slow and plain on purpose, and share nothing with src/text: for each step they look
at every pair there is.

usage: testdata/vocab/generate.py                        writes the files (needs the regex package; the tests do not)
       testdata/vocab/generate.py --check FILE.gguf...   encodes FILE.gguf.inp, and compares with FILE.gguf.out

--check takes the fixtures of the llama.cpp project. On 15 November 2026 all 46 texts of gpt-2, llama-spm and phi-3 had
llama.cpp's ids.
"""
import collections
import json
import pathlib
import struct
import sys

import regex

HERE = pathlib.Path(__file__).parent
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
SPACE = "\u2581"

# --- GGUF


def write_gguf(path, entries):
    def string(text):
        data = text.encode()
        return struct.pack("<Q", len(data)) + data

    scalar = {U32: "<I", F32: "<f", BOOL: "<?", I32: "<i"}
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
    for key, kind, value in entries:
        out += string(key)
        if isinstance(value, list):
            out += struct.pack("<IIQ", ARRAY, kind, len(value))
            out += b"".join(string(v) if kind == STRING else struct.pack(scalar[kind], v) for v in value)
        else:
            out += struct.pack("<I", kind) + (string(value) if kind == STRING else struct.pack(scalar[kind], value))
    path.write_bytes(out)


def read_gguf(path):
    data, at = pathlib.Path(path).read_bytes(), 24
    formats = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

    def read(kind):
        nonlocal at
        if kind == STRING:
            length = read(10)
            at += length
            return data[at - length:at].decode()
        if kind == ARRAY:
            element, count = read(U32), read(10)
            return [read(element) for _ in range(count)]
        value, = struct.unpack_from(formats[kind], data, at)
        at += struct.calcsize(formats[kind])
        return value

    entries = struct.unpack_from("<Q", data, 16)[0]
    result = {}
    for _ in range(entries):
        key = read(STRING)
        result[key] = read(read(U32))
    return result


# --- byte-level BPE


def byte_spellings():
    """The printable character that stands for each byte, as GPT-2 has it."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


SPELLING = byte_spellings()


def words_of(text):
    return ["".join(SPELLING[byte] for byte in word.encode()) for word in WORDS.findall(text)]


def merge_pair(symbols, pair):
    merged, at = [], 0
    while at < len(symbols):
        if tuple(symbols[at:at + 2]) == pair:
            merged.append(symbols[at] + symbols[at + 1])
            at += 2
        else:
            merged.append(symbols[at])
            at += 1
    return merged


def encode_byte_level(text, tokens, merges):
    ids = []
    for word in words_of(text):
        symbols = list(word)
        while True:
            known = [merges[pair] for pair in zip(symbols, symbols[1:]) if pair in merges]
            if not known:
                break
            best = min(known)
            symbols = merge_pair(symbols, next(pair for pair, rank in merges.items() if rank == best))
        ids += [tokens[symbol] for symbol in symbols]
    return ids


# --- SentencePiece


def encode_sentencepiece(text, tokens, scores, prefix):
    if not text:
        return []
    symbols = list((" " if prefix else "") + text)
    symbols = [SPACE if symbol == " " else symbol for symbol in symbols]
    while True:
        best = None
        for at, (left, right) in enumerate(zip(symbols, symbols[1:])):
            token = tokens.get(left + right)
            if token is not None and (best is None or scores[token] > scores[tokens[symbols[best] + symbols[best + 1]]]):
                best = at
        if best is None:
            break
        symbols[best:best + 2] = [symbols[best] + symbols[best + 1]]
    ids = []
    for symbol in symbols:
        ids += [tokens[symbol]] if symbol in tokens else [tokens[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return ids


# --- training


def train(words, count):
    """The most frequent pairs, one after the other; of equals the first by spelling."""
    words = collections.Counter(map(tuple, words))
    merges = []
    while len(merges) < count:
        pairs = collections.Counter()
        for word, times in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += times
        pair = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(pair)
        words = collections.Counter({tuple(merge_pair(list(word), pair)): times for word, times in words.items()})
    return merges


def corpus():
    demo = HERE.parent / "demo"
    questions = json.loads((demo / "questions.json").read_text())
    texts = [q["prompt"] for kind in questions["kinds"] for q in kind["questions"]]
    texts += [case["text"] for case in json.loads((demo / "tokenization.json").read_text())]
    return [regex.sub(r"<\|im_\w+\|>(system\n|user\n|assistant\n)?", "", text) for text in texts]


def make_byte_level(texts):
    merges = train([word for text in texts for word in words_of(text)], 700)
    tokens = SPELLING + [left + right for left, right in merges] + ["<|endoftext|>"]
    write_gguf(HERE / "byte-level.gguf", [
        ("general.architecture", STRING, "gpt2"), ("general.name", STRING, "Quire's byte-level vocabulary for tests"),
        ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
        ("tokenizer.ggml.tokens", STRING, tokens),
        ("tokenizer.ggml.token_type", I32, [NORMAL] * (len(tokens) - 1) + [CONTROL]),
        ("tokenizer.ggml.merges", STRING, [f"{left} {right}" for left, right in merges]),
        ("tokenizer.ggml.bos_token_id", U32, len(tokens) - 1), ("tokenizer.ggml.eos_token_id", U32, len(tokens) - 1)])
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    ids = {token: i for i, token in enumerate(tokens)}
    return lambda text: encode_byte_level(text, ids, ranks)


def make_sentencepiece(texts):
    words = [word for text in texts for word in regex.findall(f"{SPACE}*[^{SPACE}]*", SPACE + text.replace(" ", SPACE))]
    merges = train(words, 600)
    letters = sorted({letter for text in texts for letter in text.replace(" ", SPACE)} - {"\n", "\t"})
    pieces = list(dict.fromkeys([left + right for left, right in merges] + letters))
    special = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    special += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    added = [("<|user|>", CONTROL), ("<|end|>", CONTROL), ("<tool>", USER_DEFINED)]
    tokens = [text for text, _ in special] + pieces + [text for text, _ in added]
    types = [kind for _, kind in special] + [NORMAL] * len(pieces) + [kind for _, kind in added]
    scores = [0.0] * len(special) + [-float(i) for i in range(len(pieces))] + [0.0] * len(added)
    write_gguf(HERE / "sentencepiece.gguf", [
        ("general.architecture", STRING, "llama"), ("general.name", STRING, "Quire's SentencePiece vocabulary for tests"),
        ("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.pre", STRING, "default"),
        ("tokenizer.ggml.tokens", STRING, tokens), ("tokenizer.ggml.scores", F32, scores),
        ("tokenizer.ggml.token_type", I32, types),
        ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.unknown_token_id", U32, 0),
        ("tokenizer.ggml.add_bos_token", BOOL, True), ("tokenizer.ggml.add_eos_token", BOOL, False),
        ("tokenizer.ggml.add_space_prefix", BOOL, True)])
    ids = {piece: len(special) + i for i, piece in enumerate(pieces)}
    ids |= {text: i for i, (text, _) in enumerate(special) if text.startswith("<0x")}
    return lambda text: encode_sentencepiece(text, ids, scores, True)


# No control token is spelled here: this is text as a user writes it.
TEXTS = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\t\n", " \n \n\n \t", "a", " a", "  a", "a ", "a  b   c    d",
    "Hello", " Hello", "Hello, world!", " Hello, world! ", "Hello\nworld\n", "Hello\n\n  world", "HELLO hello HeLLo",
    "Remember these notes. The code of Mia is 4821.", "The fox had a friend, and the friend's name was Ben.",
    "I'm sure they've said we'll go, it's what you'd do; don't", "I'M SURE IT'S SO", "'s 't ' '' ''''", "' era",
    "3", "33", "333", "3333333", "3 33 333", "1,234.56 - 7e-8 = 0x1F", "Year2024and3x", "½ ⅔ ² ٣ 五 Ⅷ",
    "http://example.org/a?b=c&d=%20#e", "for (int i = 0; i < n; ++i) { sum += x[i]; }  // adds", "<b>bold</b> &amp;",
    "{\"key\": [1, 2.5, null, \"a\\nb\"]}", "naïve café, Ærøskøbing, Łódź", "Straße STRASSE ẞ", "Привет, как дела?",
    "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "ស្វាគមន៍", "你好，世界。今天天气很好！", "こんにちは、世界", "안녕하세요 세계",
    "e\u0301 a\u0308\u0323", "😀", "👨\u200d👩\u200d👧\u200d👦 🇩🇪 👍🏽", "a😀b 😀 c", "\u00a0x\u2003y\u3000z", "\ufefftext",
    "zero\u200bwidth", "\u202eright to left", "\x01\x02\x7f", "…—–“quoted”‘single’", "!!!???...,,,---", "a" * 40,
    "ab" * 30, " " * 33 + "x", "=" * 17, "_under_score_", "CamelCaseWordsAndXMLHttpRequest", "\r\nWindows\r\n",
]


def check(path):
    entries = read_gguf(path)
    tokens = entries["tokenizer.ggml.tokens"]
    if entries["tokenizer.ggml.model"] == "gpt2":
        ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(entries["tokenizer.ggml.merges"])}
        ids = {token: i for i, token in enumerate(tokens)}
        encode = lambda text: encode_byte_level(text, ids, ranks)  # noqa: E731
    else:
        types, scores = entries["tokenizer.ggml.token_type"], entries["tokenizer.ggml.scores"]
        ids = {token: i for i, token in enumerate(tokens) if types[i] in (NORMAL, BYTE)}
        encode = lambda text: encode_sentencepiece(text, ids, scores, True)  # noqa: E731
    texts = pathlib.Path(path + ".inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    wanted = [[int(i) for i in line.split()] for line in pathlib.Path(path + ".out").read_text().splitlines()]
    wrong = [text for text, expected in zip(texts, wanted) if encode(text) != expected]
    print(path, len(wanted), "texts,", len(wrong), "other ids", wrong)
    return not wrong


if sys.argv[1:2] == ["--check"]:
    sys.exit(not all([check(path) for path in sys.argv[2:]]))
for name, make in (("byte-level", make_byte_level), ("sentencepiece", make_sentencepiece)):
    encode = make(corpus())
    lines = ",\n".join("  " + json.dumps({"text": text, "ids": encode(text)}) for text in TEXTS)
    (HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n")
    print(name, len(TEXTS), "texts,", sum(len(encode(text)) for text in TEXTS), "ids")
