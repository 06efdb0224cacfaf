"""Makes the corpus with every core, trains the tokenizer, and writes the tokens of the corpus as uint16.

usage: prepare.py OUT_DIR MEGABYTES

Writes OUT_DIR/tok (tokenizer.json, tokenizer_config.json) and OUT_DIR/tokens.bin."""
import json
import multiprocessing
import os
import random
import sys
import time

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus

out, megabytes = sys.argv[1], int(sys.argv[2])
PARTS = 64
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Qwen2's, so that GGUF has a name for it.
REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
CHAT = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def documents(seed, size):
    r = random.Random(seed)
    made, length = [], 0
    while length < size:
        made.append(corpus.document(r))
        length += len(made[-1])
    return made


def train_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(REGEX), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    # The corpus has fewer words than that: every one becomes a token (1,480 in all), and merging ends by itself.
    trainer = trainers.BpeTrainer(vocab_size=2048, special_tokens=SPECIAL,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(documents(1, 8_000_000), trainer)
    os.makedirs(out + "/tok", exist_ok=True)
    tokenizer.save(out + "/tok/tokenizer.json")
    config = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<|endoftext|>", eos_token="<|im_end|>",
                  pad_token="<|endoftext|>", chat_template=CHAT, add_bos_token=False, model_max_length=2048)
    with open(out + "/tok/tokenizer_config.json", "w") as file:
        json.dump(config, file)
    return tokenizer.get_vocab_size()


def tokens(seed):
    tokenizer = Tokenizer.from_file(out + "/tok/tokenizer.json")
    ids = []
    for encoding in tokenizer.encode_batch(documents(seed, megabytes * 1_000_000 // PARTS)):
        ids.extend(encoding.ids)
        ids.append(0)  # <|endoftext|>
    return np.array(ids, dtype=np.uint16)


if __name__ == "__main__":
    start = time.time()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    print("vocabulary", train_tokenizer(), f"{time.time() - start:.0f} s", flush=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # processes are enough
    with multiprocessing.Pool() as pool:
        everything = np.concatenate(pool.map(tokens, range(100, 100 + PARTS), 1))
    everything.tofile(out + "/tokens.bin")
    print(f"{len(everything) / 1e6:.0f} M tokens, {time.time() - start:.0f} s", flush=True)
