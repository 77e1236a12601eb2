// CUB's block-wide and warp-wide collectives, by shared memory. Reductions combine values in the order
// of CUB's default algorithms (shuffles over 1, 2, 4... lanes, then the warps one after another), so
// that sums of floating values round alike. Device-wide ones: cub_device.h.
#pragma once
#include "macros_off.h"
#include "cudaops/cuda.h"

namespace cub {

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

struct Sum {
  template <class T> T operator()(const T& a, const T& b) const { return a + b; }
};
struct Max {
  template <class T> T operator()(const T& a, const T& b) const { return b > a ? b : a; }
};
struct Min {
  template <class T> T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};

static inline unsigned LaneId() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
static inline int RowMajorTid(int x, int y, int) {
  return (int)threadIdx.x + x * ((int)threadIdx.y + y * (int)threadIdx.z);
}

template <class T, int LOGICAL_WARP_THREADS = 32>
class WarpReduce {
 public:
  struct TempStorage { T items[LOGICAL_WARP_THREADS]; };
  explicit WarpReduce(TempStorage& storage) : storage_(storage) {}

  T Sum(T input) { return Reduce(input, cub::Sum()); }
  T Sum(T input, int valid_items) { return Reduce(input, cub::Sum(), valid_items); }
  template <class Op> T Reduce(T input, Op op) { return Reduce(input, op, LOGICAL_WARP_THREADS); }
  // The result is the first lane's; others hold sums of what is behind them.
  template <class Op> T Reduce(T input, Op op, int valid_items) {
    int lane = (int)(LaneId() % LOGICAL_WARP_THREADS);
    unsigned mask = __activemask();
    for (int step = 1; step < LOGICAL_WARP_THREADS; step *= 2) {
      storage_.items[lane] = input;
      __syncwarp(mask);
      T other = lane + step < valid_items ? storage_.items[lane + step] : input;
      __syncwarp(mask);
      if (lane + step < valid_items) input = op(input, other);
    }
    return input;
  }

 private:
  TempStorage& storage_;
};

template <class T, int BLOCK_DIM_X, BlockReduceAlgorithm ALGORITHM = BLOCK_REDUCE_WARP_REDUCTIONS,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1>
class BlockReduce {
  static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z, warps = (threads + 31) / 32;
  using Warp = WarpReduce<T>;

 public:
  struct TempStorage {
    typename Warp::TempStorage warp[warps];
    T aggregates[warps];
  };
  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  T Sum(T input) { return Reduce(input, cub::Sum()); }
  T Sum(T input, int num_valid) { return Reduce(input, cub::Sum(), num_valid); }
  template <int ITEMS> T Sum(T (&inputs)[ITEMS]) { return Reduce(inputs, cub::Sum()); }
  template <class Op> T Reduce(T input, Op op) { return Reduce(input, op, threads); }
  template <int ITEMS, class Op> T Reduce(T (&inputs)[ITEMS], Op op) {
    T partial = inputs[0];
    for (int i = 1; i < ITEMS; ++i) partial = op(partial, inputs[i]);
    return Reduce(partial, op);
  }
  // The result is the first thread's.
  template <class Op> T Reduce(T input, Op op, int num_valid) {
    int at = RowMajorTid(BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z), first = at / 32 * 32;
    int limit = num_valid < threads ? num_valid : threads;
    input = Warp(storage_.warp[at / 32]).Reduce(input, op, limit - first < 32 ? limit - first : 32);
    if (at % 32 == 0) storage_.aggregates[at / 32] = input;
    __syncthreads();
    if (at == 0)
      for (int warp = 1; warp < warps; ++warp)
        if (warp * 32 < limit) input = op(input, storage_.aggregates[warp]);
    return input;
  }

 private:
  TempStorage& storage_;
};

template <class T, int BLOCK_DIM_X, BlockScanAlgorithm ALGORITHM = BLOCK_SCAN_RAKING, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1>
class BlockScan {
  static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;

 public:
  struct TempStorage { T items[threads]; };
  explicit BlockScan(TempStorage& storage) : storage_(storage) {}

  void InclusiveSum(T input, T& output) { InclusiveScan(input, output, cub::Sum()); }
  void InclusiveSum(T input, T& output, T& aggregate) { InclusiveScan(input, output, cub::Sum(), aggregate); }
  void ExclusiveSum(T input, T& output) { ExclusiveScan(input, output, T{}, cub::Sum()); }
  void ExclusiveSum(T input, T& output, T& aggregate) { ExclusiveScan(input, output, T{}, cub::Sum(), aggregate); }
  template <class Op> void InclusiveScan(T input, T& output, Op op) {
    T aggregate;
    InclusiveScan(input, output, op, aggregate);
  }
  template <class Op> void InclusiveScan(T input, T& output, Op op, T& aggregate) {
    int at = scan(input, op);
    output = storage_.items[at];
    aggregate = storage_.items[threads - 1];
  }
  template <class Op> void ExclusiveScan(T input, T& output, T initial, Op op) {
    T aggregate;
    ExclusiveScan(input, output, initial, op, aggregate);
  }
  template <class Op> void ExclusiveScan(T input, T& output, T initial, Op op, T& aggregate) {
    int at = scan(input, op);
    output = at == 0 ? initial : op(initial, storage_.items[at - 1]);
    aggregate = storage_.items[threads - 1];
  }

 private:
  template <class Op> int scan(T input, Op op) {
    int at = RowMajorTid(BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z);
    storage_.items[at] = input;
    __syncthreads();
    if (at == 0)
      for (int i = 1; i < threads; ++i) storage_.items[i] = op(storage_.items[i - 1], storage_.items[i]);
    __syncthreads();
    return at;
  }
  TempStorage& storage_;
};

}  // namespace cub
#include "macros_on.h"
