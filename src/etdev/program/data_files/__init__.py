"""External data of a program: the choice of its ``.ptd`` files, and moves of data to these files and back."""
