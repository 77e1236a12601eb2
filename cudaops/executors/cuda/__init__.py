"""Building for a GPU, and the trusted runner that launches what was built."""
