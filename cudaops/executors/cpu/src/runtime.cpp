// The runtime object, one translation unit: compiled once for each kind of build.
#include "fiber.cpp"
#include "scheduler.cpp"
#include "cluster.cpp"
#include "memory.cpp"
#include "report.cpp"
#include "graph.cpp"
#include "grid.cpp"
#include "functions.cpp"
#include "api.cpp"
#include "recorder.cpp"
#ifdef CUDAOPS_INSTRUMENTED
#include "host_memory.cpp"
#include "checker.cpp"
#include "cluster_checker.cpp"
#include "races.cpp"
#include "alignment.cpp"
#include "arithmetic.cpp"
#endif
