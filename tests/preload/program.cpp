// A program that launches kernels of a cubin by CUDA's driver API, as it is told:
//
//   program REACH CUBIN COMMAND...
//
// REACH is how it finds the driver's functions: `dlsym`, `address` (cuGetProcAddress_v2),
// `address1` (cuGetProcAddress before CUDA 12), `address_ptsz` (with the thread's own stream), or
// `linked`.
// A COMMAND is words in one argument: `launch HOW KERNEL GRID BLOCK SMEM HEX...`, where HOW is
// `parameters`, `extra`, `config`, `cluster`, `kernel` (a CUkernel in the function's place) or
// `captured`; `context`: go on in a new one; `set VARIABLE HEX`; `threads N TIMES launch ...`.
// It prints each command's result, and what the preloaded library counted, if there is one.
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#undef cuGetProcAddress

namespace {

#define CALLS(CALL)                                                                             \
    CALL(cuInit) CALL(cuCtxCreate) CALL(cuCtxSetCurrent) CALL(cuModuleLoadData)                 \
    CALL(cuModuleGetFunction) CALL(cuModuleGetGlobal) CALL(cuLibraryLoadData)                   \
    CALL(cuLibraryGetKernel) CALL(cuMemcpyHtoD) CALL(cuStreamCreate) CALL(cuStreamBeginCapture) \
    CALL(cuLaunchKernel) CALL(cuLaunchKernelEx)

struct Driver {
#define MEMBER(name) decltype(&::name) name##_;
    CALLS(MEMBER)
} cuda;

#define SPELLED(name) TEXT(name)
#define TEXT(name) #name

void* handle;

using Find = CUresult (*)(const char*, void**, int, cuuint64_t, void*);
using FindV1 = CUresult (*)(const char*, void**, int, cuuint64_t);

void* found(const std::string& reach, const char* base, const char* exported) {
    if (reach == "dlsym") return dlsym(handle, exported);
    void* function = nullptr;
    if (reach == "address1") {
        const auto find = reinterpret_cast<FindV1>(dlsym(handle, "cuGetProcAddress"));
        find(base, &function, 11080, 0);
        return function;
    }
    // As the runtime does: cuGetProcAddress for itself, and that for all else.
    void* again = nullptr;
    const auto first = reinterpret_cast<Find>(dlsym(handle, "cuGetProcAddress_v2"));
    first("cuGetProcAddress", &again, 13000, 0, nullptr);
    reinterpret_cast<Find>(again)(base, &function, 13000, reach == "address_ptsz" ? 2 : 0, nullptr);
    return function;
}

void open_driver(const std::string& reach) {
#ifdef LINKED
#define LINK(name) cuda.name##_ = &::name;
    CALLS(LINK)
#else
    handle = dlopen("libcuda.so.1", RTLD_LAZY);
    if (handle == nullptr) exit(100);
#define FIND(name) \
    cuda.name##_ = reinterpret_cast<decltype(cuda.name##_)>(found(reach, #name, SPELLED(name)));
    CALLS(FIND)
#endif
}

struct State {
    std::vector<char> image;
    CUmodule module;
    CUlibrary library;
    CUcontext context;

    void enter() {
        cuda.cuCtxCreate_(&context, nullptr, 0, 0);
        cuda.cuModuleLoadData_(&module, image.data());
    }
};

struct Arguments {
    std::vector<std::vector<char>> values;
    std::vector<void*> pointers;
    std::vector<char> buffer;  // all of them, each at a multiple of its size

    explicit Arguments(std::istream& words) {
        for (std::string hex; words >> hex;) {
            std::vector<char> bytes;
            for (size_t i = 0; i < hex.size(); i += 2)
                bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
            values.push_back(bytes);
        }
        for (auto& value : values) {
            pointers.push_back(value.data());
            const size_t unit = value.size() > 8 ? 8 : value.size();
            while (buffer.size() % unit != 0) buffer.push_back(0);
            buffer.insert(buffer.end(), value.begin(), value.end());
        }
    }
};

struct Extent {  // written as 64 or 64x2x1
    unsigned x = 1, y = 1, z = 1;

    explicit Extent(const std::string& text) { sscanf(text.c_str(), "%ux%ux%u", &x, &y, &z); }
};

int launch(State& state, std::istream& words) {
    std::string how, kernel, blocks, threads;
    unsigned smem;
    words >> how >> kernel >> blocks >> threads >> smem;
    const Extent grid(blocks), block(threads);
    Arguments arguments(words);
    CUfunction function = nullptr;
    if (how == "kernel") {
        CUkernel one;
        cuda.cuLibraryGetKernel_(&one, state.library, kernel.c_str());
        function = reinterpret_cast<CUfunction>(one);
    } else {
        cuda.cuModuleGetFunction_(&function, state.module, kernel.c_str());
    }
    CUstream stream = nullptr;
    if (how == "captured") {
        cuda.cuStreamCreate_(&stream, 0);
        cuda.cuStreamBeginCapture_(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
    void** const pointers = arguments.pointers.data();
    if (how == "config" || how == "cluster") {
        CUlaunchAttribute attributes[2] = {};
        attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[1].value.clusterDim = {how == "cluster" ? 2u : 1u, 1, 1};
        const CUlaunchConfig config = {grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                       smem,   stream, attributes, 2};
        return cuda.cuLaunchKernelEx_(&config, function, pointers, nullptr);
    }
    size_t size = arguments.buffer.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, arguments.buffer.data(),
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    const bool packed = how == "extra";
    return cuda.cuLaunchKernel_(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, smem,
                                stream, packed ? nullptr : pointers, packed ? extra : nullptr);
}

int in_threads(State& state, std::istream& words) {
    int count, times;
    std::string rest;
    words >> count >> times >> rest;
    std::getline(words, rest);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
        threads.emplace_back([&] {
            cuda.cuCtxSetCurrent_(state.context);
            for (int k = 0; k < times; ++k) {
                std::istringstream again(rest);
                if (launch(state, again) != 0) exit(101);
            }
        });
    for (auto& thread : threads) thread.join();
    return 0;
}

int perform(State& state, const std::string& command) {
    std::istringstream words(command);
    std::string verb;
    words >> verb;
    if (verb == "launch") return launch(state, words);
    if (verb == "threads") return in_threads(state, words);
    if (verb == "context") {
        state.enter();
        return 0;
    }
    std::string name;
    words >> name;
    const Arguments value(words);
    CUdeviceptr address = 0;
    size_t bytes = 0;
    const int problem = cuda.cuModuleGetGlobal_(&address, &bytes, state.module, name.c_str());
    return problem != 0 ? problem : cuda.cuMemcpyHtoD_(address, value.buffer.data(), bytes);
}

}  // namespace

int main(int count, char** words) {
    if (count < 3) return 102;
    open_driver(words[1]);
    std::ifstream file(words[2], std::ios::binary);
    State state;
    state.image.assign(std::istreambuf_iterator<char>(file), {});
    if (cuda.cuInit_(0) != 0) return 103;
    state.enter();
    cuda.cuLibraryLoadData_(&state.library, state.image.data(), nullptr, nullptr, 0, nullptr,
                            nullptr, 0);
    for (int i = 3; i < count; ++i) printf("%d\n", perform(state, words[i]));
    using Counts = size_t (*)(char*, size_t);
    const auto counts = reinterpret_cast<Counts>(dlsym(RTLD_DEFAULT, "cudaops_preload_counts"));
    if (counts != nullptr) {
        std::vector<char> text(counts(nullptr, 0) + 1);
        counts(text.data(), text.size());
        printf("%s\n", text.data());
    }
    return 0;
}
