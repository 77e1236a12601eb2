// Where the arguments of a launch stand.
#pragma once
#include "driver.h"

namespace cudaops {

// A parameter of a kernel: where it stands in a buffer of all of them.
struct Parameter {
    unsigned offset, size;
};

// Where each of the arguments stands; false where they cannot be found.
inline bool find_arguments(const Parameter* wanted, unsigned count, const Launch& launch,
                           const void** given) {
    if (launch.parameters != nullptr) {
        for (unsigned i = 0; i < count; ++i) given[i] = launch.parameters[i];
        return true;
    }
    const char* buffer = nullptr;
    const size_t* size = nullptr;
    void** extra = launch.extra;
    for (; extra != nullptr && extra[0] != nullptr; extra += 2) {
        const auto key = reinterpret_cast<size_t>(extra[0]);
        if (key == 1) buffer = static_cast<const char*>(extra[1]);
        else if (key == 2) size = static_cast<const size_t*>(extra[1]);
        else return false;
    }
    for (unsigned i = 0; i < count; ++i) {
        const Parameter& one = wanted[i];
        if (buffer == nullptr || size == nullptr || one.offset + one.size > *size) return false;
        given[i] = buffer + one.offset;
    }
    return true;
}

// Where a variable of the module that a kernel is in stands, in the current context.
inline bool find_variable(const Driver& driver, Function* function, const char* symbol,
                          Address* address, size_t* size) {
    Module* module = nullptr;
    if (driver.cuFuncGetModule(&module, function) == SUCCESS)
        return driver.cuModuleGetGlobal_v2(address, size, module, symbol) == SUCCESS;
    Library* library = nullptr;
    const auto kernel = reinterpret_cast<Kernel*>(function);
    return driver.cuKernelGetLibrary(&library, kernel) == SUCCESS &&
           driver.cuLibraryGetGlobal(address, size, library, symbol) == SUCCESS;
}

// An attribute that asks for something: the rewrite was not judged with it. Null where none does.
inline const char* special_attribute(const LaunchConfig& config) {
    for (unsigned i = 0; i < config.attribute_count; ++i) {
        const LaunchAttribute& one = config.attributes[i];
        const unsigned* extent = one.value.extent;
        switch (one.id) {
            case 0:  // ignored
                break;
            case 2:  // cooperative
            case 6:  // programmatic stream serialization
                if (one.value.number != 0) return "it is launched with attributes";
                break;
            case 4:  // cluster dimension
                if (extent[0] > 1 || extent[1] > 1 || extent[2] > 1)
                    return "it is launched with attributes";
                break;
            default:
                return "it is launched with attributes";
        }
    }
    return nullptr;
}

}  // namespace cudaops
