"""A LoRA adapter of the model that model.py writes: adapter.py FOLDER SEED"""

import json
import os
import sys

import numpy as np
from safetensors.numpy import save_file

from model import HEAD, HEADS, HIDDEN, KV_HEADS, LAYERS

RANK = 8


def main():
    folder, seed = sys.argv[1], int(sys.argv[2])
    rng = np.random.default_rng(seed)
    weights = {}

    for layer in range(LAYERS):
        for name, out in (("q_proj", HEADS * HEAD), ("v_proj", KV_HEADS * HEAD)):
            where = ("base_model.model.model.layers.%d.self_attn.%s.lora_"
                     % (layer, name))

            for part, shape in (("A", (RANK, HIDDEN)), ("B", (out, RANK))):
                weights[where + part + ".weight"] = (
                    rng.standard_normal(shape) * 0.02).astype(np.float16)

    os.makedirs(folder, exist_ok=True)
    save_file(weights, os.path.join(folder, "adapter_model.safetensors"))

    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK,
                   "lora_alpha": 16, "lora_dropout": 0.0, "bias": "none",
                   "target_modules": ["q_proj", "v_proj"],
                   "base_model_name_or_path": "m"}, f)


main()
