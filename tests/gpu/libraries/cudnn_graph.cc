// cuDNN's graph interface called directly: operation graphs through heuristics to plans. A plan may
// be compiled at run time, so this is also NVRTC and module loading inside a library: convolution,
// fused pointwise work, a product, attention.
#include <cudnn.h>

#include "case.h"

using library::Device;
using library::note;
using library::save;
using library::values;

namespace {

// A backend descriptor with its attributes set one by one, then finalised; ended with the object.
class Node {
 public:
  explicit Node(cudnnBackendDescriptorType_t type) {
    CHECK(cudnnBackendCreateDescriptor(type, &descriptor_));
  }
  Node(Node&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = nullptr; }
  Node& operator=(Node&&) = delete;
  ~Node() {
    if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
  }

  template <typename T>
  Node& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
            const std::vector<T>& list) {
    CHECK(cudnnBackendSetAttribute(descriptor_, name, type, static_cast<int64_t>(list.size()),
                                   list.data()));
    return *this;
  }
  Node& set(cudnnBackendAttributeName_t name, const Node& other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               std::vector<cudnnBackendDescriptor_t>{other.descriptor_});
  }
  Node& finalize() {
    CHECK(cudnnBackendFinalize(descriptor_));
    return *this;
  }
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(descriptor_); }
  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

Node tensor(int64_t id, cudnnDataType_t type, const std::vector<int64_t>& sizes,
            const std::vector<int64_t>& strides, bool is_virtual = false) {
  Node node(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  node.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type});
  node.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, sizes);
  node.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
  node.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector<int64_t>{id});
  node.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::vector<int64_t>{16});
  const bool flag[1] = {is_virtual};
  CHECK(cudnnBackendSetAttribute(node.get(), CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                                 flag));
  node.finalize();
  return node;
}

// n x c x h x w stored with the channels last.
std::vector<int64_t> last_strides(int64_t c, int64_t h, int64_t w) {
  return {c * h * w, 1, c * w, c};
}

Node pointwise(cudnnPointwiseMode_t mode) {
  Node node(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  node.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{mode});
  node.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  node.finalize();
  return node;
}

Node convolution() {
  Node node(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  node.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::vector<int64_t>{2});
  node.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  node.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
           std::vector{CUDNN_CROSS_CORRELATION});
  for (auto name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                    CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES}) {
    node.set(name, CUDNN_TYPE_INT64, std::vector<int64_t>{1, 1});
  }
  node.finalize();
  return node;
}

class Graph {
 public:
  Graph() { CHECK(cudnnCreate(&handle_)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { cudnnDestroy(handle_); }

  // Runs the first plan that a heuristic proposes for these operations and cuDNN can finalise.
  void run(const std::vector<cudnnBackendDescriptor_t>& operations, const std::vector<int64_t>& ids,
           const std::vector<void*>& data, int times = 1) {
    Node graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle_});
    graph.finalize();
    Node heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{CUDNN_HEUR_MODE_A});
    if (const cudnnStatus_t status = heuristic.try_finalize(); status != CUDNN_STATUS_SUCCESS) {
      library::skip("the heuristic knows no engine for this graph: status " +
                    std::to_string(status));
    }
    std::vector<Node> configurations;
    std::vector<cudnnBackendDescriptor_t> found;
    for (int i = 0; i < 16; ++i) {
      configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      found.push_back(configurations.back().get());
    }
    int64_t count = 0;
    CHECK(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 16, &count, found.data()));
    note("%lld configurations", static_cast<long long>(count));
    for (int64_t i = 0; i < count; ++i) {
      Node plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle_});
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configurations[i]);
      const cudnnStatus_t status = plan.try_finalize();
      note("plan %lld status %d", static_cast<long long>(i), status);
      if (status == CUDNN_STATUS_SUCCESS) return execute(plan, ids, data, times);
    }
    library::skip("no engine takes this graph on this device");
  }

 private:
  void execute(const Node& plan, const std::vector<int64_t>& ids, const std::vector<void*>& data,
               int times) {
    int64_t bytes = 0, count = 0;
    CHECK(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                   CUDNN_TYPE_INT64, 1, &count, &bytes));
    Device<uint8_t> workspace(bytes);
    Node pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
             std::vector<void*>{workspace.get()});
    pack.finalize();
    for (int i = 0; i < times; ++i) CHECK(cudnnBackendExecute(handle_, plan.get(), pack.get()));
    CHECK(cudaDeviceSynchronize());
  }

  cudnnHandle_t handle_ = nullptr;
};

constexpr int64_t kN = 4, kC = 32, kK = 64, kH = 24, kW = 24;

Node convolve(const Node& x, const Node& w, const Node& y, const Node& description) {
  Node node(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  node.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, description);
  node.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
  node.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
  node.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  node.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, std::vector<float>{1});
  node.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::vector<float>{0});
  node.finalize();
  return node;
}

Node apply(const Node& description, const Node& x, const Node* b, const Node& y) {
  Node node(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  node.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, description);
  node.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) node.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  node.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  node.finalize();
  return node;
}

}  // namespace

