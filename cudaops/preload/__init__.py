"""A rewrite as a library for LD_PRELOAD: the author's executable launches it without a rebuild."""
