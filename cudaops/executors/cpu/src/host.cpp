// What host code calls, and what records it: the same in every kind of build, and of no use to
// kernels, so that nothing here may depend on the kind (of machine.h: no Worker, no Warp).
#include "machine.h"
#include "errors.cpp"
#include "functions.cpp"
#include "api.cpp"
#include "pools.cpp"
#include "devices.cpp"
#include "driver.cpp"
#include "recorder.cpp"
