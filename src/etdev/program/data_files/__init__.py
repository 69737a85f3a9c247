"""External data of a program: the choice of ``.ptd`` files for it, and moves to these files and back."""
