"""External data of a program: which data goes into which ``.ptd`` file, and back."""
