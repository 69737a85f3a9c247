"""Script that runs TOSA graphs with the TOSA reference model: ``worker.py PACKAGES JOB``.

``PACKAGES`` is a folder with the package ``tosa-tools``. The folder ``JOB`` contains ``calls.json``, which lists the
graph's file and the number of inputs of each call. Input I of call N is ``N.in.I.npy``. The script writes output I of
call N to ``N.out.I.npy``. For each call, ``answers.json`` has the number of outputs, or the reason why there are none.
The script imports nothing of etdev.
"""

import json
import sys
from pathlib import Path


def main(packages: str, job: Path) -> None:
    """Run all calls of a job."""
    sys.path.append(packages)
    import numpy as np
    import tosa_reference_model

    answers: list[int | str] = []
    for number, (graph, count) in enumerate(json.loads((job / "calls.json").read_text())):
        inputs = [np.load(job / f"{number}.in.{index}.npy") for index in range(count)]
        try:
            outputs, status = tosa_reference_model.run((job / graph).read_bytes(), inputs)
        except Exception as error:  # noqa: BLE001 - the reference model raises many kinds of errors
            answers.append(f"{type(error).__name__}: {error}")
            continue
        if status != tosa_reference_model.GraphStatus.TOSA_VALID:
            answers.append(str(status))
            continue
        for index, output in enumerate(outputs):
            np.save(job / f"{number}.out.{index}.npy", output)
        answers.append(len(outputs))
    (job / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
