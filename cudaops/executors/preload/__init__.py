"""What is loaded into a program that is run as it is, at the driver: `source/hooks.h` meets its
calls of libcuda. The recorder and the rewrite of `cudaops.preload` are built on it."""
