"""A tiny Llama with random weights, and a tokenizer that is trained on the spot.

    model.py FOLDER

A token has 1 KB of keys and values (bfloat16).  The model never ends an answer by itself:
max_tokens does.  It writes whole words only, so an answer has the same tokens when the next
turn contains it, as with most real models.  The answer depends on the whole prompt: wrong keys
and values give other words.
"""

import glob
import json
import os
import re
import sys

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN = 256
LAYERS = 4
HEADS = 8
KV_HEADS = 2
HEAD = HIDDEN // HEADS
VOCABULARY = 8192
CONTEXT = 32768

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# ChatML; tools go before the system prompt

TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n# Tools\\n' }}
{%- for tool in tools %}{{ (tool | tojson) + '\\n' }}{% endfor %}
{{- '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.content is string %}{{ m.content }}
{%- else %}{% for part in m.content or [] %}
{%- if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}
{%- for call in m.tool_calls or [] %}
{{- '<tool_call>' + call.function.name + ' '
    + (call.function.arguments | tojson) + '</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def tokenizer():
    """Trains on texts that each machine has: licences, Python's library."""
    files = [path for path in
             sorted(glob.glob("/usr/share/common-licenses/*"))
             + sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py"))
             if os.path.isfile(path)]

    tokens = Tokenizer(models.BPE())
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    tokens.train(files, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))

    return tokens


def weights(tokens):
    rng = np.random.default_rng(1)
    vocabulary = tokens.get_vocab_size()

    def random(*shape, scale=0.02):
        return (rng.standard_normal(shape, dtype=np.float32)
                * scale).astype(np.float16)

    # Component 0 is large in each embedding.  The head's row of a token that is
    # no whole word with a space before it has a large negative weight for this
    # component, so the model does not write such a token.

    embedding = random(vocabulary, HIDDEN, scale=0.5)
    embedding[:, 0] = 4.0

    head = random(vocabulary, HIDDEN, scale=0.12)
    head[:, 0] = -30.0

    for token, number in tokens.get_vocab().items():
        if (re.fullmatch("\u0120[A-Za-z]{2,}", token)
                and tokens.encode(" " + token[1:]).ids == [number]):
            head[number, 0] = 0.0

    found = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head,
        "model.norm.weight": np.ones(HIDDEN, np.float16),
    }

    for layer in range(LAYERS):
        at = "model.layers.%d." % layer

        for name, shape, scale in (
            ("self_attn.q_proj", (HEADS * HEAD, HIDDEN), 0.12),
            ("self_attn.k_proj", (KV_HEADS * HEAD, HIDDEN), 0.12),
            ("self_attn.v_proj", (KV_HEADS * HEAD, HIDDEN), 0.06),
            ("self_attn.o_proj", (HIDDEN, HEADS * HEAD), 0.06),
            ("mlp.gate_proj", (3 * HIDDEN, HIDDEN), 0.02),
            ("mlp.up_proj", (3 * HIDDEN, HIDDEN), 0.02),
            ("mlp.down_proj", (HIDDEN, 3 * HIDDEN), 0.02),
        ):
            found[at + name + ".weight"] = random(*shape, scale=scale)

        # no layer changes component 0

        for name in ("self_attn.o_proj", "mlp.down_proj"):
            found[at + name + ".weight"][0] = 0

        for name in ("input_layernorm", "post_attention_layernorm"):
            found[at + name + ".weight"] = np.ones(HIDDEN, np.float16)

    return found


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)

    def save(name, value):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f, indent=1)

    tokens = tokenizer()
    end, pad = (tokens.token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>"))

    tokens.save(os.path.join(folder, "tokenizer.json"))
    save_file(weights(tokens), os.path.join(folder, "model.safetensors"),
              metadata={"format": "pt"})

    save("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>", "bos_token": None,
        "pad_token": "<|endoftext|>", "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False, "chat_template": TEMPLATE,
        "added_tokens_decoder": {str(tokens.token_to_id(s)): {
            "content": s, "special": True, "lstrip": False, "rstrip": False,
            "normalized": False, "single_word": False} for s in SPECIAL}})

    save("config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": 3 * HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD, "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": False,
        "vocab_size": tokens.get_vocab_size(), "dtype": "bfloat16",
        "torch_dtype": "bfloat16", "bos_token_id": None, "eos_token_id": end,
        "pad_token_id": pad})

    save("generation_config.json", {"eos_token_id": end, "pad_token_id": pad,
                                    "do_sample": True})


if __name__ == "__main__":
    main()
