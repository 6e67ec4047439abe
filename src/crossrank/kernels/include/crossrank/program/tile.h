// Tiles: what a core works on. Row-major without gaps; of each a part from the first element on is valid, and nothing
// beyond it is read, computed or stored.
//
// Every function makes a new tile, but `write`, which changes its own. Element by element a dimension of extent 1 meets
// each element of the other tile's.
#pragma once
#include "crossrank/program/rows.h"
#include "crossrank/program/view.h"

namespace crossrank::program {

// A share of a buffer.
class Share {
 public:
  Share() = default;
  explicit Share(Buffer* buffer) : buffer_(buffer) {}
  Share(const Share& other) : buffer_(other.buffer_) {
    if (buffer_) ++buffer_->tiles;
  }
  Share(Share&& other) : buffer_(other.buffer_) { other.buffer_ = nullptr; }
  Share& operator=(Share other) {
    Buffer* const mine = buffer_;
    buffer_ = other.buffer_;
    other.buffer_ = mine;
    return *this;
  }
  ~Share() {
    if (buffer_ && --buffer_->tiles == 0) buffer_->arena->give(buffer_);
  }
  char* data() const { return buffer_->data(); }
  bool alone() const { return buffer_->tiles == 1; }

 private:
  Buffer* buffer_ = nullptr;
};

template <class T, int N>
struct Tile {
  Dims<N> shape, valid;
  Share share;

  Tile() = default;
  Tile(Core& core, Dims<N> its_shape, Dims<N> its_valid)
      : shape(its_shape), valid(its_valid), share(core.take(count(its_shape) * sizeof(T))) {}
  // The same elements under other extents.
  template <int M>
  Tile(const Tile<T, M>& other, Dims<N> its_shape, Dims<N> its_valid)
      : shape(its_shape), valid(its_valid), share(other.share) {}

