#include "runtime/transport.h"

#include <utility>

namespace dyncp {
namespace {

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (int rank : ranks) {
    if (!text.empty()) text += ", ";
    text += std::to_string(rank);
  }
  return text;
}

}  // namespace

std::string to_string(const OperationRecord& record) {
  const OperationLabel& label = record.label;
  std::string text = "#" + std::to_string(record.index) + " " + std::string(record.kind);
  if (!label.what.empty()) text += " (" + std::string(label.what) + ")";
  if (label.microbatch >= 0) text += ", microbatch " + std::to_string(label.microbatch);
  if (label.layer >= 0) text += ", layer " + std::to_string(label.layer);
  if (label.step >= 0) text += ", ring step " + std::to_string(label.step);
  if (label.group.size > 0) text += ", CP group " + to_string(label.group);
  if (!record.send_to.empty()) {
    text += ", sends " + std::to_string(record.bytes_sent) + " bytes to rank " +
            list_ranks(record.send_to);
  }
  if (!record.receive_from.empty()) {
    text += ", receives " + std::to_string(record.bytes_received) + " bytes from rank " +
            list_ranks(record.receive_from);
  }
  return text + (record.completed ? ": done" : ": waiting");
}

void Transport::exchange(std::vector<SendBuffer> sends, std::vector<ReceiveBuffer> receives,
                         const OperationLabel& label) {
  start_exchange(std::move(sends), std::move(receives), label)->wait();
}

}  // namespace dyncp
