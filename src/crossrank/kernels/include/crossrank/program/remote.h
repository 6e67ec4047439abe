// What a kernel says to its peers. Places are those of its own view; on a peer the same place of the peer's is meant.
//
// What lies side by side goes at once, and no copy is made where the peer's memory is reachable.
#pragma once
#include "crossrank/program/tile.h"

namespace crossrank::program {

// In what pieces a transfer goes where the peer's memory is not reachable; 0: no smaller than it must.
struct Chunks {
  int64_t rows = 0, columns = 0;

  int64_t most(int64_t row) const {
    if (columns > 0) return columns;
    return rows > 0 && row > 0 ? rows * row : INT64_MAX;
  }
};

// Elements of a peer, from those on that are `at` in the own view.
template <class T>
class Peer {
 public:
  template <int N>
  Peer(Core& core, const char* does, const View<T, N>& view, int64_t rank, const Dims<N>& at)
      : core_(core), ctx_(view.ctx), slot_(view.slot), first_(view.offset + distance(at, view.strides)) {
    if (rank < 0 || rank >= int64_t(ctx_->size))
      core.fail("%s rank %lld of %s, which %u ranks have", does, (long long)rank, view.name, ctx_->size);
    rank_ = uint32_t(rank);
    if (char* const begin = reach(ctx_, slot_, rank_)) here_ = reinterpret_cast<T*>(begin) + first_;
  }

  // One row, of which both sides have a step.
  void read(int64_t at, int64_t step, T* to, int64_t to_step, int64_t count, int64_t most) const {
    if (here_) return copy(to, to_step, here_ + at, step, count);
    pieces(step == 1 && to_step == 1 ? most : 1, count, [&](int64_t i, int64_t n) {
      core_.check(crossrank::get(ctx_, slot_, rank_, range(at + i * step, n), to + i * to_step));
    });
  }
  void write(int64_t at, int64_t step, const T* from, int64_t from_step, int64_t count, int64_t most) const {
    if (here_) return copy(here_ + at, step, from, from_step, count);
    pieces(step == 1 && from_step == 1 ? most : 1, count, [&](int64_t i, int64_t n) {
      core_.check(crossrank::put(ctx_, slot_, rank_, range(at + i * step, n), from + i * from_step));
    });
  }
  // Adds, so that others may at the same time.
  void add(int64_t at, int64_t step, const T* from, int64_t from_step, int64_t count) const {
    if (!here_) core_.fail("this fabric cannot add to a peer's memory");
    for (int64_t i = 0; i < count; ++i) add_to(here_ + at + i * step, from[i * from_step]);
  }

 private:
  Range range(int64_t at, int64_t n) const { return {uint64_t(first_ + at) * sizeof(T), uint64_t(n) * sizeof(T)}; }

  template <class F>
  static void pieces(int64_t most, int64_t count, F piece) {
    for (int64_t i = 0; i < count; i += most) piece(i, most < count - i ? most : count - i);
  }