  T* data() const { return reinterpret_cast<T*>(share.data()); }
};

// Strides that stay at the one element of a dimension of extent 1.
template <int N>
inline Dims<N> spread(const Dims<N>& shape) {
  Dims<N> strides = packed(shape);
  for (int d = 0; d < N; ++d)
    if (shape[d] == 1) strides[d] = 0;
  return strides;
}

// What is valid of what two tiles give together.
template <int N>
inline Dims<N> together(const Dims<N>& shape, const Dims<N>& valid, const Dims<N>& other, const Dims<N>& also) {
  Dims<N> both;
  for (int d = 0; d < N; ++d) {
    const int64_t a = shape[d] == 1 && other[d] != 1 && valid[d] ? also[d] : valid[d];
    const int64_t b = other[d] == 1 && shape[d] != 1 && also[d] ? valid[d] : also[d];
    both[d] = a < b ? a : b;
  }
  return both;
}

// ---- made, loaded, stored ----

template <class T, int N>
CROSSRANK_APART Tile<T, N> full(Core& core, Dims<N> shape, Scalar<T> value) {
  Tile<T, N> out(core, shape, shape);
  T* const to = out.data();
  for (int64_t i = 0, n = count(shape); i < n; ++i) to[i] = value;
  return out;
}

// Zeros, so that no run depends on what was there.
template <class T, int N>
CROSSRANK_APART Tile<T, N> create(Core& core, Dims<N> shape) {
  Tile<T, N> out(core, shape, shape);
  std::memset(out.share.data(), 0, count(shape) * sizeof(T));
  return out;
}

template <int N>
inline void ask_valid(Core& core, const char* does, const Dims<N>& valid, const Dims<N>& shape) {
  ask_within(core, does, "a tile", Dims<N>{}, valid, shape);
}

template <class T, int N>
CROSSRANK_APART Tile<T, N> load(Core& core, const View<T, N>& view, Dims<N> from, Dims<N> shape, Dims<N> valid) {
  ask_valid(core, "pl.load fills", valid, shape);
  ask_within(core, "pl.load reads", view.name, from, valid, view.shape);
  Tile<T, N> out(core, shape, valid);
  const T* const first = view.data + distance(from, view.strides);
  for (Walk<2> w(N, valid.n, {view.strides.n, packed(shape).n}); w.more; w.next())
    copy(out.data() + w.at[1], w.step[1], first + w.at[0], w.step[0], w.count);
  return out;
}

template <class T, int N>
CROSSRANK_APART Tile<T, N> load(Core& core, const View<T, N>& view, Dims<N> from, Dims<N> shape) {
  return load(core, view, from, shape, shape);
}

// The elements of a view, or the valid ones of a tile, in N dimensions.
template <class T, int N>
struct Region {
  const T* data;
  Dims<N> extents, strides;
};

template <int N, class T, int M>
inline Region<T, N> region(const T* data, const Dims<M>& extents, const Dims<M>& strides) {
  Region<T, N> found{data, ones<N>(), {}};
  for (int d = 0; d < M; ++d) {
    found.extents[N - M + d] = extents[d];
    found.strides[N - M + d] = strides[d];
  }
  return found;
}
template <int N, class T, int M>
inline Region<T, N> region(const View<T, M>& view) {
  return region<N>(view.data, view.shape, view.strides);
}
template <int N, class T, int M>
inline Region<T, N> region(const Tile<T, M>& tile) {
  return region<N>(tile.data(), tile.valid, packed(tile.shape));
}

template <class T, int N>
CROSSRANK_APART void fill(const Region<T, N>& from, T* to, const Dims<N>& strides) {
  for (Walk<2> w(N, from.extents.n, {from.strides.n, strides.n}); w.more; w.next())
    copy(to + w.at[1], w.step[1], from.data + w.at[0], w.step[0], w.count);
}

template <class Source, class T, int N>
CROSSRANK_APART void store(Core& core, const Source& source, const View<T, N>& target, Dims<N> at) {
  const auto from = region<N>(source);
  ask_within(core, "pl.store writes", target.name, at, from.extents, target.shape);
  fill(from, target.data + distance(at, target.strides), target.strides);
}

template <class T, int N>
inline T read(Core& core, const Tile<T, N>& tile, Dims<N> at) {
  ask_within(core, "pl.read reads", "a tile", at, ones<N>(), tile.valid);
  return tile.data()[distance(at, packed(tile.shape))];
}

template <class T, int N>
inline void write(Core& core, Tile<T, N>& tile, Dims<N> at, Scalar<T> value) {
  ask_within(core, "pl.write writes", "a tile", at, ones<N>(), tile.shape);
  if (!tile.share.alone()) {  // other forms of it stay as they are
    const Tile<T, N> shared = tile;
    tile = Tile<T, N>(core, shared.shape, shared.valid);
    std::memcpy(tile.share.data(), shared.share.data(), count(shared.shape) * sizeof(T));
  }
  tile.data()[distance(at, packed(tile.shape))] = value;
}

// ---- other forms of one tile ----

template <class T, int N>
CROSSRANK_APART Tile<T, N> move(Core& core, const Tile<T, N>& x) {
  Tile<T, N> out(core, x.shape, x.valid);
  fill(region<N>(x), out.data(), packed(x.shape));
  return out;
}

// A tile that nobody reads any more may be changed: `assemble(core, last(tile), …)`.
template <class T>
inline T&& last(T& tile) {
  return static_cast<T&&>(tile);
}

// The target with the source in it. More of it may be valid then.
template <class Source, class T, int N>
inline Tile<T, N> assemble(Core& core, Tile<T, N> target, const Source& source, Dims<N> at) {
  const auto from = region<N>(source);
  ask_within(core, "pl.assemble writes", "a tile", at, from.extents, target.shape);
  Tile<T, N> out = target.share.alone() ? target : move(core, target);
  const Dims<N> strides = packed(out.shape);
  fill(from, out.data() + distance(at, strides), strides);
  for (int d = 0; d < N; ++d)
    if (out.valid[d] < at[d] + from.extents[d]) out.valid[d] = at[d] + from.extents[d];
  return out;
}

// A tensor is changed in place.
template <class Source, class T, int N>
inline View<T, N> assemble(Core& core, const View<T, N>& target, const Source& source, Dims<N> at) {
  store(core, source, target, at);
  return target;
}

template <class T, int N>
CROSSRANK_APART Tile<T, N> slice(Core& core, const Tile<T, N>& x, Dims<N> from, Dims<N> extents) {
  ask_within(core, "pl.slice takes", "a tile", from, extents, x.shape);
  Dims<N> valid;
  for (int d = 0; d < N; ++d) {
    const int64_t left = x.valid[d] > from[d] ? x.valid[d] - from[d] : 0;
    valid[d] = left < extents[d] ? left : extents[d];
  }
  Tile<T, N> out(core, extents, valid);
  const Dims<N> strides = packed(x.shape);
  fill(Region<T, N>{x.data() + distance(from, strides), valid, strides}, out.data(), packed(extents));
  return out;
}

template <int... Gone, class T, int N>
inline auto drop(const Tile<T, N>& x) {
  constexpr int M = N - int(sizeof...(Gone));
  Dims<M> shape, valid;
  const bool none = ((x.valid[Gone] == 0) || ...);  // an index of what is not valid
  int to = 0;
  for (int d = 0; d < N; ++d) {
    if (((d == Gone) || ...)) continue;
    shape[to] = x.shape[d];
    valid[to++] = none ? 0 : x.valid[d];
  }
  return Tile<T, M>(x, shape, valid);
}

// Of a tile that is partly valid: where those elements lie without gaps, and do so in the other form.
template <int M, class T, int N>
CROSSRANK_APART Tile<T, M> reshape(Core& core, const Tile<T, N>& x, Dims<M> shape) {
  const int64_t elements = count(x.shape);
  if (count(shape) != elements)
    core.fail("pl.reshape makes %lld elements of a tile that has %lld", (long long)count(shape), (long long)elements);
  if (x.valid == x.shape) return {x, shape, shape};
  Dims<M> valid = ones<M>();
  if (regrouped(x.shape, x.valid, shape, valid)) return {x, shape, count(x.valid) ? valid : Dims<M>{}};
  const Walk<1> w(N, x.valid.n, {packed(x.shape).n});
  int64_t left = count(x.valid);
  const bool gaps = left == 0 || w.step[0] != 1 || w.count != left;
  for (int d = M - 1; d >= 0; --d) {
    valid[d] = left < shape[d] ? left : shape[d];
    left = valid[d] && left % valid[d] == 0 ? left / valid[d] : 0;
  }
  if (gaps || left != 1) core.fail("pl.reshape of a tile whose valid elements are no block in the other form");
  return {x, shape, valid};
}

template <int A, int B, class T, int N>
CROSSRANK_APART Tile<T, N> transpose(Core& core, const Tile<T, N>& x) {
  const auto turned = [](Dims<N> dims) {
    const int64_t a = dims[A];
    dims[A] = dims[B], dims[B] = a;
    return dims;
  };
  Tile<T, N> out(core, turned(x.shape), turned(x.valid));
  fill(Region<T, N>{x.data(), out.valid, turned(packed(x.shape))}, out.data(), packed(out.shape));
  return out;
}

template <class T, int N>
inline Tile<T, N> set_valid(Core& core, Tile<T, N> x, Dims<N> valid) {
  ask_valid(core, "set_validshape makes valid", valid, x.shape);
  x.valid = valid;
  return x;
}

// All of it valid, with a value where it was not.
template <class T, int N>
CROSSRANK_APART Tile<T, N> fill_pad(Core& core, const Tile<T, N>& x, Scalar<T> value) {
  const Tile<T, N> out = full<T, N>(core, x.shape, value);
  fill(region<N>(x), out.data(), packed(x.shape));
  return out;
}

// ---- element by element ----
//
// The loops over rows are functions of rows.h, one for each op and type; what is around them knows no op.

template <class R, class T>
using MapRow = void (*)(R* to, const T* from, int64_t step, int64_t n);
template <class T>
using ZipRow = void (*)(T* to, int64_t step, const T* a, int64_t a_step, const T* b, int64_t b_step, int64_t n);
template <class T, class C>
using SelectRow = void (*)(T* to, const T* yes, const T* no, const C* a, int64_t step, const C* b, int64_t b_step,
                           int64_t n);
template <class T>
using ReduceRow = void (*)(T* to, int64_t step, const T* from, int64_t from_step, int64_t n);

template <class R, class T, int N>
CROSSRANK_APART Tile<R, N> map(Core& core, const Tile<T, N>& x, MapRow<R, T> row) {
  Tile<R, N> out(core, x.shape, x.valid);
  for (Walk<1> w(N, x.valid.n, {packed(x.shape).n}); w.more; w.next())
    row(out.data() + w.at[0], x.data() + w.at[0], w.step[0], w.count);
  return out;
}

template <class T, int N>
CROSSRANK_APART Tile<T, N> zip(Core& core, const Tile<T, N>& a, const T* b, const Dims<N>& b_shape,
                               const Dims<N>& b_valid, ZipRow<T> row) {
  Dims<N> shape;
  for (int d = 0; d < N; ++d) shape[d] = a.shape[d] == 1 ? b_shape[d] : a.shape[d];
  Tile<T, N> out(core, shape, together(a.shape, a.valid, b_shape, b_valid));
  for (Walk<3> w(N, out.valid.n, {packed(shape).n, spread(a.shape).n, spread(b_shape).n}); w.more; w.next())
    row(out.data() + w.at[0], w.step[0], a.data() + w.at[1], w.step[1], b + w.at[2], w.step[2], w.count);
  return out;
}

template <class T, class C, int N>
CROSSRANK_APART Tile<T, N> choose(Core& core, const Tile<C, N>& a, const C* b, const Dims<N>& b_shape,
                                  const Dims<N>& b_valid, const Tile<T, N>& yes, const Tile<T, N>& no,
                                  SelectRow<T, C> row) {
  const Dims<N> compared = together(a.shape, a.valid, b_shape, b_valid);
  const Dims<N> valid = together(a.shape, compared, a.shape, together(yes.shape, yes.valid, no.shape, no.valid));
  Tile<T, N> out(core, yes.shape, valid);
  for (Walk<2> w(N, valid.n, {packed(yes.shape).n, spread(b_shape).n}); w.more; w.next()) {
    const int64_t at = w.at[0];
    row(out.data() + at, yes.data() + at, no.data() + at, a.data() + at, w.step[0], b + w.at[1], w.step[1], w.count);
  }
  return out;
}

// The elements in another type; 16-bit floats by way of f32, where that changes nothing.
template <class R, class Rounding = Trunc, class T, int N>
inline Tile<R, N> cast(Core& core, const Tile<T, N>& x) {
  constexpr bool from_narrow = is_narrow<T> && !is_same<R, float>;
  constexpr bool from_small = is_narrow<R> && sizeof(T) <= 2 && !is_narrow<T>;
  if constexpr (from_narrow || from_small)
    return cast<R, Rounding>(core, cast<float>(core, x));
  else if constexpr (Element<T>::kFloat && !Element<R>::kFloat)
    return map<R, T, N>(core, x, map_row<Converted<Rounding>, R, T>);
  else
    return map<R, T, N>(core, x, map_row<Converted<Trunc>, R, T>);
}

// The tile itself where it has that type.
template <class R, class T, int N>
inline decltype(auto) as(Core& core, const Tile<T, N>& x) {
  if constexpr (is_same<R, T>)
    return (x);
  else
    return cast<R>(core, x);
}

template <class Op, class T, int N>
inline Tile<T, N> unary(Core& core, const Tile<T, N>& x) {
  using W = Wide<T>;
  return as<T>(core, map<W, W, N>(core, as<W>(core, x), map_row<Computed<Op>, W, W>));
}

template <class Op, class T, int N>
inline Tile<T, N> binary(Core& core, const Tile<T, N>& a, const Tile<T, N>& b) {
  using W = Wide<T>;
  const Tile<W, N>& wide = as<W>(core, b);
  return as<T>(core, zip<W, N>(core, as<W>(core, a), wide.data(), wide.shape, wide.valid, zip_row<Op, W>));
}

template <class Op, class T, int N>
inline Tile<T, N> binary(Core& core, const Tile<T, N>& a, Scalar<T> b) {
  using W = Wide<T>;
  const W wide = b;
  return as<T>(core, zip<W, N>(core, as<W>(core, a), &wide, ones<N>(), ones<N>(), zip_row<Op, W>));
}

// What integers are divided by.
template <class T, int N>
inline const Tile<T, N>& divisor(Core& core, const char* op, const Tile<T, N>& b) {
  bool zero = false;
  for (Walk<1> w(N, b.valid.n, {packed(b.shape).n}); w.more; w.next())
    for (int64_t i = 0; i < w.count; ++i) zero |= b.data()[w.at[0] + i * w.step[0]] == 0;
  if (zero) core.fail("%s: division by zero", op);
  return b;
}
template <class T>
inline T divisor(Core& core, const char* op, Scalar<T> b) {
  if (b == 0) core.fail("%s: division by zero", op);
  return b;
}

template <class Comparison, class T, class C, int N>
inline Tile<T, N> select(Core& core, const Tile<C, N>& a, const Tile<C, N>& b, const Tile<T, N>& yes,
                         const Tile<T, N>& no) {
  using W = Wide<C>;
  const Tile<W, N>& wide = as<W>(core, b);
  return choose<T, W, N>(core, as<W>(core, a), wide.data(), wide.shape, wide.valid, yes, no,
                         select_row<Comparison, T, W>);
}

template <class Comparison, class T, class C, int N>
inline Tile<T, N> select(Core& core, const Tile<C, N>& a, Scalar<C> b, const Tile<T, N>& yes, const Tile<T, N>& no) {
  using W = Wide<C>;
  const W wide = b;
  return choose<T, W, N>(core, as<W>(core, a), &wide, ones<N>(), ones<N>(), yes, no, select_row<Comparison, T, W>);
}

// ---- reductions and products ----

template <class T, int N>
CROSSRANK_APART Tile<T, N> reduce_along(Core& core, const Tile<T, N>& x, int axis, T first, ReduceRow<T> row) {
  Dims<N> shape = x.shape, valid = x.valid;
  shape[axis] = valid[axis] = 1;
  Tile<T, N> out = full<T, N>(core, shape, first);
  out.valid = valid;
  const Dims<N> strides = packed(x.shape);
  for (Walk<2> w(N, valid.n, {strides.n, packed(shape).n}); w.more; w.next())
    for (int64_t k = 0; k < x.valid[axis]; ++k)
      row(out.data() + w.at[1], w.step[1], x.data() + w.at[0] + k * strides[axis], w.step[0], w.count);
  return out;
}

// Along one dimension, one element after the other; of nothing it is the value that it starts from.
template <class Op, int Axis, class T, int N>
inline Tile<T, N> reduce(Core& core, const Tile<T, N>& x) {
  using W = Wide<T>;
  return as<T>(core, reduce_along<W, N>(core, as<W>(core, x), Axis, Op::template kFirst<W>, reduce_row<Op, W>));
}

// What products of T are summed in: f32, or 32 bits, but where T is wider.
template <class T>
struct Summed {
  using Type = int32_t;
};
template <>
struct Summed<int64_t> {
  using Type = int64_t;
};
template <>
struct Summed<uint64_t> {
  using Type = uint64_t;
};
template <>
struct Summed<uint32_t> {
  using Type = uint32_t;
};
template <>
struct Summed<float> {
  using Type = float;
};
template <>
struct Summed<double> {
  using Type = double;
};
template <>
struct Summed<Half> : Summed<float> {};
template <>
struct Summed<Brain> : Summed<float> {};

// Each element is summed in the order of the inner dimension, from the one of `sum`, or from 0.
template <class S>
CROSSRANK_APART Tile<S, 2> product(Core& core, const Tile<S, 2>& a, const Tile<S, 2>& b, const Tile<S, 2>* sum) {
  const int64_t columns = b.shape[1], inner = a.valid[1] < b.valid[0] ? a.valid[1] : b.valid[0];
  Tile<S, 2> out = sum ? move(core, *sum) : create<S, 2>(core, {a.shape[0], columns});
  out.valid = together(out.shape, out.valid, out.shape, {{a.valid[0], b.valid[1]}});
  for (int64_t i = 0; i < out.valid[0]; ++i)
    for (int64_t k = 0; k < inner; ++k)
      add_products(out.data() + i * columns, a.data()[i * a.shape[1] + k], b.data() + k * columns, out.valid[1]);
  return out;
}

template <class R, class T>
inline Tile<R, 2> matmul(Core& core, const Tile<T, 2>& a, const Tile<T, 2>& b) {
  using S = typename Summed<T>::Type;
  return as<R>(core, product<S>(core, as<S>(core, a), as<S>(core, b), nullptr));
}

template <class R, class T>
inline Tile<R, 2> matmul(Core& core, const Tile<T, 2>& a, const Tile<T, 2>& b, const Tile<R, 2>& sum) {
  using S = typename Summed<T>::Type;
  const Tile<S, 2>& first = as<S>(core, sum);
  return as<R>(core, product<S>(core, as<S>(core, a), as<S>(core, b), &first));
}

}  // namespace crossrank::program
