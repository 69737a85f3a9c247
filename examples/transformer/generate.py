"""Run the built program as an app does: `python generate.py [FILE] [PROMPT]`.

The weights are random, so the text means nothing; it is the same each time.
"""

import sys
from pathlib import Path

import torch
from executorch.runtime import Runtime

from data import PROMPTS, STEPS, encode


def generate(file: Path, prompt: str, steps: int) -> str:
    """Return the prompt and the most likely tokens after it."""
    program = Runtime.get().load_program(file)
    # Load both before the first call: they share the caches, and loading a method resets the caches.
    prefill, decode = program.load_method("prefill"), program.load_method("decode")
    tokens = encode(prompt)
    (logits,) = prefill.execute([tokens])
    for position in range(tokens.shape[1], tokens.shape[1] + steps):
        token = logits.argmax(dim=1, keepdim=True)
        tokens = torch.cat([tokens, token], dim=1)
        (logits,) = decode.execute([token, torch.tensor([position])])
    return "".join(map(chr, tokens[0].tolist()))


if __name__ == "__main__":
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "build/portable/transformer.pte")
    print(repr(generate(file, sys.argv[2] if len(sys.argv) > 2 else PROMPTS[0], STEPS)))
