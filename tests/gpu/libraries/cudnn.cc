// cuDNN's fixed functions called directly: convolutions forward and backward with every algorithm,
// pooling, normalisation, activations, softmax, reductions, dropout, recurrent nets, attention.
#include <cudnn.h>

#include <memory>

#include "case.h"

using library::captured;
using library::Device;
using library::note;
using library::save;
using library::Stream;
using library::values;

namespace {

class Handle {
 public:
  Handle() { CHECK(cudnnCreate(&handle_)); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { cudnnDestroy(handle_); }
  operator cudnnHandle_t() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

// Any descriptor: made by `create`, ended by `destroy`.
template <typename T, auto kCreate, auto kDestroy>
class Descriptor {
 public:
  Descriptor() { CHECK(kCreate(&value_)); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { kDestroy(value_); }
  operator T() const { return value_; }

 private:
  T value_ = nullptr;
};
using Tensor =
    Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using Filter =
    Descriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using Convolution = Descriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                               cudnnDestroyConvolutionDescriptor>;
using Activation = Descriptor<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor,
                              cudnnDestroyActivationDescriptor>;
using Pooling = Descriptor<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor,
                           cudnnDestroyPoolingDescriptor>;
using Reduction = Descriptor<cudnnReduceTensorDescriptor_t, cudnnCreateReduceTensorDescriptor,
                             cudnnDestroyReduceTensorDescriptor>;
using Operation = Descriptor<cudnnOpTensorDescriptor_t, cudnnCreateOpTensorDescriptor,
                             cudnnDestroyOpTensorDescriptor>;
using Dropout = Descriptor<cudnnDropoutDescriptor_t, cudnnCreateDropoutDescriptor,
                           cudnnDestroyDropoutDescriptor>;
using Recurrent =
    Descriptor<cudnnRNNDescriptor_t, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor>;
using RecurrentData = Descriptor<cudnnRNNDataDescriptor_t, cudnnCreateRNNDataDescriptor,
                                 cudnnDestroyRNNDataDescriptor>;
using Sequence = Descriptor<cudnnSeqDataDescriptor_t, cudnnCreateSeqDataDescriptor,
                            cudnnDestroySeqDataDescriptor>;
using Attention =
    Descriptor<cudnnAttnDescriptor_t, cudnnCreateAttnDescriptor, cudnnDestroyAttnDescriptor>;

constexpr float kOne = 1, kZero = 0;
constexpr int kN = 4, kC = 32, kH = 20, kW = 18,
              kK = 48;  // Input 4 x 32 x 20 x 18, 48 filters of 3 x 3, padding 1.

template <typename T>
constexpr cudnnDataType_t data_type() {
  if constexpr (std::is_same_v<T, float>) return CUDNN_DATA_FLOAT;
  else if constexpr (std::is_same_v<T, double>) return CUDNN_DATA_DOUBLE;
  else if constexpr (std::is_same_v<T, __half>) return CUDNN_DATA_HALF;
  else return CUDNN_DATA_BFLOAT16;
}

// One convolution in all three directions, each with every algorithm that says it supports these
// shapes.
template <typename T>
struct Directions {
  Handle handle;
  Tensor x, y;
  Filter w;
  Convolution convolution;
  Device<T> input{values<T>(kN * kC * kH * kW, 1)}, filter{values<T>(kK * kC * 9, 2, -0.1, 0.1)},
      output{values<T>(kN * kK * kH * kW, 3)};
  std::unique_ptr<Device<uint8_t>> workspace;

  Directions(cudnnTensorFormat_t format, cudnnMathType_t math) {
    CHECK(cudnnSetTensor4dDescriptor(x, format, data_type<T>(), kN, kC, kH, kW));
    CHECK(cudnnSetTensor4dDescriptor(y, format, data_type<T>(), kN, kK, kH, kW));
    CHECK(cudnnSetFilter4dDescriptor(w, data_type<T>(), format, kK, kC, 3, 3));
    CHECK(cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT));
    CHECK(cudnnSetConvolutionMathType(convolution, math));
  }
  void* room(size_t bytes) {
    if (workspace == nullptr || workspace->count() < bytes)
      workspace = std::make_unique<Device<uint8_t>>(bytes);
    return workspace->get();
  }
  void forward() {
    for (int i = 0; i < CUDNN_CONVOLUTION_FWD_ALGO_COUNT; ++i) {
      const auto algorithm = static_cast<cudnnConvolutionFwdAlgo_t>(i);
      size_t bytes = 0;
      const cudnnStatus_t asked =
          cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, convolution, y, algorithm, &bytes);
      note("forward %d status %d", i, asked);
      if (asked != CUDNN_STATUS_SUCCESS) continue;
      Device<T> out(output.count());
      const cudnnStatus_t ran =
          cudnnConvolutionForward(handle, &kOne, x, input.get(), w, filter.get(), convolution,
                                  algorithm, room(bytes), bytes, &kZero, y, out.get());
      note("forward %d ran %d", i, ran);
      if (ran == CUDNN_STATUS_SUCCESS) save(("forward" + std::to_string(i)).c_str(), out);
    }
  }
  void backward_data() {
    for (int i = 1; i < CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
         ++i) {  // Algorithm 0 adds with atomics: it differs from itself.
      const auto algorithm = static_cast<cudnnConvolutionBwdDataAlgo_t>(i);
      size_t bytes = 0;
      const cudnnStatus_t asked = cudnnGetConvolutionBackwardDataWorkspaceSize(
          handle, w, y, convolution, x, algorithm, &bytes);
      note("data %d status %d", i, asked);
      if (asked != CUDNN_STATUS_SUCCESS) continue;
      Device<T> out(input.count());
      const cudnnStatus_t ran =
          cudnnConvolutionBackwardData(handle, &kOne, w, filter.get(), y, output.get(), convolution,
                                       algorithm, room(bytes), bytes, &kZero, x, out.get());
      note("data %d ran %d", i, ran);
      if (ran == CUDNN_STATUS_SUCCESS) save(("data" + std::to_string(i)).c_str(), out);
    }
  }
  void backward_filter() {
    for (int i = 1; i < CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT; ++i) {
      if (i == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3) continue;  // Like algorithm 0.
      const auto algorithm = static_cast<cudnnConvolutionBwdFilterAlgo_t>(i);
      size_t bytes = 0;
      const cudnnStatus_t asked = cudnnGetConvolutionBackwardFilterWorkspaceSize(
          handle, x, y, convolution, w, algorithm, &bytes);
      note("filter %d status %d", i, asked);
      if (asked != CUDNN_STATUS_SUCCESS) continue;
      Device<T> out(filter.count());
      const cudnnStatus_t ran = cudnnConvolutionBackwardFilter(
          handle, &kOne, x, input.get(), y, output.get(), convolution, algorithm, room(bytes),
          bytes, &kZero, w, out.get());
      note("filter %d ran %d", i, ran);
      if (ran == CUDNN_STATUS_SUCCESS) save(("filter" + std::to_string(i)).c_str(), out);
    }
  }
};

template <typename T>
void all_directions(cudnnTensorFormat_t format, cudnnMathType_t math) {
  Directions<T> directions(format, math);
  directions.forward();
  directions.backward_data();
  directions.backward_filter();
}

struct Planes {
  Planes() {
    CHECK(cudnnSetTensor4dDescriptor(descriptor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, kN, kC, kH,
                                     kW));
  }
  static constexpr int kCount = kN * kC * kH * kW;
  Handle handle;
  Tensor descriptor;
  Device<float> x{values<float>(kCount, 10)}, y{static_cast<size_t>(kCount)},
      dy{values<float>(kCount, 11)}, dx{static_cast<size_t>(kCount)};
};

}  // namespace

LIBRARY_CASE(version) {
  note("version %zu cudart %zu", cudnnGetVersion(), cudnnGetCudartVersion());
}

LIBRARY_CASE(convolution_float) { all_directions<float>(CUDNN_TENSOR_NCHW, CUDNN_FMA_MATH); }
LIBRARY_CASE(convolution_tf32) { all_directions<float>(CUDNN_TENSOR_NHWC, CUDNN_DEFAULT_MATH); }
LIBRARY_CASE(convolution_half) { all_directions<__half>(CUDNN_TENSOR_NHWC, CUDNN_TENSOR_OP_MATH); }
LIBRARY_CASE(convolution_bfloat16) {
  all_directions<__nv_bfloat16>(CUDNN_TENSOR_NHWC, CUDNN_TENSOR_OP_MATH);
}

LIBRARY_CASE(heuristics_for_convolutions) {
  Directions<__half> directions(CUDNN_TENSOR_NHWC, CUDNN_TENSOR_OP_MATH);
  cudnnConvolutionFwdAlgoPerf_t found[8];
  int count = 0;
  CHECK(cudnnGetConvolutionForwardAlgorithm_v7(directions.handle, directions.x, directions.w,
                                               directions.convolution, directions.y, 8, &count,
                                               found));
  for (int i = 0; i < count; ++i)
    note("algorithm %d status %d memory %zu", found[i].algo, found[i].status, found[i].memory);
}

LIBRARY_CASE(grouped_and_dilated) {
  Handle handle;
  Tensor x, y;
  Filter w;
  Convolution convolution;
  CHECK(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 16, 24, 24));
  CHECK(cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 32, 4, 3, 3));
  CHECK(cudnnSetConvolution2dDescriptor(convolution, 2, 2, 1, 1, 2, 2, CUDNN_CONVOLUTION,
                                        CUDNN_DATA_FLOAT));
  CHECK(cudnnSetConvolutionGroupCount(convolution, 4));
  int n = 0, c = 0, h = 0, width = 0;
  CHECK(cudnnGetConvolution2dForwardOutputDim(convolution, x, w, &n, &c, &h, &width));
  note("output %d %d %d %d", n, c, h, width);
  CHECK(cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, width));
  Device<float> in(values<float>(2 * 16 * 24 * 24, 4)), filter(values<float>(32 * 4 * 9, 5)),
      out(n * c * h * width);
  size_t bytes = 0;
  const auto algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  CHECK(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, convolution, y, algorithm, &bytes));
  Device<uint8_t> workspace(bytes);
  CHECK(cudnnConvolutionForward(handle, &kOne, x, in.get(), w, filter.get(), convolution, algorithm,
                                workspace.get(), bytes, &kZero, y, out.get()));
  save("out", out);
}

