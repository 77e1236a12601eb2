// CUDA graphs, by the rules of host.cpp.
#include "machine.h"
#include "graph.cpp"
#include "graph_nodes.cpp"
