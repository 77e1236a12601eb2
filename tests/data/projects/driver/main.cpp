// Launches the kernels of kernel.cubin by CUDA's driver API: ./app [ROWS COLUMNS [KERNEL...]], where
// `print` says how far it is and `rest` then takes a minute.
#include <cuda.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static void check(CUresult found, const char* what) {
    if (found == CUDA_SUCCESS) return;
    std::fprintf(stderr, "%s fails with error %d\n", what, static_cast<int>(found));
    std::exit(1);
}
#define CHECK(call) check(call, #call)

static CUcontext context_on(CUdevice device) {
    CUcontext context = nullptr;
#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&context, nullptr, 0, device));
#else
    CHECK(cuCtxCreate(&context, 0, device));
#endif
    return context;
}

struct Band {
    CUdeviceptr rows;
    int width;
    float by;
};

int main(int argc, char** argv) {
    int rows = argc > 1 ? std::atoi(argv[1]) : 64, columns = argc > 2 ? std::atoi(argv[2]) : 48;
    int count = rows * columns;
    CUdevice device;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CUcontext context = context_on(device);
    CHECK(cuModuleLoad(&module, "kernel.cubin"));

    std::vector<float> values(count);
    for (int i = 0; i < count; ++i) values[i] = static_cast<float>((i * 7919) % 1000) / 1000.0f;
    const size_t bytes = values.size() * sizeof(float);
    CUdeviceptr in, out;
    CHECK(cuMemAlloc(&in, bytes));
    CHECK(cuMemAlloc(&out, bytes));
    CHECK(cuMemcpyHtoD(in, values.data(), bytes));

    const char* usual[] = {"smooth", "smooth", "smooth", "shift", "scale"};
    const int given = argc - 3;
    for (int i = 0; i < (given > 0 ? given : 5); ++i) {
        const char* name = given > 0 ? argv[3 + i] : usual[i];
        CUfunction kernel;
        if (std::strcmp(name, "print") == 0) {
            std::printf("%d launches\n", i);
        } else if (std::strcmp(name, "rest") == 0) {
            std::this_thread::sleep_for(std::chrono::minutes(1));
        } else if (std::strcmp(name, "smooth") == 0) {
            CHECK(cuModuleGetFunction(&kernel, module, "smooth"));
            void* arguments[] = {&in, &out, &rows, &columns};
            const unsigned x = (columns + 31) / 32, y = (rows + 7) / 8;
            CHECK(cuLaunchKernel(kernel, x, y, 1, 32, 8, 1, 0, nullptr, arguments, nullptr));
        } else if (std::strcmp(name, "shift") == 0) {
            CHECK(cuModuleGetFunction(&kernel, module, "_ZN3ops5shiftIfEEvPT_S1_i"));
            float by = 0.5f;
            struct {
                CUdeviceptr values;
                float by;
                int count;
            } packed = {out, by, count};
            size_t size = sizeof packed;
            void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
                             &size, CU_LAUNCH_PARAM_END};
            CHECK(cuLaunchKernel(kernel, (count + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, nullptr,
                                 extra));
        } else if (std::strcmp(name, "amplify") == 0) {
            const float gain = 1.5f;
            CUdeviceptr place;
            size_t size;
            CHECK(cuModuleGetGlobal(&place, &size, module, "_ZN3ops4gainE"));
            CHECK(cuMemcpyHtoD(place, &gain, sizeof gain));
            CHECK(cuModuleGetFunction(&kernel, module, "_ZN3ops7amplifyEPfi"));
            void* arguments[] = {&out, &count};
            CHECK(cuLaunchKernel(kernel, (count + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, arguments,
                                 nullptr));
        } else {
            CHECK(cuModuleGetFunction(&kernel, module, "_ZN3ops5scaleE4Bandi"));
            Band band = {out, columns, 1.25f};
            void* arguments[] = {&band, &rows};
            CUlaunchConfig config = {};
            config.gridDimX = (count + 127) / 128, config.gridDimY = config.gridDimZ = 1;
            config.blockDimX = 128, config.blockDimY = config.blockDimZ = 1;
            CHECK(cuLaunchKernelEx(&config, kernel, arguments, nullptr));
        }
    }
    CHECK(cuMemcpyDtoH(values.data(), out, bytes));
    CHECK(cuCtxDestroy(context));
    double sum = 0;
    for (float value : values) sum += value;
    std::printf("sum %.6g, first %.6g, last %.6g\n", sum, values[0], values[count - 1]);
    return 0;
}
