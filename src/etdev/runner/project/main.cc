// The command line of the runner: reads inputs from files, calls methods, prints outputs or writes them to files.
// Firmware replaces this file. Everything below is about files and text; the runtime is in runner.cc.
#include "runner.h"

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>
#include <executorch/runtime/core/exec_aten/util/tensor_dimension_limit.h>

#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using namespace @ID@;
using executorch::aten::ScalarType;
using executorch::runtime::EValue;
using executorch::runtime::MethodMeta;
using executorch::runtime::Tag;

constexpr char kUsage[] =
    R"(usage: @NAME@_runner [--call METHOD] [--times N] [--in I=FILE]... [--shape I=2x3]... [--out DIR] [--memory]

Calls methods of @PROGRAM@ in the order given, on one state, and prints their outputs.

  --call METHOD  begins a call, to which the options after it belong (default: @DEFAULT@)
  --times N      repeats the call (default: 1)
  --in I=FILE    the bytes of input I, counted from 0, as they are in memory (the
                 README states the order of dimensions); without it, zeros
  --shape I=2x3  the sizes of input I (default: the largest)
  --out DIR      also writes output I of call N to DIR/N.METHOD.I.bin
  --memory       shows how much of each pool was used
//@if file
  --files DIR    where @PROGRAM@ is (default: the folder of the project)
//@end
  --help         prints this
)";

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsageError = 2;
constexpr long long kShown = 8;  // Elements of an output that are printed.

// Prints a message and returns the exit code.
__attribute__((format(printf, 2, 3))) int Complain(int code, const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  std::fputs("@NAME@_runner: ", stderr);
  std::vfprintf(stderr, format, args);
  std::fputs("\n", stderr);
  va_end(args);
  return code;
}

int ComplainAboutRuntime() { return Complain(kFailed, "%s", Problem()); }

bool TakesValue(const char* option) {
  for (const char* name : {"--call", "--times", "--in", "--shape", "--out"
//@if file
                           , "--files"
//@end
       }) {
    if (std::strcmp(option, name) == 0) {
      return true;
    }
  }
  return false;
}

// A call: its method, and the arguments [first, last) that belong to it.
struct Call {
  size_t method;
  const char* name;
  int first;
  int last;
};

// Returns the value of an option for input `input`, as in `--in 0=FILE`, or nullptr. The last one counts.
const char* ForInput(const Call& call, char** argv, const char* option, size_t input) {
  const char* found = nullptr;
  for (int i = call.first; i + 1 < call.last; ++i) {
    char* rest = nullptr;
    if (std::strcmp(argv[i], option) == 0 && std::strtoul(argv[i + 1], &rest, 10) == input && *rest == '=') {
      found = rest + 1;
    }
    i += TakesValue(argv[i]) ? 1 : 0;
  }
  return found;
}

// Reads a whole file, which must have exactly `size` bytes. `advice` ends the message about a file with fewer bytes.
int ReadFile(const char* path, uint8_t* memory, size_t size, const char* advice) {
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) {
    return Complain(kFailed, "cannot open %s", path);
  }
  const size_t count = std::fread(memory, 1, size, file);
  const bool longer = count == size && std::fgetc(file) != EOF;
  std::fclose(file);
  if (count != size || longer) {
    return Complain(
        kFailed, "%s has %s than the %zu bytes expected%s", path, longer ? "more" : "less", size, longer ? "" : advice);
  }
  return kDone;
}

// Reads sizes such as 2x3; an empty text has none. Returns whether there are `rank` of them.
bool ReadShape(const char* text, int32_t* sizes, size_t rank) {
  for (size_t i = 0; i < rank; ++i) {
    char* rest = nullptr;
    const long size = std::strtol(text, &rest, 10);
    if (rest == text || size < 0 || size > INT32_MAX || *rest != (i + 1 < rank ? 'x' : '\0')) {
      return false;
    }
    sizes[i] = static_cast<int32_t>(size);
    text = rest + (*rest == 'x' ? 1 : 0);
  }
  return *text == '\0';
}

