// Device times of launches by event pairs, read when they have happened; the host waits for none.
#pragma once
#include <deque>
#include <map>
#include <vector>

#include "device.h"

namespace cudaops_capture {

struct Configuration;

// What one launch took. `alone`: the device stood still before it, so that the time between its events
// holds the host's part of the launch too.
struct Spent {
  Configuration* configuration;
  double seconds;
  bool alone;
  double weight;  // launches that it stands for
};

class Timer {
 public:
  struct Pair {
    cudaEvent_t start = nullptr, stop = nullptr;
    int device = 0;
  };

  // The pair stays empty where an event cannot be had: that launch is not timed.
  Pair begin(cudaStream_t stream) {
    Pair pair = take();
    if (pair.start && cudaEventRecord(pair.start, stream) != cudaSuccess) give_back(pair);
    return pair;
  }

  void end(Pair& pair, cudaStream_t stream, Configuration* configuration, bool alone, double weight) {
    if (!pair.start) return;
    if (cudaEventRecord(pair.stop, stream) != cudaSuccess) return give_back(pair);
    flights_.push_back({pair, configuration, alone, weight});
  }

  void give_back(Pair& pair) {
    if (pair.start) idle_[pair.device].push_back(pair);
    pair = Pair{};
  }

  bool is_full() const { return flights_.size() >= due_; }

  // What has ended; with `wait`, everything.
  std::vector<Spent> collect(bool wait) {
    std::vector<Spent> spent;
    for (; !flights_.empty(); flights_.pop_front()) {
      Flight& flight = flights_.front();
      if (wait ? cudaEventSynchronize(flight.pair.stop) != cudaSuccess
               : cudaEventQuery(flight.pair.stop) == cudaErrorNotReady)
        break;
      float milliseconds = 0;
      if (cudaEventElapsedTime(&milliseconds, flight.pair.start, flight.pair.stop) == cudaSuccess)
        spent.push_back({flight.configuration, milliseconds * 1e-3, flight.alone, flight.weight});
      give_back(flight.pair);
    }
    due_ = flights_.size() + batch;
    return spent;
  }

  // The events are no more.
  void forget() {
    flights_.clear();
    idle_.clear();
  }

 private:
  static constexpr size_t batch = 512;
  struct Flight {
    Pair pair;
    Configuration* configuration;
    bool alone;
    double weight;
  };

  Pair take() {
    Pair pair;
    if (cudaGetDevice(&pair.device) != cudaSuccess) return pair;
    std::vector<Pair>& idle = idle_[pair.device];
    if (!idle.empty()) {
      pair = idle.back();
      idle.pop_back();
      return pair;
    }
    cudaEvent_t start = nullptr, stop = nullptr;
    if (cudaEventCreate(&start) != cudaSuccess) return pair;
    if (cudaEventCreate(&stop) != cudaSuccess) return cudaEventDestroy(start), pair;
    pair.start = start, pair.stop = stop;
    return pair;
  }

  std::deque<Flight> flights_;
  size_t due_ = batch;  // flights, before those that have ended are looked for
  std::map<int, std::vector<Pair>> idle_;
};

}  // namespace cudaops_capture
