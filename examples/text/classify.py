"""Print the language of a text, with the built file: `python classify.py FILE TEXT`"""

import json
import sys
from pathlib import Path

from executorch.runtime import Runtime

from data import FOLDER, encode


def classify(file: Path, text: str) -> str:
    """Return the most likely language."""
    languages = json.loads((FOLDER / "model" / "config.json").read_text())["id2label"]
    (logits,) = Runtime.get().load_program(file).load_method("forward").execute(encode(text))
    return languages[str(int(logits.argmax()))]


if __name__ == "__main__":
    print(classify(Path(sys.argv[1]), sys.argv[2]))
