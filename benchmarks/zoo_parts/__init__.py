"""What `zoo.py` is made of: builds, runs, timing, results and tables of one model after the other."""

import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "zoo_project"
"""The etdev project whose model is one of the zoo's, by the name in its `kwargs`."""

# A project's modules are imported by their bare names, by etdev as well.
sys.path.insert(0, str(PROJECT))