int SetInputFromArguments(const Call& call, size_t input, char** argv) {
  const char* path = ForInput(call, argv, "--in", input);
  const char* shape = ForInput(call, argv, "--shape", input);
  const auto meta = GetMethod(call.method).method_meta();
  if (meta.input_tag(input).get() != Tag::Tensor) {
    if (path != nullptr || shape != nullptr) {
      return Complain(kUsageError, "input %zu of %s is not a tensor: its value is part of the program", input, call.name);
    }
    return SetInput(call.method, input) == Error::Ok ? kDone : ComplainAboutRuntime();
  }
  const auto tensor = meta.input_tensor_meta(input);
  const size_t rank = tensor->sizes().size();
  int32_t sizes[executorch::runtime::kTensorDimensionLimit];
  if (shape != nullptr && !ReadShape(shape, sizes, rank)) {
    return Complain(kUsageError, "--shape %zu=%s: input %zu of %s has %zu sizes", input, shape, input, call.name, rank);
  }
  Span<uint8_t> memory = InputMemory(call.method, input);
  size_t size = executorch::runtime::elementSize(tensor->scalar_type());
  for (size_t i = 0; i < rank; ++i) {
    const int32_t most = tensor->sizes()[i];
    sizes[i] = shape == nullptr ? most : sizes[i];
    if (sizes[i] > most) {
      return Complain(kUsageError, "--shape %zu=%s: size %zu must be at most %" PRId32, input, shape, i, most);
    }
    size *= static_cast<size_t>(sizes[i]);
  }
  if (path == nullptr) {
    std::memset(memory.data(), 0, size);
  } else {
//@if dynamic
    char advice[96] = "";
    if (shape == nullptr) {
      std::snprintf(advice, sizeof(advice), " for the largest sizes; pass smaller sizes with --shape %zu=SIZES", input);
    }
//@else
    const char* advice = "";
//@end
    if (ReadFile(path, memory.data(), size, advice) != kDone) {
      return kFailed;
    }
  }
  return SetInput(call.method, input, sizes) == Error::Ok ? kDone : ComplainAboutRuntime();
}

template <typename T>
double ElementAt(const void* data, ssize_t index) {
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(data) + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return static_cast<double>(static_cast<float>(value));
}

void PrintElement(const executorch::aten::Tensor& tensor, ssize_t index) {
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      std::printf(" %.6g", ElementAt<float>(data, index));
      return;
    case ScalarType::Double:
      std::printf(" %.6g", static_cast<const double*>(data)[index]);
      return;
    case ScalarType::Half:
      std::printf(" %.6g", ElementAt<executorch::aten::Half>(data, index));
      return;
    case ScalarType::BFloat16:
      std::printf(" %.6g", ElementAt<executorch::aten::BFloat16>(data, index));
      return;
    case ScalarType::Long:
      std::printf(" %" PRId64, static_cast<const int64_t*>(data)[index]);
      return;
    case ScalarType::Int:
      std::printf(" %" PRId32, static_cast<const int32_t*>(data)[index]);
      return;
    case ScalarType::Short:
      std::printf(" %" PRId16, static_cast<const int16_t*>(data)[index]);
      return;
    case ScalarType::Char:
      std::printf(" %" PRId8, static_cast<const int8_t*>(data)[index]);
      return;
    case ScalarType::Byte:
      std::printf(" %" PRIu8, static_cast<const uint8_t*>(data)[index]);
      return;
    case ScalarType::Bool:
      std::printf(" %s", static_cast<const bool*>(data)[index] ? "true" : "false");
      return;
    default:
      std::printf(" ?");
      return;
  }
}

void PrintTensor(const executorch::aten::Tensor& tensor) {
  std::printf("%s [", executorch::runtime::toString(tensor.scalar_type()));
  for (ssize_t i = 0; i < tensor.dim(); ++i) {
    std::printf("%s%d", i == 0 ? "" : ", ", static_cast<int>(tensor.size(i)));
  }
  std::printf("]:");
  for (ssize_t i = 0; i < tensor.numel() && i < kShown; ++i) {
    PrintElement(tensor, i);
  }
  std::printf("%s\n", tensor.numel() > kShown ? " ..." : "");
}

