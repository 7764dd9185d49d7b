#include "proxy/launch/run_graphs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/driver_wrappers.h"

namespace tube::proxy {

void RunGraphs::make_room(uint64_t bytes) {
  while (!graphs_.empty() && !has_room(bytes)) drop(graphs_.begin()->second);
}

void RunGraphs::add(RunGraph&& made, RunGraph** place) {
  RunGraph& graph = graphs_.emplace(++clock_, std::move(made)).first->second;
  graph.place = place;
  graph.when = clock_;
  graph.bytes = bytes_of(graph.launches.size(), graph.parameters.size());
  bytes_ += graph.bytes;
  *place = &graph;
}

void RunGraphs::replayed(RunGraph& graph) {
  auto node = graphs_.extract(graph.when);
  node.key() = graph.when = ++clock_;
  graphs_.insert(std::move(node));
}

void RunGraphs::drop(RunGraph& graph) {
  destroy(graph);
  if (graph.place != nullptr) *graph.place = nullptr;
  else std::erase(left_, &graph);
  bytes_ -= graph.bytes;
  graphs_.erase(graph.when);
}

void RunGraphs::leave(RunGraph& graph) {
  if (left_.size() >= kMostLeft) drop(*left_.front());
  left_.push_back(&graph);
  *std::exchange(graph.place, nullptr) = nullptr;
}

RunGraph* RunGraphs::take_left(const std::function<bool(const RunGraph&)>& fits, RunGraph** place) {
  const auto found = std::find_if(left_.rbegin(), left_.rend(),
                                  [&](const RunGraph* graph) { return fits(*graph); });
  if (found == left_.rend()) return nullptr;
  RunGraph* graph = *found;
  left_.erase(std::next(found).base());
  graph->place = place;
  return *place = graph;
}

void RunGraphs::drop_left() {
  while (!left_.empty()) drop(*left_.front());
}

// The driver keeps what a running graph needs until it has ended.
void RunGraphs::destroy(RunGraph& graph) const {
  if (graph.exec != nullptr) driver_.cuGraphExecDestroy(graph.exec);
  if (graph.graph != nullptr) driver_.cuGraphDestroy(graph.graph);
}

bool RunGraphs::if_gate_open(const std::function<void()>& make) {
  if (gate_ != nullptr) return gate_->if_open(this_caller(), make);
  make();
  return true;
}

}  // namespace tube::proxy