LIBRARY_CASE(bias_and_activation_fused) {
  Directions<__half> directions(CUDNN_TENSOR_NHWC, CUDNN_TENSOR_OP_MATH);
  Tensor bias;
  Activation relu;
  CHECK(cudnnSetTensor4dDescriptor(bias, CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 1, kK, 1, 1));
  CHECK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
  Device<__half> added(values<__half>(kK, 6)), out(directions.output.count());
  size_t bytes = 0;
  const auto algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  CHECK(cudnnGetConvolutionForwardWorkspaceSize(directions.handle, directions.x, directions.w,
                                                directions.convolution, directions.y, algorithm,
                                                &bytes));
  CHECK(cudnnConvolutionBiasActivationForward(
      directions.handle, &kOne, directions.x, directions.input.get(), directions.w,
      directions.filter.get(), directions.convolution, algorithm, directions.room(bytes), bytes,
      &kZero, directions.y, out.get(), bias, added.get(), relu, directions.y, out.get()));
  save("out", out);
}

LIBRARY_CASE(captured_convolution) {
  Directions<float> directions(CUDNN_TENSOR_NCHW, CUDNN_FMA_MATH);
  Stream stream;
  CHECK(cudnnSetStream(directions.handle, stream));
  const auto algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
  Device<float> out(directions.output.count());
  const auto run = [&] {
    CHECK(cudnnConvolutionForward(directions.handle, &kOne, directions.x, directions.input.get(),
                                  directions.w, directions.filter.get(), directions.convolution,
                                  algorithm, nullptr, 0, &kOne, directions.y, out.get()));
  };
  run();
  CHECK(cudaStreamSynchronize(stream));
  captured(stream, 3, run);
  save("out", out);
}

