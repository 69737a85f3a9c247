"""External data of a program: the content of ``.ptd`` files, and functions that move data to these files and back."""
