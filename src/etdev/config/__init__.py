"""Functions that read, merge and check config files. They do not import torch, executorch or numpy."""