LIBRARY_CASE(activations) {
  Planes planes;
  Activation activation;
  for (cudnnActivationMode_t mode :
       {CUDNN_ACTIVATION_SIGMOID, CUDNN_ACTIVATION_RELU, CUDNN_ACTIVATION_TANH,
        CUDNN_ACTIVATION_CLIPPED_RELU, CUDNN_ACTIVATION_ELU, CUDNN_ACTIVATION_SWISH}) {
    CHECK(cudnnSetActivationDescriptor(activation, mode, CUDNN_NOT_PROPAGATE_NAN, 0.5));
    CHECK(cudnnActivationForward(planes.handle, activation, &kOne, planes.descriptor,
                                 planes.x.get(), &kZero, planes.descriptor, planes.y.get()));
    CHECK(cudnnActivationBackward(planes.handle, activation, &kOne, planes.descriptor,
                                  planes.y.get(), planes.descriptor, planes.dy.get(),
                                  planes.descriptor, planes.x.get(), &kZero, planes.descriptor,
                                  planes.dx.get()));
    save(("y" + std::to_string(mode)).c_str(), planes.y);
    save(("dx" + std::to_string(mode)).c_str(), planes.dx);
  }
}

LIBRARY_CASE(pooling) {
  Planes planes;
  Tensor small;
  Pooling pool;
  for (cudnnPoolingMode_t mode :
       {CUDNN_POOLING_MAX, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
        CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, CUDNN_POOLING_MAX_DETERMINISTIC}) {
    CHECK(cudnnSetPooling2dDescriptor(pool, mode, CUDNN_NOT_PROPAGATE_NAN, 3, 3, 1, 1, 2, 2));
    int n = 0, c = 0, h = 0, w = 0;
    CHECK(cudnnGetPooling2dForwardOutputDim(pool, planes.descriptor, &n, &c, &h, &w));
    CHECK(cudnnSetTensor4dDescriptor(small, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w));
    Device<float> y(n * c * h * w), dy(values<float>(n * c * h * w, 12));
    CHECK(cudnnPoolingForward(planes.handle, pool, &kOne, planes.descriptor, planes.x.get(), &kZero,
                              small, y.get()));
    CHECK(cudnnPoolingBackward(planes.handle, pool, &kOne, small, y.get(), small, dy.get(),
                               planes.descriptor, planes.x.get(), &kZero, planes.descriptor,
                               planes.dx.get()));
    save(("y" + std::to_string(mode)).c_str(), y);
    if (mode != CUDNN_POOLING_MAX) save(("dx" + std::to_string(mode)).c_str(), planes.dx);
  }
}