LIBRARY_CASE(convolution_alone) {
  Node x = tensor('x', CUDNN_DATA_HALF, {kN, kC, kH, kW}, last_strides(kC, kH, kW));
  Node w = tensor('w', CUDNN_DATA_HALF, {kK, kC, 3, 3}, last_strides(kC, 3, 3));
  Node y = tensor('y', CUDNN_DATA_HALF, {kN, kK, kH, kW}, last_strides(kK, kH, kW));
  Node description = convolution(), operation = convolve(x, w, y, description);
  Device<__half> in(values<__half>(kN * kC * kH * kW, 1)), filter(values<__half>(kK * kC * 9, 2)),
      out(kN * kK * kH * kW);
  Graph().run({operation.get()}, {'x', 'w', 'y'}, {in.get(), filter.get(), out.get()}, 3);
  save("out", out);
}

LIBRARY_CASE(convolution_bias_relu_fused) {
  Node x = tensor('x', CUDNN_DATA_HALF, {kN, kC, kH, kW}, last_strides(kC, kH, kW));
  Node w = tensor('w', CUDNN_DATA_HALF, {kK, kC, 3, 3}, last_strides(kC, 3, 3));
  Node b = tensor('b', CUDNN_DATA_HALF, {1, kK, 1, 1}, {kK, 1, kK, kK});
  Node convolved = tensor('c', CUDNN_DATA_FLOAT, {kN, kK, kH, kW}, last_strides(kK, kH, kW), true);
  Node biased = tensor('d', CUDNN_DATA_FLOAT, {kN, kK, kH, kW}, last_strides(kK, kH, kW), true);
  Node y = tensor('y', CUDNN_DATA_HALF, {kN, kK, kH, kW}, last_strides(kK, kH, kW));
  Node description = convolution(), add = pointwise(CUDNN_POINTWISE_ADD),
       relu = pointwise(CUDNN_POINTWISE_RELU_FWD);
  Node first = convolve(x, w, convolved, description), second = apply(add, convolved, &b, biased),
       third = apply(relu, biased, nullptr, y);
  Device<__half> in(values<__half>(kN * kC * kH * kW, 3)), filter(values<__half>(kK * kC * 9, 4)),
      bias(values<__half>(kK, 5)), out(kN * kK * kH * kW);
  Graph().run({first.get(), second.get(), third.get()}, {'x', 'w', 'b', 'y'},
              {in.get(), filter.get(), bias.get(), out.get()}, 2);
  save("out", out);
}

LIBRARY_CASE(product_with_gelu) {
  const int64_t batch = 3, m = 64, n = 96, k = 128;
  Node a = tensor('a', CUDNN_DATA_BFLOAT16, {batch, m, k}, {m * k, k, 1}),
       b = tensor('b', CUDNN_DATA_BFLOAT16, {batch, k, n}, {k * n, n, 1});
  Node middle = tensor('m', CUDNN_DATA_FLOAT, {batch, m, n}, {m * n, n, 1}, true),
       c = tensor('c', CUDNN_DATA_BFLOAT16, {batch, m, n}, {m * n, n, 1});
  Node description(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  description.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT})
      .finalize();
  Node product(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  product.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, middle);
  product.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, description).finalize();
  Node gelu = pointwise(CUDNN_POINTWISE_GELU_FWD), activated = apply(gelu, middle, nullptr, c);
  Device<__nv_bfloat16> left(values<__nv_bfloat16>(batch * m * k, 6)),
      right(values<__nv_bfloat16>(batch * k * n, 7)), out(batch * m * n);
  Graph().run({product.get(), activated.get()}, {'a', 'b', 'c'},
              {left.get(), right.get(), out.get()}, 2);
  save("out", out);
}

LIBRARY_CASE(attention) {
  const int64_t batch = 2, heads = 4, length = 128, width = 64;
  const std::vector<int64_t> sizes{batch, heads, length, width},
      strides{heads * length * width, length * width, width, 1};
  Node q = tensor('q', CUDNN_DATA_HALF, sizes, strides),
       k = tensor('k', CUDNN_DATA_HALF, sizes, strides),
       v = tensor('v', CUDNN_DATA_HALF, sizes, strides),
       o = tensor('o', CUDNN_DATA_HALF, sizes, strides);
  Node scale(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  scale.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  scale.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::vector<int64_t>{1, 1, 1, 1});
  scale.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::vector<int64_t>{1, 1, 1, 1});
  scale.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector<int64_t>{'s'});
  scale.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::vector<int64_t>{16});
  const bool by_value[1] = {true};
  CHECK(cudnnBackendSetAttribute(scale.get(), CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
                                 by_value));
  scale.finalize();
  Node operation(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, q)
      .set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, k)
      .set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, v);
  operation.set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, o)
      .set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scale)
      .finalize();
  const size_t count = batch * heads * length * width;
  Device<__half> dq(values<__half>(count, 8)), dk(values<__half>(count, 9)),
      dv(values<__half>(count, 10)), out(count);
  float factor = 0.125f;
  Graph().run({operation.get()}, {'q', 'k', 'v', 'o', 's'},
              {dq.get(), dk.get(), dv.get(), out.get(), &factor}, 2);
  save("out", out);
}