void PrintValue(const EValue& value) {
  switch (value.tag) {
    case Tag::Tensor:
      PrintTensor(value.toTensor());
      return;
    case Tag::Int:
      std::printf("%" PRId64 "\n", value.toInt());
      return;
    case Tag::Double:
      std::printf("%.17g\n", value.toDouble());
      return;
    case Tag::Bool:
      std::printf("%s\n", value.toBool() ? "true" : "false");
      return;
    case Tag::String:
      std::printf("%.*s\n", static_cast<int>(value.toString().size()), value.toString().data());
      return;
    default:
      std::printf("%s\n", value.isNone() ? "none" : "a list");
      return;
  }
}

int WriteOutput(const char* folder, unsigned long number, const Call& call, size_t output, const EValue& value) {
  char path[4096];
  const int length = std::snprintf(path, sizeof(path), "%s/%lu.%s.%zu.bin", folder, number, call.name, output);
  if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) {
    return Complain(kUsageError, "--out %s: the path is too long", folder);
  }
  std::FILE* file = std::fopen(path, "wb");
  if (file == nullptr) {
    return Complain(kFailed, "cannot write %s: make the folder first", path);
  }
  const auto& tensor = value.toTensor();
  const size_t size = tensor.nbytes();
  const bool written = size == 0 || std::fwrite(tensor.const_data_ptr(), 1, size, file) == size;
  if (std::fclose(file) != 0 || !written) {
    return Complain(kFailed, "cannot write all of %s", path);
  }
  return kDone;
}

const char* LastOption(const Call& call, char** argv, const char* option) {
  const char* found = nullptr;
  for (int i = call.first; i + 1 < call.last; i += TakesValue(argv[i]) ? 2 : 1) {
    found = std::strcmp(argv[i], option) == 0 ? argv[i + 1] : found;
  }
  return found;
}

// Makes one call `times` times. `number` counts calls over the whole command line.
int Run(const Call& call, char** argv, const char* out, unsigned long* number) {
  unsigned long times = 1;
  if (const char* text = LastOption(call, argv, "--times")) {
    char* rest = nullptr;
    times = std::strtoul(text, &rest, 10);
    if (rest == text || *rest != '\0' || *text == '-' || times == 0) {
      return Complain(kUsageError, "--times %s: this is not a number above 0", text);
    }
  }
  Method& method = GetMethod(call.method);
  for (unsigned long i = 0; i < times; ++i, ++*number) {
    for (size_t input = 0; input < method.inputs_size(); ++input) {
      const int code = SetInputFromArguments(call, input, argv);
      if (code != kDone) {
        return code;
      }
    }
    const auto start = std::chrono::steady_clock::now();
    if (Execute(call.method) != Error::Ok) {
      return ComplainAboutRuntime();
    }
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    std::printf("call %lu  %s  %.3f ms\n", *number, call.name, spent.count());
    for (size_t output = 0; output < method.outputs_size(); ++output) {
      const EValue& value = method.get_output(output);
      std::printf("  output %zu  ", output);
      PrintValue(value);
      if (out != nullptr && value.isTensor() && WriteOutput(out, *number, call, output, value) != kDone) {
        return kFailed;
      }
    }
  }
  return kDone;
}

// Complains about an option for an input that the method does not have.
int CheckInputs(const Call& call, char** argv) {
  const size_t count = GetMethod(call.method).inputs_size();
  for (int i = call.first; i + 1 < call.last; i += TakesValue(argv[i]) ? 2 : 1) {
    if (std::strcmp(argv[i], "--in") != 0 && std::strcmp(argv[i], "--shape") != 0) {
      continue;
    }
    char* rest = nullptr;
    const unsigned long input = std::strtoul(argv[i + 1], &rest, 10);
    if (rest == argv[i + 1] || *rest != '=' || input >= count) {
      return Complain(
          kUsageError, "%s %s: method %s has %zu input%s, numbered from 0, as in 0=...", argv[i], argv[i + 1], call.name,
          count, count == 1 ? "" : "s");
    }
  }
  return kDone;
}

