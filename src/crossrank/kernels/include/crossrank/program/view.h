// A tensor as a kernel sees it: a view of memory that outlives the kernel, with what its argument is, so that the same
// place can be found on a peer.
#pragma once
#include "crossrank/program/core.h"

namespace crossrank::program {

template <class T, int N>
struct View {
  T* data;
  Dims<N> shape, strides;  // in elements
  int64_t offset;          // of `data` from the argument's first element, through its strides
  const char* name;        // of the argument
  uint32_t slot;
  CommContext* ctx;  // of a distributed tensor
};

// The argument in a slot.
template <class T, int N>
inline View<T, N> argument(Core& core, const Slot* args, const char* name, uint32_t slot, int32_t dtype,
                           CommContext* ctx = nullptr) {
  const Tensor& tensor = *args[slot].tensor;
  if (tensor.rank != N || tensor.dtype != dtype)
    core.fail("%s has %d dimensions and elements of type %d, where the kernel has %d and %d", name, tensor.rank,
              tensor.dtype, N, dtype);
  View<T, N> view{static_cast<T*>(tensor.data), {}, {}, 0, name, slot, ctx};
  for (int d = 0; d < N; ++d) view.shape[d] = tensor.shape[d], view.strides[d] = tensor.strides[d];
  return view;
}

template <class T, int N>
inline View<T, N> slice(Core& core, View<T, N> view, Dims<N> from, Dims<N> extents) {
  ask_within(core, "pl.slice takes", view.name, from, extents, view.shape);
  const int64_t by = distance(from, view.strides);
  view.data += by;
  view.offset += by;
  view.shape = extents;
  return view;
}

// Without the dimensions `Gone`, in ascending order.
template <int... Gone, class T, int N>
inline View<T, N - int(sizeof...(Gone))> drop(const View<T, N>& view) {
  View<T, N - int(sizeof...(Gone))> left{view.data, {}, {}, view.offset, view.name, view.slot, view.ctx};
  int to = 0;
  for (int d = 0; d < N; ++d) {
    if (((d == Gone) || ...)) continue;
    left.shape[to] = view.shape[d];
    left.strides[to++] = view.strides[d];
  }
  return left;
}

template <class T, int N>
inline bool is_packed(const View<T, N>& view) {
  int64_t stride = 1;
  bool packed = true;
  for (int d = N - 1; d >= 0; --d) {
    packed &= view.shape[d] == 1 || view.strides[d] == stride;
    stride *= view.shape[d];
  }
  return packed || stride == 0;
}

// Where extents are the same but for those of 1: what each of the others has under the first goes under the second;
// whether they are.
template <int N, int M>
inline bool regrouped(const Dims<N>& shape, const Dims<N>& has, const Dims<M>& other, Dims<M>& also) {
  int d = 0;
  for (int from = 0; from < N; ++from) {
    if (shape[from] == 1) continue;
    while (d < M && other[d] == 1) ++d;
    if (d == M || other[d] != shape[from]) return false;
    also[d++] = has[from];
  }
  while (d < M && other[d] == 1) ++d;
  return d == M;
}

template <int M, class T, int N>
inline View<T, M> reshape(Core& core, const View<T, N>& view, Dims<M> shape) {
  if (count(shape) != count(view.shape))
    core.fail("pl.reshape makes %lld elements of %s, which has %lld", (long long)count(shape), view.name,
              (long long)count(view.shape));
  Dims<M> strides = packed(shape);
  if (!is_packed(view) && !regrouped(view.shape, view.strides, shape, strides))
    core.fail("pl.reshape of %s, whose elements do not lie without gaps", view.name);
  return {view.data, shape, strides, view.offset, view.name, view.slot, view.ctx};
}

template <int A, int B, class T, int N>
inline View<T, N> transpose(Core&, View<T, N> view) {
  const int64_t extent = view.shape[A], stride = view.strides[A];
  view.shape[A] = view.shape[B], view.strides[A] = view.strides[B];
  view.shape[B] = extent, view.strides[B] = stride;
  return view;
}

// Single elements may be cells that peers write meanwhile.
template <class T, int N>
inline T read(Core& core, const View<T, N>& view, Dims<N> at) {
  ask_within(core, "pl.read reads", view.name, at, ones<N>(), view.shape);
  T value;
  __atomic_load(view.data + distance(at, view.strides), &value, __ATOMIC_ACQUIRE);
  return value;
}

template <class T, int N>
inline void write(Core& core, const View<T, N>& view, Dims<N> at, Scalar<T> value) {
  ask_within(core, "pl.write writes", view.name, at, ones<N>(), view.shape);
  __atomic_store(view.data + distance(at, view.strides), &value, __ATOMIC_RELEASE);
}

// `count` elements, each as far from the next as `step` says.
template <class T>
inline void copy(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t count) {
  if (to_step == 1 && from_step == 1)
    std::memcpy(to, from, count * sizeof(T));
  else
    for (int64_t i = 0; i < count; ++i) to[i * to_step] = from[i * from_step];
}

}  // namespace crossrank::program
