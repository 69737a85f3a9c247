"""Generation of text with a built file in ExecuTorch's own LLM runner: `python generate.py FILE [PROMPT]`."""

import sys
from pathlib import Path

import executorch.kernels.quantized  # noqa: F401 - the kernels of quantized embeddings (`embedding_bits`)
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

from data import PROMPTS, tokenizer
from model import FOLDER


def generate(file: Path, prompt: str, most: int = 60) -> str:
    """Return the most likely text after the prompt, up to the end of the text or `most` tokens."""
    runner = TextLLMRunner(str(file), str(FOLDER / "tokenizer.json"))
    begins = tokenizer().encode("")[:1] == [tokenizer().bos_token_id]  # The runner puts no such token there by itself.
    pieces: list[str] = []
    settings = GenerationConfig(echo=False, temperature=0, max_new_tokens=most, num_bos=int(begins))
    runner.generate(prompt, settings, pieces.append)
    return "".join(pieces)


if __name__ == "__main__":
    generate(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else PROMPTS[0])  # The runner prints it.