int CheckOptions(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (TakesValue(argv[i])) {
      if (++i == argc) {
        return Complain(kUsageError, "%s needs a value; see --help", argv[i - 1]);
      }
    } else if (std::strcmp(argv[i], "--memory") != 0) {
      return Complain(kUsageError, "there is no option %s; see --help", argv[i]);
    }
  }
  return kDone;
}

void PrintMemory() {
  for (size_t method = 0; method < kMethodCount; ++method) {
    const PoolUse use = GetPoolUse(method, 0);
    std::printf("%s  %zu of %zu bytes used\n", use.constant, use.peak, use.size);
  }
  const PoolUse use = GetPoolUse(0, 1);
  std::printf("%s  %zu of %zu bytes used\n", use.constant, use.peak, use.size);
}
//@if file

// Reads the program and its data files into their static memory.
int ReadFiles(const char* folder) {
  for (const File& file : kFiles) {
    char path[4096];
    const int length = std::snprintf(path, sizeof(path), "%s/%s", folder, file.name);
    if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) {
      return Complain(kUsageError, "--files %s: the path is too long", folder);
    }
    if (ReadFile(path, file.memory, file.size, "") != kDone) {
      return kFailed;
    }
  }
  return kDone;
}
//@end

// Returns the position of the next `--call` from `first` on, or `argc`.
int NextCall(int first, int argc, char** argv) {
  while (first < argc && std::strcmp(argv[first], "--call") != 0) {
    first += TakesValue(argv[first]) ? 2 : 1;
  }
  return first;
}

int RunCall(const Call& call, char** argv, const char* out, unsigned long* number) {
  if (call.method == kMethodCount) {
    return Complain(kUsageError, "@PROGRAM@ has no method %s", call.name);
  }
  const int code = CheckInputs(call, argv);
  return code == kDone ? Run(call, argv, out, number) : code;
}

int RunAll(int argc, char** argv) {
  const Call whole = {0, nullptr, 1, argc};
  const char* out = LastOption(whole, argv, "--out");
  unsigned long number = 0;
  int first = NextCall(1, argc, argv);
  if (first == argc) {
    const Call call = {FindMethod(@DEFAULT_LITERAL@), @DEFAULT_LITERAL@, 1, argc};
    return RunCall(call, argv, out, &number);
  }
  const Call before = {0, nullptr, 1, first};
  for (const char* option : {"--times", "--in", "--shape"}) {
    if (LastOption(before, argv, option) != nullptr) {
      return Complain(kUsageError, "%s must come after a --call", option);
    }
  }
  while (first < argc) {
    const char* name = argv[first + 1];
    const int last = NextCall(first + 2, argc, argv);
    const Call call = {FindMethod(name), name, first + 2, last};
    const int code = RunCall(call, argv, out, &number);
    if (code != kDone) {
      return code;
    }
    first = last;
  }
  return kDone;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0) {
      std::fputs(kUsage, stdout);
      return kDone;
    }
  }
  if (CheckOptions(argc, argv) != kDone) {
    return kUsageError;
  }
//@if file
  const Call whole = {0, nullptr, 1, argc};
  const char* folder = LastOption(whole, argv, "--files");
  if (ReadFiles(folder == nullptr ? RUNNER_FILES : folder) != kDone) {
    return kFailed;
  }
//@end
  if (Load() != Error::Ok) {
    return ComplainAboutRuntime();
  }
  const int code = RunAll(argc, argv);
  for (int i = 1; i < argc && code == kDone; i += TakesValue(argv[i]) ? 2 : 1) {
    if (std::strcmp(argv[i], "--memory") == 0) {
      PrintMemory();
    }
  }
  Unload();
  return code;
}