LIBRARY_CASE(batch_normalisation) {
  Planes planes;
  Tensor parameters;
  CHECK(cudnnDeriveBNTensorDescriptor(parameters, planes.descriptor, CUDNN_BATCHNORM_SPATIAL));
  Device<float> scale(values<float>(kC, 13)), bias(values<float>(kC, 14)), mean(kC),
      variance(values<float>(kC, 15, 0.5, 1)), saved_mean(kC), saved_inverse(kC), dscale(kC),
      dbias(kC);
  CHECK(cudnnBatchNormalizationForwardTraining(
      planes.handle, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, planes.descriptor, planes.x.get(),
      planes.descriptor, planes.y.get(), parameters, scale.get(), bias.get(), 0.1, mean.get(),
      variance.get(), 1e-5, saved_mean.get(), saved_inverse.get()));
  save("training", planes.y);
  save("mean", mean);
  save("variance", variance);
  CHECK(cudnnBatchNormalizationBackward(planes.handle, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero,
                                        &kOne, &kZero, planes.descriptor, planes.x.get(),
                                        planes.descriptor, planes.dy.get(), planes.descriptor,
                                        planes.dx.get(), parameters, scale.get(), dscale.get(),
                                        dbias.get(), 1e-5, saved_mean.get(), saved_inverse.get()));
  save("dx", planes.dx);
  save("dscale", dscale);
  CHECK(cudnnBatchNormalizationForwardInference(
      planes.handle, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, planes.descriptor, planes.x.get(),
      planes.descriptor, planes.y.get(), parameters, scale.get(), bias.get(), mean.get(),
      variance.get(), 1e-5));
  save("inference", planes.y);
}

LIBRARY_CASE(softmax_both_ways) {
  Planes planes;
  for (cudnnSoftmaxAlgorithm_t algorithm :
       {CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_LOG}) {
    CHECK(cudnnSoftmaxForward(planes.handle, algorithm, CUDNN_SOFTMAX_MODE_CHANNEL, &kOne,
                              planes.descriptor, planes.x.get(), &kZero, planes.descriptor,
                              planes.y.get()));
    CHECK(cudnnSoftmaxBackward(planes.handle, algorithm, CUDNN_SOFTMAX_MODE_CHANNEL, &kOne,
                               planes.descriptor, planes.y.get(), planes.descriptor,
                               planes.dy.get(), &kZero, planes.descriptor, planes.dx.get()));
    save(("y" + std::to_string(algorithm)).c_str(), planes.y);
    save(("dx" + std::to_string(algorithm)).c_str(), planes.dx);
  }
}

