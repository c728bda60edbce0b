"""Writes a tiny llama model with random weights.

It talks nonsense, but an engine computes and caches its keys and values just
as it does those of a real model.  A token is a byte or one of WORDS, so that
prompts made of these have about as many bytes to a token as real ones.
"""

import array
import collections
import os
import random
import struct

CONTEXT = 131072
SIZE = 32           # of an embedding, and of the one attention head
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

WORDS = """block buffer cache chunk entry event file function handler header
index length line lock name offset parser path peer pool prefix queue request
signal socket status stream string table timeout token type upstream value
worker""".split()

OTHERS = """a agent are call change coding command description do done find
fix for given is it lines look need object on one parameters properties read
regular expression required result run search step task test that the tool
until what with work you""".split()

MARKS = ["   ", ");", " \"", "\":", "\",", " {\"", "\"}", "}}", "},"]

# chatml; the descriptions of the tools go into the system message

TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{{- '\\n\\n# Tools\\n' }}
{%- for tool in tools %}{{ (tool | tojson) + '\\n' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}{% if not (loop.first and m.role == 'system') %}
{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
{%- for call in m.tool_calls or [] %}
{{- '<tool_call>' + (call.function | tojson) + '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

UINT32, INT32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9

FLOAT32 = 0         # the type of all tensors

FORMATS = {UINT32: "<I", INT32: "<i", FLOAT: "<f", BOOL: "<?"}


def write(path, words=False):
    """Writes the model, if it is not there yet; words: it says nothing else.

    A text of words has the same tokens when it is read again."""
    if os.path.exists(path):
        return path

    tokens, merges = vocabulary()
    meta = [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, "kvroute-demo"),
        ("llama.context_length", UINT32, CONTEXT),
        ("llama.embedding_length", UINT32, SIZE),
        ("llama.block_count", UINT32, 1),
        ("llama.feed_forward_length", UINT32, 2 * SIZE),
        ("llama.attention.head_count", UINT32, 1),
        ("llama.attention.head_count_kv", UINT32, 1),
        ("llama.attention.layer_norm_rms_epsilon", FLOAT, 1e-5),
        ("llama.rope.dimension_count", UINT32, SIZE),
        ("llama.vocab_size", UINT32, len(tokens)),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "gpt-2"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.ggml.token_type", ARRAY,
         (INT32, [3 if t in SPECIAL else 1 for t in tokens])),
        ("tokenizer.ggml.merges", ARRAY, (STRING, merges)),
        ("tokenizer.ggml.bos_token_id", UINT32, tokens.index(SPECIAL[0])),
        ("tokenizer.ggml.eos_token_id", UINT32, tokens.index(SPECIAL[2])),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
        ("tokenizer.chat_template", STRING, TEMPLATE),
    ]

    said = {"\u0120" + word for word in WORDS + OTHERS}
    mute = [i for i, t in enumerate(tokens) if words and t not in said]

    info, data = tensors(len(tokens), mute)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(info), len(meta))

    for key, kind, v in meta:
        head += value(STRING, key) + struct.pack("<I", kind) + value(kind, v)

    head += b"".join(info)
    head += b"\0" * (-len(head) % 32)

    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    part = "%s.%d" % (path, os.getpid())

    with open(part, "wb") as f:
        f.write(head + data)

    os.replace(part, path)
    return path


def value(kind, v):
    """One metadata value as GGUF stores it."""
    if kind == STRING:
        v = v.encode()
        return struct.pack("<Q", len(v)) + v

    if kind == ARRAY:
        kind, items = v
        return (struct.pack("<IQ", kind, len(items))
                + b"".join(value(kind, i) for i in items))

    return struct.pack(FORMATS[kind], v)


def vocabulary():
    """The tokens, and the pairs of them that make a longer one."""
    # GPT-2 spells the bytes that cannot be printed as letters beyond them

    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    other = [b for b in range(256) if b not in printable]
    spelling = {b: chr(b) for b in printable}
    spelling.update((b, chr(256 + i)) for i, b in enumerate(other))

    plain = WORDS + OTHERS
    words = [[spelling[b] for b in word.encode()]
             for word in MARKS + plain + [" " + word for word in plain]]

    tokens = list(spelling.values()) + SPECIAL
    merges = []

    # byte pair encoding: merges the commonest pair, until words are whole

    while True:
        pairs = collections.Counter(pair for word in words
                                    for pair in zip(word, word[1:]))
        if not pairs:
            return tokens, [" ".join(pair) for pair in merges]

        pair = max(pairs, key=pairs.get)
        tokens.append("".join(pair))
        merges.append(pair)

        for word in words:
            for i in range(len(word) - 1, 0, -1):
                if tuple(word[i - 1:i + 1]) == pair:
                    word[i - 1:i + 1] = ["".join(pair)]


def tensors(vocab, mute=()):
    """The tensors' descriptions and their data; mute tokens are never said."""
    rnd = random.Random(20)
    info, data = [], bytearray()

    for name, *dims in (
        ("token_embd.weight", SIZE, vocab),
        ("output_norm.weight", SIZE),
        ("output.weight", SIZE, vocab),
        ("blk.0.attn_norm.weight", SIZE),
        ("blk.0.attn_q.weight", SIZE, SIZE),
        ("blk.0.attn_k.weight", SIZE, SIZE),
        ("blk.0.attn_v.weight", SIZE, SIZE),
        ("blk.0.attn_output.weight", SIZE, SIZE),
        ("blk.0.ffn_norm.weight", SIZE),
        ("blk.0.ffn_gate.weight", SIZE, 2 * SIZE),
        ("blk.0.ffn_up.weight", SIZE, 2 * SIZE),
        ("blk.0.ffn_down.weight", 2 * SIZE, SIZE),
    ):
        if len(dims) == 1:
            weights = array.array("f", [1.0]) * dims[0]
        else:
            scale = (3.0 / dims[0]) ** 0.5
            weights = array.array("f", (rnd.uniform(-scale, scale)
                                        for _ in range(dims[0] * dims[1])))

        if name == "output.weight":
            for i in mute:
                weights[i * SIZE:(i + 1) * SIZE] = array.array("f",
                                                               [0.0]) * SIZE

        data.extend(b"\0" * (-len(data) % 32))
        info.append(value(STRING, name) + struct.pack("<I", len(dims))
                    + struct.pack("<%dQ" % len(dims), *dims)
                    + struct.pack("<IQ", FLOAT32, len(data)))
        data.extend(weights.tobytes())

    return info, bytes(data)
