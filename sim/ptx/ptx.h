// The PTX interpreter's whole interface: text in, a Module of kernels and variables out, and a way
// to run one grid.
//
// The interpreter knows PTX and nothing of CUDA: no contexts, streams or handles. Device addresses
// are plain 64-bit numbers; a load or store goes through `Memory::translate`, which answers with
// host memory or says the address is bad. All functions may be called from any thread; a Module is
// immutable after compile() and may run on many threads at once. Nothing here throws.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tube::sim::ptx {

// One kernel parameter as the driver reports it: offset and size in bytes inside the packed
// parameter buffer.
struct Param {
  std::string name;
  uint32_t offset;
  uint32_t size;
  uint32_t align;
};

struct Kernel {
  std::string name;
  std::vector<Param> params;
  uint32_t param_bytes = 0;  // end of the last parameter
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes = 0;  // per thread
  uint32_t stack_bytes = 0;  // of .local variables in reach: without what a GPU keeps in registers
  bool prints = false;       // printf is in reach of it
  uint32_t registers = 0;    // an estimate; reported as CU_FUNC_ATTRIBUTE_NUM_REGS
  uint32_t max_threads = 0;  // .maxntid product, 0 when absent
  std::array<uint32_t, 3> required_block{};  // .reqntid, zeros when absent
  uint32_t index = 0;                        // position in Module::kernels()
};

// A module-scope .global or .const variable. Its image may hold addresses of other variables:
// `relocations`.
struct Variable {
  enum class Space : uint8_t { kGlobal, kConst };
  struct Relocation {
    uint64_t offset;  // where in this variable
    uint32_t target;  // index into Module::variables()
    uint64_t addend;
    uint32_t width;  // bytes: 4 or 8
  };
  std::string name;
  Space space = Space::kGlobal;
  uint64_t size = 0;
  uint32_t align = 1;
  bool visible = false;          // .visible / .extern-resolvable: can be found by cuModuleGetGlobal
  bool managed = false;          // .attribute(.managed)
  std::vector<std::byte> image;  // initial bytes, shorter than size means zeros follow
  std::vector<Relocation> relocations;
};

class Module;

struct CompileError {
  int line = 0;             // 1-based, in the PTX text
  std::string instruction;  // the offending statement, trimmed
  std::string message;      // one line: what is wrong
};

struct CompileResult {
  std::shared_ptr<const Module> module;  // null on error
  CompileError error;
};

// Parses and checks PTX text (no NUL needed). An unknown instruction, modifier or directive is an
// error with its line. An `.extern` function other than the known device-runtime ones (vprintf,
// malloc, free, __assertfail, cudaGraphSetConditional) that no text defines is an error too.
// Several texts (cuLinkAddData) link into one module: globals and functions resolve by name.
CompileResult compile(std::string_view text);
CompileResult link(const std::vector<std::string_view>& texts);

class Module {
 public:
  virtual ~Module() = default;
  virtual const std::vector<Kernel>& kernels() const = 0;
  virtual const std::vector<Variable>& variables() const = 0;
  // .target sm_NN and .version, e.g. 90 and 90 (for 9.0)
  virtual int target_sm() const = 0;
  virtual int isa_version() const = 0;
};

struct Texture;

// What device code can touch. Implemented by the caller.
class Memory {
 public:
  virtual ~Memory() = default;
  // Host memory behind [address, address+size), or nullptr when any byte is not accessible that
  // way. On success *begin and *end (never null) receive the whole accessible range around it, so
  // that the interpreter can cache the answer for the rest of the launch; the mapping from device
  // to host address is linear inside it.
  virtual std::byte* translate(uint64_t address, uint64_t size, bool write, uint64_t* begin,
                               uint64_t* end) = 0;
  // Device-side malloc/free; 0 when the heap is exhausted.
  virtual uint64_t heap_alloc(uint64_t size) = 0;
  virtual void heap_free(uint64_t address) = 0;
  // What a texture or surface handle means (texture.h), nullptr when it names none. The launch
  // keeps it until its end.
  virtual std::shared_ptr<const Texture> texture(uint64_t) { return nullptr; }
  // cudaGraphSetConditional: the value of a conditional node's handle.
  virtual void set_conditional(uint64_t, uint32_t) {}
  // One formatted device printf, exactly the bytes; called in the order of execution.
  virtual void print(std::string_view text) = 0;
};

struct LaunchConfig {
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  std::array<uint32_t, 3> cluster{1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  const std::byte* params = nullptr;  // packed, kernel.param_bytes long
  uint64_t params_size = 0;
  // Device address of every Module::variables() entry, same order; made by the caller.
  const uint64_t* variable_addresses = nullptr;
  uint32_t sm_count = 1;  // for %nsmid
  uint64_t grid_id = 0;   // %gridid
  bool cooperative =
      false;  // all blocks run together, so that grid-wide barriers work (cooperative launches)
  const std::atomic<bool>* cancel =
      nullptr;  // when it becomes true the launch stops early (process exit)
};

struct Fault {
  enum class Kind : uint8_t {
    kNone,
    kIllegalAddress,       // -> 700
    kMisalignedAddress,    // -> 716
    kIllegalInstruction,   // -> 715
    kInvalidAddressSpace,  // -> 717
    kInvalidPc,            // -> 718
    kAssert,               // -> 710
    kTrap,                 // -> 719
    kBarrierDeadlock,      // -> 719
    kCancelled,
  };
  Kind kind = Kind::kNone;
  uint64_t address = 0;
  int line = 0;
  std::string
      message;  // one line, for the sim's log; for kAssert the text the device prints to stderr
};

// Runs one grid to its end on the calling thread. Blocks of the grid run one after another in index
// order (deterministic: the same inputs give the same bytes every time), threads of a block
// interleave at barriers and warp operations.
Fault launch(const Module& module, const Kernel& kernel, const LaunchConfig& config,
             Memory& memory);

// Finds PTX in a module image: PTX text, fatbin wrapper (both versions), bare fatbin. Compressed
// sections (LZ4, zstd) are unpacked. Among several entries the newest target not above `sm` wins.
// Returns the text, or an empty string and *why (a cubin only, nothing for this sm, malformed) in
// one line. `size` is the number of readable bytes; 0 when the caller only has a pointer
// (cuModuleLoadData), then sizes come from the headers.
std::string find_ptx(const void* image, size_t size, int sm, std::string* why);

}  // namespace tube::sim::ptx