LIBRARY_CASE(reductions) {
  Planes planes;
  Tensor reduced;
  Reduction reduction;
  CHECK(cudnnSetTensor4dDescriptor(reduced, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, kC, 1, 1));
  for (cudnnReduceTensorOp_t operation :
       {CUDNN_REDUCE_TENSOR_ADD, CUDNN_REDUCE_TENSOR_MAX, CUDNN_REDUCE_TENSOR_AVG,
        CUDNN_REDUCE_TENSOR_NORM1, CUDNN_REDUCE_TENSOR_NORM2}) {
    CHECK(cudnnSetReduceTensorDescriptor(reduction, operation, CUDNN_DATA_FLOAT,
                                         CUDNN_NOT_PROPAGATE_NAN, CUDNN_REDUCE_TENSOR_NO_INDICES,
                                         CUDNN_32BIT_INDICES));
    size_t bytes = 0;
    CHECK(cudnnGetReductionWorkspaceSize(planes.handle, reduction, planes.descriptor, reduced,
                                         &bytes));
    Device<uint8_t> workspace(bytes);
    Device<float> out(kC);
    CHECK(cudnnReduceTensor(planes.handle, reduction, nullptr, 0, workspace.get(), bytes, &kOne,
                            planes.descriptor, planes.x.get(), &kZero, reduced, out.get()));
    save(("out" + std::to_string(operation)).c_str(), out);
  }
}

LIBRARY_CASE(tensor_operations) {
  Planes planes;
  Operation add;
  Tensor bias;
  CHECK(cudnnSetOpTensorDescriptor(add, CUDNN_OP_TENSOR_MUL, CUDNN_DATA_FLOAT,
                                   CUDNN_NOT_PROPAGATE_NAN));
  CHECK(cudnnOpTensor(planes.handle, add, &kOne, planes.descriptor, planes.x.get(), &kOne,
                      planes.descriptor, planes.dy.get(), &kZero, planes.descriptor,
                      planes.y.get()));
  save("product", planes.y);
  CHECK(cudnnSetTensor4dDescriptor(bias, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, kC, 1, 1));
  Device<float> added(values<float>(kC, 16));
  CHECK(cudnnAddTensor(planes.handle, &kOne, bias, added.get(), &kOne, planes.descriptor,
                       planes.y.get()));
  const float factor = 0.25f;
  CHECK(cudnnScaleTensor(planes.handle, planes.descriptor, planes.y.get(), &factor));
  save("biased", planes.y);
  Tensor last;
  CHECK(cudnnSetTensor4dDescriptor(last, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, kN, kC, kH, kW));
  CHECK(cudnnTransformTensor(planes.handle, &kOne, planes.descriptor, planes.x.get(), &kZero, last,
                             planes.y.get()));
  save("channels_last", planes.y);
}

LIBRARY_CASE(dropout_both_ways) {
  Planes planes;
  Dropout dropout;
  size_t states = 0, reserve = 0;
  CHECK(cudnnDropoutGetStatesSize(planes.handle, &states));
  CHECK(cudnnDropoutGetReserveSpaceSize(planes.descriptor, &reserve));
  Device<uint8_t> state(states), kept(reserve);
  CHECK(cudnnSetDropoutDescriptor(dropout, planes.handle, 0.3f, state.get(), states, 77));
  CHECK(cudnnDropoutForward(planes.handle, dropout, planes.descriptor, planes.x.get(),
                            planes.descriptor, planes.y.get(), kept.get(), reserve));
  CHECK(cudnnDropoutBackward(planes.handle, dropout, planes.descriptor, planes.dy.get(),
                             planes.descriptor, planes.dx.get(), kept.get(), reserve));
  save("y", planes.y);
  save("dx", planes.dx);
}

