// Errors after which the process must be ended: the runtime's and the driver's numbers are the same.
#pragma once

namespace cudaops_capture {

// Source: the descriptions of cudaError in driver_types.h (CUDA 13.0), whose numbers are cuda.h's.
inline bool ends_process(int error) {
  switch (error) {
    case 214:  // ECCUncorrectable
    case 226:  // Contained
    case 700:  // IllegalAddress
    case 702:  // LaunchTimeout
    case 710:  // Assert
    case 714:  // HardwareStackError
    case 715:  // IllegalInstruction
    case 716:  // MisalignedAddress
    case 717:  // InvalidAddressSpace
    case 718:  // InvalidPc
    case 719:  // LaunchFailure
    case 721:  // TensorMemoryLeak
    case 911:  // ExternalDevice
      return true;
    default:
      return false;
  }
}

}  // namespace cudaops_capture
