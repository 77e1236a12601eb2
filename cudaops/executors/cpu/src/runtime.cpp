// What runs kernels and, in some kinds of build, watches them: compiled for each kind.
#include "fiber.cpp"
#include "lanes.cpp"
#include "scheduler.cpp"
#include "cluster.cpp"
#include "memory.cpp"
#include "report.cpp"
#include "grid.cpp"
#ifdef CUDAOPS_INSTRUMENTED
#include "device_heap.cpp"
#include "host_memory.cpp"
#include "checker.cpp"
#include "cluster_checker.cpp"
#include "races.cpp"
#include "alignment.cpp"
#include "arithmetic.cpp"
#endif