LIBRARY_CASE(recurrent_nets) {
  Handle handle;
  Dropout none;
  const int batch = 5, steps = 12, inputs = 32, hidden = 64, layers = 2;
  CHECK(cudnnSetDropoutDescriptor(none, handle, 0, nullptr, 0, 0));
  const std::vector<int> lengths(batch, steps);
  Device<int> device_lengths(lengths);
  float fill = 0;
  for (cudnnRNNMode_t mode : {CUDNN_LSTM, CUDNN_GRU, CUDNN_RNN_TANH}) {
    Recurrent net;
    RecurrentData x, y;
    CHECK(cudnnSetRNNDescriptor_v8(net, CUDNN_RNN_ALGO_STANDARD, mode, CUDNN_RNN_DOUBLE_BIAS,
                                   CUDNN_BIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT,
                                   CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, inputs, hidden, hidden, layers,
                                   none, 0));
    CHECK(cudnnSetRNNDataDescriptor(x, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                                    steps, batch, inputs, lengths.data(), &fill));
    CHECK(cudnnSetRNNDataDescriptor(y, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                                    steps, batch, 2 * hidden, lengths.data(), &fill));
    Tensor state;
    const int sizes[] = {2 * layers, batch, hidden}, strides[] = {batch * hidden, hidden, 1};
    CHECK(cudnnSetTensorNdDescriptor(state, CUDNN_DATA_FLOAT, 3, sizes, strides));
    size_t weights = 0, work = 0, reserve = 0;
    CHECK(cudnnGetRNNWeightSpaceSize(handle, net, &weights));
    CHECK(cudnnGetRNNTempSpaceSizes(handle, net, CUDNN_FWD_MODE_INFERENCE, x, &work, &reserve));
    Device<float> w(values<float>(weights / 4, 17, -0.2, 0.2)),
        in(values<float>(steps * batch * inputs, 18)), out(steps * batch * 2 * hidden),
        last(2 * layers * batch * hidden), cell(2 * layers * batch * hidden);
    Device<uint8_t> space(work);
    CHECK(cudnnRNNForward(handle, net, CUDNN_FWD_MODE_INFERENCE, device_lengths.get(), x, in.get(),
                          y, out.get(), state, nullptr, last.get(), state, nullptr,
                          mode == CUDNN_LSTM ? cell.get() : nullptr, weights, w.get(), work,
                          space.get(), 0, nullptr));
    save(("out" + std::to_string(mode)).c_str(), out);
    save(("last" + std::to_string(mode)).c_str(), last);
  }
}

LIBRARY_CASE(multi_head_attention) {
  Handle handle;
  Attention attention;
  const int batch = 3, length = 40, width = 64, heads = 4;
  CHECK(cudnnSetAttnDescriptor(attention, CUDNN_ATTN_QUERYMAP_ALL_TO_ONE, heads, 0.25,
                               CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, nullptr, nullptr,
                               width, width, width, 16, 16, 16, width, length, length, batch, 1));
  size_t weights = 0, work = 0;
  CHECK(cudnnGetMultiHeadAttnBuffers(handle, attention, &weights, &work, nullptr));
  const std::vector<int> lengths(batch, length), low(length, 0), high(length, length);
  Device<int> device_lengths(lengths);
  Sequence sequence;
  int sizes[CUDNN_SEQDATA_DIM_COUNT] = {};
  sizes[CUDNN_SEQDATA_TIME_DIM] = length;
  sizes[CUDNN_SEQDATA_BATCH_DIM] = batch;
  sizes[CUDNN_SEQDATA_BEAM_DIM] = 1;
  sizes[CUDNN_SEQDATA_VECT_DIM] = width;
  const cudnnSeqDataAxis_t axes[] = {CUDNN_SEQDATA_BATCH_DIM, CUDNN_SEQDATA_TIME_DIM,
                                     CUDNN_SEQDATA_BEAM_DIM, CUDNN_SEQDATA_VECT_DIM};
  CHECK(cudnnSetSeqDataDescriptor(sequence, CUDNN_DATA_FLOAT, CUDNN_SEQDATA_DIM_COUNT, sizes, axes,
                                  lengths.size(), lengths.data(), nullptr));
  Device<float> w(values<float>(weights / 4, 19, -0.2, 0.2)),
      q(values<float>(batch * length * width, 20)), k(values<float>(batch * length * width, 21)),
      v(values<float>(batch * length * width, 22)), out(batch * length * width);
  Device<uint8_t> space(work);
  CHECK(cudnnMultiHeadAttnForward(handle, attention, -1, low.data(), high.data(),
                                  device_lengths.get(), device_lengths.get(), sequence, q.get(),
                                  nullptr, sequence, k.get(), sequence, v.get(), sequence,
                                  out.get(), weights, w.get(), work, space.get(), 0, nullptr));
  save("out", out);
}