  static void add_to(T* cell, T value) {
    T before, after;
    __atomic_load(cell, &before, __ATOMIC_RELAXED);
    do after = T(Add::of<Wide<T>>(before, value));
    while (!__atomic_compare_exchange(cell, &before, &after, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  }

  Core& core_;
  CommContext* ctx_;
  uint32_t slot_, rank_;
  int64_t first_;       // in elements, from the argument's begin
  T* here_ = nullptr;  // where it is reachable
};

template <class T, int N>
inline Tile<T, N> remote_load(Core& core, const View<T, N>& view, int64_t peer, Dims<N> at, Dims<N> shape,
                              Dims<N> valid) {
  ask_valid(core, "pld.tile.remote_load fills", valid, shape);
  ask_within(core, "pld.tile.remote_load reads", view.name, at, valid, view.shape);
  const Peer<T> from(core, "pld.tile.remote_load reads", view, peer, at);
  Tile<T, N> out(core, shape, valid);
  for (Walk<2> w(N, valid.n, {view.strides.n, packed(shape).n}); w.more; w.next())
    from.read(w.at[0], w.step[0], out.data() + w.at[1], w.step[1], w.count, INT64_MAX);
  return out;
}

template <class T, int N>
inline Tile<T, N> remote_load(Core& core, const View<T, N>& view, int64_t peer, Dims<N> at, Dims<N> shape) {
  return remote_load(core, view, peer, at, shape, shape);
}

enum class Atomic { kNone, kAdd };

template <Atomic how, class T, int N>
inline void send(const Region<T, N>& from, const Peer<T>& to, const Dims<N>& strides, int64_t most) {
  for (Walk<2> w(N, from.extents.n, {from.strides.n, strides.n}); w.more; w.next()) {
    if constexpr (how == Atomic::kAdd)
      to.add(w.at[1], w.step[1], from.data + w.at[0], w.step[0], w.count);
    else
      to.write(w.at[1], w.step[1], from.data + w.at[0], w.step[0], w.count, most);
  }
}

template <Atomic how = Atomic::kNone, class Source, class T, int N>
inline void remote_store(Core& core, const Source& source, const View<T, N>& target, int64_t peer, Dims<N> at) {
  const auto from = region<N>(source);
  ask_within(core, "remote_store writes", target.name, at, from.extents, target.shape);
  send<how>(from, Peer<T>(core, "remote_store writes", target, peer, at), target.strides, INT64_MAX);
}

// The part of a region.
template <class T, int N>
inline Region<T, N> part(Core& core, const char* does, const View<T, N>& view, const Dims<N>& at,
                         const Dims<N>& shape) {
  ask_within(core, does, view.name, at, shape, view.shape);
  return {view.data + distance(at, view.strides), shape, view.strides};
}

template <class T, int N>
inline void ask_alike(Core& core, const char* op, const View<T, N>& dst, const View<T, N>& src) {
  for (int d = 0; d < N; ++d)
    if (dst.shape[d] != src.shape[d])
      core.fail("%s: %s and %s have extents %lld and %lld in dimension %d", op, dst.name, src.name,
                (long long)dst.shape[d], (long long)src.shape[d], d);
}

template <Atomic how = Atomic::kNone, class T, int N>
inline void put(Core& core, const View<T, N>& dst, int64_t peer, const View<T, N>& src, Dims<N> dst_at, Dims<N> src_at,
                Dims<N> shape, Chunks chunks = {}) {
  const auto from = part(core, "pld.tensor.put reads", src, src_at, shape);
  ask_within(core, "pld.tensor.put writes", dst.name, dst_at, shape, dst.shape);
  const Peer<T> to(core, "pld.tensor.put writes", dst, peer, dst_at);
  send<how>(from, to, dst.strides, chunks.most(shape[N - 1]));
}

template <Atomic how = Atomic::kNone, class T, int N>
inline void put(Core& core, const View<T, N>& dst, int64_t peer, const View<T, N>& src, Chunks chunks = {}) {
  ask_alike(core, "pld.tensor.put", dst, src);
  put<how>(core, dst, peer, src, {}, {}, dst.shape, chunks);
}

template <class T, int N>
inline void get(Core& core, const View<T, N>& dst, int64_t peer, const View<T, N>& src, Dims<N> dst_at, Dims<N> src_at,
                Dims<N> shape, Chunks chunks = {}) {
  ask_within(core, "pld.tensor.get reads", src.name, src_at, shape, src.shape);
  ask_within(core, "pld.tensor.get writes", dst.name, dst_at, shape, dst.shape);
  const Peer<T> from(core, "pld.tensor.get reads", src, peer, src_at);
  T* const to = dst.data + distance(dst_at, dst.strides);
  const int64_t most = chunks.most(shape[N - 1]);
  for (Walk<2> w(N, shape.n, {src.strides.n, dst.strides.n}); w.more; w.next())
    from.read(w.at[0], w.step[0], to + w.at[1], w.step[1], w.count, most);
}

template <class T, int N>
inline void get(Core& core, const View<T, N>& dst, int64_t peer, const View<T, N>& src, Chunks chunks = {}) {
  ask_alike(core, "pld.tensor.get", dst, src);
  get(core, dst, peer, src, {}, {}, dst.shape, chunks);
}

// ---- signals ----

template <int N>
inline uint64_t cell(Core& core, const char* does, const View<int32_t, N>& signal, const Dims<N>& at) {
  ask_within(core, does, signal.name, at, ones<N>(), signal.shape);
  return uint64_t(signal.offset + distance(at, signal.strides));
}

template <int N>
inline void notify(Core& core, const View<int32_t, N>& signal, int64_t peer, Dims<N> at, int32_t value, Notify how) {
  const uint64_t where = cell(core, "pld.system.notify changes", signal, at);
  if (peer < 0 || peer >= int64_t(signal.ctx->size))
    core.fail("pld.system.notify changes rank %lld of %s, which %u ranks have", (long long)peer, signal.name,
              signal.ctx->size);
  core.check(crossrank::notify(signal.ctx, signal.slot, uint32_t(peer), where, value, how));
}

template <int N>
inline void wait(Core& core, const View<int32_t, N>& signal, Dims<N> at, int32_t value, Compare how) {
  const uint64_t where = cell(core, "pld.system.wait looks at", signal, at);
  core.check(crossrank::wait(signal.ctx, signal.slot, where, value, how));
}

template <int N>
inline void defer_wait(Core& core, const View<int32_t, N>& signal, Dims<N> at, int32_t value) {
  const uint64_t where = cell(core, "pld.system.defer_wait looks at", signal, at);
  core.check(crossrank::defer(signal.ctx, signal.slot, where, value));
}

// What was written before is there for whoever sees what is notified after.
template <class... Contexts>
inline void fence(Core& core, Contexts*... contexts) {
  (core.check(crossrank::fence(contexts)), ...);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}

// What is read after it is not stale.
inline void invalidate() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

}  // namespace crossrank::program
