#include "call.h"

namespace crossrank {

Calls& Calls::instance() {
  static Calls* calls = new Calls;
  return *calls;
}

Call* Calls::add(std::unique_ptr<Call> call) {
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t index = count_.load();
  if (index >= kPage * kPages) return nullptr;
  auto& page = pages_[index / kPage];
  if (!page) page = std::make_unique<Page>();
  call->id = int64_t(index);
  Call* added = call.get();
  page->calls[index % kPage] = std::move(call);
  count_.store(index + 1, std::memory_order_release);
  return added;
}

Call* Calls::find(int64_t id) {
  return id >= 0 && size_t(id) < count_.load(std::memory_order_acquire) ? at(size_t(id)) : nullptr;
}

}  // namespace crossrank
