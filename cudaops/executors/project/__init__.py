"""Programs of several files: built by their author's own command, in a copy of their tree."""
