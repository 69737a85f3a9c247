"""Signatures of operators, one per line.

Generated: ``python benchmarks/signatures.py --write`` replaces this file. Types are those of the file format. For
example, the number of an element type, a layout or a memory format is an ``int``. Outputs follow the arrow. ``self``
after the arrow means that the call returns its first argument.
"""

SIGNATURES = """
aten::_adaptive_avg_pool2d.out(Tensor self, int[] output_size) -> Tensor
aten::_cdist_forward.out(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor
aten::_conj_physical.out(Tensor self) -> Tensor
aten::_fft_c2r.out(Tensor self, int[] dim, int normalization, int last_dim_size) -> Tensor
aten::_fft_r2c.out(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor
aten::_local_scalar_dense(Tensor self) -> Scalar
aten::_log_softmax.out(Tensor self, int dim, bool half_to_float) -> Tensor
aten::_native_batch_norm_legit.no_stats_out(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps) -> Tensor, Tensor, Tensor
aten::_native_batch_norm_legit.out(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training, float momentum, float eps) -> Tensor, Tensor, Tensor
aten::_native_batch_norm_legit_no_training.out(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps) -> Tensor, Tensor, Tensor
aten::_pdist_forward.out(Tensor self, float p) -> Tensor
aten::_softmax.out(Tensor self, int dim, bool half_to_float) -> Tensor
aten::_to_copy.out(Tensor self, bool non_blocking, int? memory_format) -> Tensor
aten::_upsample_bilinear2d_aa.out(Tensor self, int[] output_size, bool align_corners, float? scales_h, float? scales_w) -> Tensor
aten::abs.out(Tensor self) -> Tensor
aten::acos.out(Tensor self) -> Tensor
aten::acosh.out(Tensor self) -> Tensor
aten::add.Scalar_out(Tensor self, Scalar other, Scalar alpha) -> Tensor
aten::add.out(Tensor self, Tensor other, Scalar alpha) -> Tensor
aten::addmm.out(Tensor self, Tensor mat1, Tensor mat2, Scalar beta, Scalar alpha) -> Tensor
aten::alias_copy.out(Tensor self) -> Tensor
aten::amax.out(Tensor self, int[] dim, bool keepdim) -> Tensor
aten::amin.out(Tensor self, int[] dim, bool keepdim) -> Tensor
aten::any.all_out(Tensor self) -> Tensor
aten::any.dims_out(Tensor self, int[]? dim, bool keepdim) -> Tensor
aten::any.out(Tensor self, int dim, bool keepdim) -> Tensor
aten::arange.out(Scalar end) -> Tensor
aten::arange.start_out(Scalar start, Scalar end, Scalar step) -> Tensor
aten::argmax.out(Tensor self, int? dim, bool keepdim) -> Tensor
aten::argmin.out(Tensor self, int? dim, bool keepdim) -> Tensor
aten::as_strided_copy.out(Tensor self, int[] size, int[] stride, int? storage_offset) -> Tensor
aten::asin.out(Tensor self) -> Tensor
aten::asinh.out(Tensor self) -> Tensor
aten::atan.out(Tensor self) -> Tensor
aten::atan2.out(Tensor self, Tensor other) -> Tensor
aten::atanh.out(Tensor self) -> Tensor
aten::avg_pool2d.out(Tensor self, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor
aten::bitwise_and.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::bitwise_and.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::bitwise_left_shift.Tensor_Scalar_out(Tensor self, Scalar other) -> Tensor
aten::bitwise_left_shift.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::bitwise_not.out(Tensor self) -> Tensor
aten::bitwise_or.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::bitwise_or.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::bitwise_right_shift.Tensor_Scalar_out(Tensor self, Scalar other) -> Tensor
aten::bitwise_right_shift.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::bitwise_xor.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::bitwise_xor.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::bmm.out(Tensor self, Tensor mat2) -> Tensor
aten::cat.out(Tensor[] tensors, int dim) -> Tensor
aten::ceil.out(Tensor self) -> Tensor
aten::clamp.Tensor_out(Tensor self, Tensor? min, Tensor? max) -> Tensor
aten::clamp.out(Tensor self, Scalar? min, Scalar? max) -> Tensor
aten::clone.out(Tensor self, int? memory_format) -> Tensor
aten::constant_pad_nd.out(Tensor self, int[] pad, Scalar value) -> Tensor
aten::convolution.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups) -> Tensor
aten::convolution_backward.out(Tensor grad_output, Tensor input, Tensor weight, int[]? bias_sizes, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups, bool[] output_mask) -> Tensor, Tensor, Tensor
aten::copy.out(Tensor self, Tensor src, bool non_blocking) -> Tensor
aten::copy_(Tensor self, Tensor src, bool non_blocking) -> self
aten::cos.out(Tensor self) -> Tensor
aten::cosh.out(Tensor self) -> Tensor
aten::cumsum.out(Tensor self, int dim, int? dtype) -> Tensor
aten::detach_copy.out(Tensor self) -> Tensor
aten::diagonal_copy.out(Tensor self, int offset, int dim1, int dim2) -> Tensor
aten::div.Scalar_mode_out(Tensor self, Scalar other, str? rounding_mode) -> Tensor
aten::div.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::div.out(Tensor self, Tensor other) -> Tensor
aten::div.out_mode(Tensor self, Tensor other, str? rounding_mode) -> Tensor
aten::elu.out(Tensor self, Scalar alpha, Scalar scale, Scalar input_scale) -> Tensor
aten::embedding.out(Tensor weight, Tensor indices, int padding_idx, bool scale_grad_by_freq, bool sparse) -> Tensor
aten::empty.out(int[] size, int? memory_format) -> Tensor
aten::eq.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::eq.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::erf.out(Tensor self) -> Tensor
aten::exp.out(Tensor self) -> Tensor
aten::expand_copy.out(Tensor self, int[] size, bool implicit) -> Tensor
aten::expm1.out(Tensor self) -> Tensor
aten::fill.Scalar_out(Tensor self, Scalar value) -> Tensor
aten::fill.Tensor_out(Tensor self, Tensor value) -> Tensor
aten::flip.out(Tensor self, int[] dims) -> Tensor
aten::floor.out(Tensor self) -> Tensor
aten::floor_divide.out(Tensor self, Tensor other) -> Tensor
aten::fmod.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::fmod.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::full.out(int[] size, Scalar fill_value) -> Tensor
aten::full_like.out(Tensor self, Scalar fill_value, int? memory_format) -> Tensor
aten::gather.out(Tensor self, int dim, Tensor index, bool sparse_grad) -> Tensor
aten::ge.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::ge.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::gelu.out(Tensor self, str approximate) -> Tensor
aten::glu.out(Tensor self, int dim) -> Tensor
aten::grid_sampler_2d.out(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor
aten::gt.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::gt.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::hardsigmoid.out(Tensor self) -> Tensor
aten::hardswish.out(Tensor self) -> Tensor
aten::hardtanh.out(Tensor self, Scalar min_val, Scalar max_val) -> Tensor
aten::index.Tensor_out(Tensor self, Tensor?[] indices) -> Tensor
aten::index_put.out(Tensor self, Tensor?[] indices, Tensor values, bool accumulate) -> Tensor
aten::index_put_(Tensor self, Tensor?[] indices, Tensor values, bool accumulate) -> self
aten::index_select.out(Tensor self, int dim, Tensor index) -> Tensor
aten::isinf.out(Tensor self) -> Tensor
aten::isnan.out(Tensor self) -> Tensor
aten::le.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::le.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::leaky_relu.out(Tensor self, Scalar negative_slope) -> Tensor
aten::lift_fresh_copy.out(Tensor self) -> Tensor
aten::linear.out(Tensor input, Tensor weight, Tensor? bias) -> Tensor
aten::log.out(Tensor self) -> Tensor
aten::log10.out(Tensor self) -> Tensor
aten::log1p.out(Tensor self) -> Tensor
aten::log2.out(Tensor self) -> Tensor
aten::logical_and.out(Tensor self, Tensor other) -> Tensor
aten::logical_not.out(Tensor self) -> Tensor
aten::logical_or.out(Tensor self, Tensor other) -> Tensor
aten::logical_xor.out(Tensor self, Tensor other) -> Tensor
aten::logit.out(Tensor self, float? eps) -> Tensor
aten::lt.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::lt.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::masked_fill.Scalar_out(Tensor self, Tensor mask, Scalar value) -> Tensor
aten::masked_scatter.out(Tensor self, Tensor mask, Tensor source) -> Tensor
aten::masked_select.out(Tensor self, Tensor mask) -> Tensor
aten::max.dim_max(Tensor self, int dim, bool keepdim) -> Tensor, Tensor
aten::max.unary_out(Tensor self) -> Tensor
aten::max_pool2d_with_indices.out(Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode) -> Tensor, Tensor
aten::max_pool2d_with_indices_backward.grad_input(Tensor grad_output, Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode, Tensor indices) -> Tensor
aten::maximum.out(Tensor self, Tensor other) -> Tensor
aten::mean.dtype_out(Tensor self, int? dtype) -> Tensor
aten::mean.out(Tensor self, int[]? dim, bool keepdim, int? dtype) -> Tensor
aten::min.dim_min(Tensor self, int dim, bool keepdim) -> Tensor, Tensor
aten::min.unary_out(Tensor self) -> Tensor
aten::minimum.out(Tensor self, Tensor other) -> Tensor
aten::mm.out(Tensor self, Tensor mat2) -> Tensor
aten::mul.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::mul.out(Tensor self, Tensor other) -> Tensor
aten::narrow_copy.out(Tensor self, int dim, int start, int length) -> Tensor
aten::native_batch_norm.out(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> Tensor, Tensor, Tensor
aten::native_dropout.out(Tensor input, float p, bool? train) -> Tensor, Tensor
aten::native_group_norm.out(Tensor input, Tensor? weight, Tensor? bias, int N, int C, int HxW, int group, float eps) -> Tensor, Tensor, Tensor
aten::native_layer_norm.out(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor, Tensor, Tensor
aten::ne.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::ne.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::neg.out(Tensor self) -> Tensor
aten::nonzero.out(Tensor self) -> Tensor
aten::ones.out(int[] size) -> Tensor
aten::permute_copy.out(Tensor self, int[] dims) -> Tensor
aten::pixel_shuffle.out(Tensor self, int upscale_factor) -> Tensor
aten::pixel_unshuffle.out(Tensor self, int downscale_factor) -> Tensor
aten::pow.Scalar_out(Scalar self, Tensor exponent) -> Tensor
aten::pow.Tensor_Scalar_out(Tensor self, Scalar exponent) -> Tensor
aten::pow.Tensor_Tensor_out(Tensor self, Tensor exponent) -> Tensor
aten::prod.int_out(Tensor self, int dim, bool keepdim, int? dtype) -> Tensor
aten::prod.out(Tensor self, int? dtype) -> Tensor
aten::rand.out(int[] size) -> Tensor
aten::randn.out(int[] size) -> Tensor
aten::reciprocal.out(Tensor self) -> Tensor
aten::reflection_pad1d.out(Tensor self, int[] padding) -> Tensor
aten::reflection_pad2d.out(Tensor self, int[] padding) -> Tensor
aten::reflection_pad3d.out(Tensor self, int[] padding) -> Tensor
aten::relu.out(Tensor self) -> Tensor
aten::remainder.Scalar_out(Tensor self, Scalar other) -> Tensor
aten::remainder.Tensor_out(Tensor self, Tensor other) -> Tensor
aten::repeat.out(Tensor self, int[] repeats) -> Tensor
aten::repeat_interleave.Tensor_out(Tensor repeats, int? output_size) -> Tensor
aten::replication_pad1d.out(Tensor self, int[] padding) -> Tensor
aten::replication_pad2d.out(Tensor self, int[] padding) -> Tensor
aten::replication_pad3d.out(Tensor self, int[] padding) -> Tensor
aten::roll.out(Tensor self, int[] shifts, int[] dims) -> Tensor
aten::round.out(Tensor self) -> Tensor
aten::rsqrt.out(Tensor self) -> Tensor
aten::rsub.Scalar_out(Tensor self, Scalar other, Scalar alpha) -> Tensor
aten::scalar_tensor.out(Scalar s) -> Tensor
aten::scatter.src_out(Tensor self, int dim, Tensor index, Tensor src) -> Tensor
aten::scatter.value_out(Tensor self, int dim, Tensor index, Scalar value) -> Tensor
aten::scatter_add.out(Tensor self, int dim, Tensor index, Tensor src) -> Tensor
aten::select_copy.int_out(Tensor self, int dim, int index) -> Tensor
aten::select_scatter.out(Tensor self, Tensor src, int dim, int index) -> Tensor
aten::sigmoid.out(Tensor self) -> Tensor
aten::sign.out(Tensor self) -> Tensor
aten::silu.out(Tensor self) -> Tensor
aten::sin.out(Tensor self) -> Tensor
aten::sinh.out(Tensor self) -> Tensor
aten::slice_copy.Tensor_out(Tensor self, int dim, int? start, int? end, int step) -> Tensor
aten::slice_scatter.out(Tensor self, Tensor src, int dim, int? start, int? end, int step) -> Tensor
aten::split_copy.Tensor_out(Tensor self, int split_size, int dim) -> Tensor[]
aten::split_with_sizes_copy.out(Tensor self, int[] split_sizes, int dim) -> Tensor[]
aten::sqrt.out(Tensor self) -> Tensor
aten::squeeze_copy.dim_out(Tensor self, int dim) -> Tensor
aten::squeeze_copy.dims_out(Tensor self, int[] dim) -> Tensor
aten::stack.out(Tensor[] tensors, int dim) -> Tensor
aten::sub.Scalar_out(Tensor self, Scalar other, Scalar alpha) -> Tensor
aten::sub.out(Tensor self, Tensor other, Scalar alpha) -> Tensor
aten::sum.IntList_out(Tensor self, int[]? dim, bool keepdim, int? dtype) -> Tensor
aten::sym_numel(Tensor self) -> int
aten::sym_size.int(Tensor self, int dim) -> int
aten::sym_storage_offset(Tensor self) -> int
aten::sym_stride.int(Tensor self, int dim) -> int
aten::t_copy.out(Tensor self) -> Tensor
aten::tan.out(Tensor self) -> Tensor
aten::tanh.out(Tensor self) -> Tensor
aten::topk.values(Tensor self, int k, int dim, bool largest, bool sorted) -> Tensor, Tensor
aten::transpose_copy.int_out(Tensor self, int dim0, int dim1) -> Tensor
aten::tril.out(Tensor self, int diagonal) -> Tensor
aten::trunc.out(Tensor self) -> Tensor
aten::unbind_copy.int_out(Tensor self, int dim) -> Tensor[]
aten::unfold_copy.out(Tensor self, int dimension, int size, int step) -> Tensor
aten::unsqueeze_copy.out(Tensor self, int dim) -> Tensor
aten::upsample_bilinear2d.vec_out(Tensor input, int[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor
aten::upsample_nearest2d.vec_out(Tensor input, int[]? output_size, float[]? scale_factors) -> Tensor
aten::var.correction_out(Tensor self, int[]? dim, Scalar? correction, bool keepdim) -> Tensor
aten::var.out(Tensor self, int[]? dim, bool unbiased, bool keepdim) -> Tensor
aten::var_mean.correction_out(Tensor self, int[]? dim, Scalar? correction, bool keepdim) -> Tensor, Tensor
aten::view_as_real_copy.out(Tensor self) -> Tensor
aten::view_copy.out(Tensor self, int[] size) -> Tensor
aten::where.self_out(Tensor condition, Tensor self, Tensor other) -> Tensor
aten::zeros.out(int[] size) -> Tensor
cortex_m::dequantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min, int quant_max, int dtype) -> Tensor
cortex_m::maximum.out(Tensor self, Tensor other) -> Tensor
cortex_m::minimum.out(Tensor self, Tensor other) -> Tensor
cortex_m::pad.out(Tensor input, int[] pre_pad, int[] post_pad, int pad_value) -> Tensor
cortex_m::quantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min, int quant_max, int dtype) -> Tensor
cortex_m::quantized_activation.out(Tensor input, Tensor lut) -> Tensor
cortex_m::quantized_add.out(Tensor self, int self_zero_point, int self_multiplier, int self_shift, Tensor other, int other_zero_point, int other_multiplier, int other_shift, int output_zero_point, int output_multiplier, int output_shift, int activation_min, int activation_max) -> Tensor
cortex_m::quantized_avg_pool2d.out(Tensor input, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, int zero_point, int multiplier, int shift, Tensor scratch) -> Tensor
cortex_m::quantized_avg_pool2d_nhwc.out(Tensor input, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, int zero_point, int multiplier, int shift, Tensor scratch) -> Tensor
cortex_m::quantized_batch_matmul.out(Tensor lhs, int lhs_zero_point, Tensor rhs_transposed, int rhs_zero_point, int output_zero_point, int output_multiplier, int output_shift, Tensor scratch) -> Tensor
cortex_m::quantized_conv2d.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int input_offset, int output_offset, Tensor requantize_multipliers, Tensor requantize_shifts, int activation_min, int activation_max, Tensor scratch) -> Tensor
cortex_m::quantized_conv2d_nhwc.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int input_offset, int output_offset, Tensor requantize_multipliers, Tensor requantize_shifts, int activation_min, int activation_max, Tensor scratch) -> Tensor
cortex_m::quantized_depthwise_conv2d.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int depth_multiplier, int input_offset, int output_offset, Tensor requantize_multipliers, Tensor requantize_shifts, int activation_min, int activation_max, Tensor scratch) -> Tensor
cortex_m::quantized_depthwise_conv2d_nhwc.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int depth_multiplier, int input_offset, int output_offset, Tensor requantize_multipliers, Tensor requantize_shifts, int activation_min, int activation_max, Tensor scratch) -> Tensor
cortex_m::quantized_div.out(Tensor self, int self_zero_point, Tensor other, int other_zero_point, int output_zero_point, float output_scale) -> Tensor
cortex_m::quantized_linear.out(Tensor input, Tensor weights, Tensor? bias, Tensor? kernel_sum, int input_offset, int filter_offset, int output_offset, int[] requantize_multipliers, int[] requantize_shifts, int activation_max, int activation_min) -> Tensor
cortex_m::quantized_max_pool2d.out(Tensor input, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode, int input_zero_point, int output_zero_point, int activation_min, int activation_max) -> Tensor
cortex_m::quantized_max_pool2d_nhwc.out(Tensor input, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode, int input_zero_point, int output_zero_point, int activation_min, int activation_max) -> Tensor
cortex_m::quantized_mul.out(Tensor self, int self_zero_point, Tensor other, int other_zero_point, int output_zero_point, int output_multiplier, int output_shift) -> Tensor
cortex_m::quantized_transpose_conv2d.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] output_padding, int[] dilation, int input_offset, int output_offset, Tensor requantize_multipliers, Tensor requantize_shifts, int activation_min, int activation_max, Tensor scratch, Tensor output_scratch) -> Tensor
cortex_m::quantized_transpose_conv2d_nhwc.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] output_padding, int[] dilation, int input_offset, int output_offset, Tensor requantize_multipliers, Tensor requantize_shifts, int activation_min, int activation_max, Tensor scratch, Tensor output_scratch) -> Tensor
cortex_m::softmax.out(Tensor input, int dim, int input_zero_point, int output_zero_point, int input_multiplier, int input_shift, int diff_min) -> Tensor
cortex_m::transpose.out(Tensor input, int[] perm) -> Tensor
dim_order_ops::_clone_dim_order.out(Tensor self, bool non_blocking, int[]? dim_order) -> Tensor
dim_order_ops::_empty_dim_order.out(int[] size, int[]? dim_order) -> Tensor
dim_order_ops::_to_dim_order_copy.out(Tensor self, bool non_blocking, int[]? dim_order) -> Tensor
et_copy::_d2h_copy.out(Tensor self) -> Tensor
et_copy::_h2d_copy.out(Tensor self) -> Tensor
executorch_prim::add.Scalar(Scalar a, Scalar b) -> Scalar
executorch_prim::ceil.Scalar(Scalar a) -> Scalar
executorch_prim::eq.Scalar(Scalar a, Scalar b) -> bool
executorch_prim::et_copy_index.tensor(Tensor copy_to, Tensor copy_from, int index) ->
executorch_prim::et_view.default(Tensor self, int[] size, Tensor out) ->
executorch_prim::floordiv.Scalar(Scalar a, Scalar b) -> Scalar
executorch_prim::floordiv.int(int a, int b) -> int
executorch_prim::ge.Scalar(Scalar a, Scalar b) -> bool
executorch_prim::gt.Scalar(Scalar a, Scalar b) -> bool
executorch_prim::le.Scalar(Scalar a, Scalar b) -> bool
executorch_prim::lt.Scalar(Scalar a, Scalar b) -> bool
executorch_prim::mod.Scalar(int a, int b) -> int
executorch_prim::mod.int(int a, int b) -> int
executorch_prim::mul.Scalar(Scalar a, Scalar b) -> Scalar
executorch_prim::neg.Scalar(Scalar a) -> Scalar
executorch_prim::round.Scalar(Scalar a) -> Scalar
executorch_prim::sub.Scalar(Scalar a, Scalar b) -> Scalar
executorch_prim::sym_float.Scalar(Scalar a) -> Scalar
executorch_prim::sym_int.Scalar(Scalar a) -> Scalar
executorch_prim::sym_ite.Scalar(Scalar b, Scalar t, Scalar f) -> Scalar
executorch_prim::sym_max.Scalar(Scalar a, Scalar b) -> Scalar
executorch_prim::sym_min.Scalar(Scalar a, Scalar b) -> Scalar
executorch_prim::sym_not.Scalar(Scalar a) -> bool
executorch_prim::truediv.Scalar(Scalar a, Scalar b) -> Scalar
executorch_prim::trunc.Scalar(Scalar a) -> Scalar
quantized_decomposed::add.out(Tensor a, float a_scale, int a_zero_point, int a_quant_min, int a_quant_max, Tensor b, float b_scale, int b_zero_point, int b_quant_min, int b_quant_max, float out_scale, int out_zero_point, int out_quant_min, int out_quant_max) -> Tensor
quantized_decomposed::choose_qparams.Tensor_out(Tensor input, int quant_min, int quant_max, float eps, int dtype) -> Tensor, Tensor
quantized_decomposed::choose_qparams_per_token_asymmetric.out(Tensor input, int dtype) -> Tensor, Tensor
quantized_decomposed::dequantize_per_channel.out(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max, int dtype, int? out_dtype) -> Tensor
quantized_decomposed::dequantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, int dtype, int? out_dtype) -> Tensor
quantized_decomposed::dequantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min, int quant_max, int dtype, int? out_dtype) -> Tensor
quantized_decomposed::dequantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, int dtype, int output_dtype) -> Tensor
quantized_decomposed::embedding_2bit.dtype_out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices, int? dtype) -> Tensor
quantized_decomposed::embedding_2bit.out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices) -> Tensor
quantized_decomposed::embedding_4bit.dtype_out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices, int? dtype) -> Tensor
quantized_decomposed::embedding_4bit.out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices) -> Tensor
quantized_decomposed::embedding_byte.dtype_out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices, int? dtype) -> Tensor
quantized_decomposed::embedding_byte.out(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices) -> Tensor
quantized_decomposed::mixed_linear.out(Tensor input, Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int? dtype) -> Tensor
quantized_decomposed::mixed_mm.out(Tensor input, Tensor weight, Tensor weight_scales, Tensor? weight_zero_points) -> Tensor
quantized_decomposed::quantize_per_channel.out(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max, int dtype) -> Tensor
quantized_decomposed::quantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, int dtype) -> Tensor
quantized_decomposed::quantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min, int quant_max, int dtype) -> Tensor
quantized_decomposed::quantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, int dtype) -> Tensor
"""
