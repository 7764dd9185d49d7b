// PTX is compiled before it is loaded: by whom, when not, and whose answers the client gets.
#include "policies/compile_ahead.h"

#include <cstring>
#include <string>
#include <vector>

#include "proxy/code/image_scan.h"
#include "tests/unit/image/fatbin_bytes.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kModule = make_id(1, 1);
const std::string kText = ".version 7.0\n.target sm_70\n.visible .entry k() { ret; }\n";

class CompileAheadTest : public SessionTest {
 protected:
  CompileAheadTest() {
    said = linker_said = {};
    calls.clear();
    linker_says = CUDA_SUCCESS;
    driver.cuLibraryLoadData = [](CUlibrary* library, const void*, CUjit_option* options,
                                  void** values, unsigned int count, CUlibraryOption*, void**,
                                  unsigned int) {
      calls.push_back("compile");
      *library = reinterpret_cast<CUlibrary>(0x100);
      write_error(said, options, values, count);
      return CUDA_SUCCESS;
    };
    driver.cuLibraryUnload = [](CUlibrary) {
      calls.push_back("unload");
      return CUDA_SUCCESS;
    };
    driver.cuLinkCreate_v2 = [](unsigned int count, CUjit_option* options, void** values,
                                CUlinkState* link) {
      *link = reinterpret_cast<CUlinkState>(0x300);
      write_error(linker_said, options, values, count);
      return CUDA_SUCCESS;
    };
    driver.cuLinkAddData_v2 = [](CUlinkState, CUjitInputType type, void* data, size_t bytes,
                                 const char*, unsigned int, CUjit_option*, void**) {
      calls.push_back(type == CU_JIT_INPUT_PTX ? "link text" : "link fatbin");
      linked.assign(static_cast<const char*>(data), bytes);
      return linker_says;
    };
    driver.cuLinkDestroy = [](CUlinkState) {
      calls.push_back("end");
      return CUDA_SUCCESS;
    };
    driver.cuModuleLoadDataEx = [](CUmodule* module, const void*, unsigned int, CUjit_option*,
                                   void**) {
      calls.push_back("load");
      *module = reinterpret_cast<CUmodule>(0x200);
      return said.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
    };
  }
  ~CompileAheadTest() override { session.reset(); }

  static void write_error(const std::string& text, const CUjit_option* options, void* const* values,
                          unsigned int count) {
    for (unsigned int i = 0; i < count; ++i) {
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
        std::strcpy(static_cast<char*>(values[i]), text.c_str());
    }
  }
  CUresult load_image(const std::string& image, wire::LoadedAs kind) {
    wire::tubeLoadImage load{};
    load.library = kModule;
    load.kind = kind;
    load.error_log_bytes = 64;
    return call(with(load, &wire::tubeLoadImage::image, image));
  }
  CUresult load_module(const std::string& image) {
    return load_image(image, wire::LoadedAs::kModule);
  }

  static inline std::string said, linker_said;  // the compiler's error
  static inline CUresult linker_says;
  static inline std::string linked;
  static inline std::vector<std::string> calls;
};

using Calls = std::vector<std::string>;

TEST_F(CompileAheadTest, TextIsCompiledBeforeItIsLoaded) {
  EXPECT_EQ(load_module(kText), CUDA_SUCCESS);
  EXPECT_EQ(calls, (Calls{"compile", "unload", "load"}));
}

TEST_F(CompileAheadTest, MachineCodeIsNot) {
  EXPECT_EQ(load_module("\x7f"
                        "ELF .version"),
            CUDA_SUCCESS);
  EXPECT_EQ(calls, Calls{"load"});
}

TEST_F(CompileAheadTest, TextThatIsRefusedIsNotLoaded) {
  said = linker_said = "no such instruction";
  linker_says = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  EXPECT_EQ(load_module(kText), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(calls, (Calls{"compile", "unload", "link text", "end"}));
  EXPECT_EQ(linked, kText + '\0');
  calls.clear();
  // Of no GPU in particular: the fake one does not say what it is.
  const std::string fatbin = image::fatbin_of({{image::EntryKind::kPtx, 0, kText}});
  EXPECT_EQ(load_module(fatbin), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(calls, (Calls{"compile", "unload", "link fatbin", "end"}));
  EXPECT_EQ(linked, fatbin);
}

TEST_F(CompileAheadTest, AnyOtherErrorIsTheLoads) {
  said = linker_said = "an extern function that nobody has";
  for (const CUresult linker : {CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY}) {
    calls.clear();
    linker_says = linker;
    EXPECT_EQ(load_module(kText), CUDA_ERROR_INVALID_PTX);
    EXPECT_EQ(calls, (Calls{"compile", "unload", "link text", "end", "load"}));
  }
}

TEST_F(CompileAheadTest, AnErrorInOtherWordsIsTheLoads) {
  said = "no such instruction";
  linker_said = "no such instruction, and more";
  linker_says = CUDA_ERROR_INVALID_PTX;
  EXPECT_EQ(load_module(kText), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(calls, (Calls{"compile", "unload", "link text", "end", "load"}));
}

// Its text is refused where it is used.
TEST_F(CompileAheadTest, ALibraryIsLoadedWhateverItsText) {
  said = "no such instruction";
  linker_says = CUDA_ERROR_INVALID_PTX;
  EXPECT_EQ(load_image(kText, wire::LoadedAs::kLibrary), CUDA_SUCCESS);
  EXPECT_EQ(calls, (Calls{"compile", "unload", "compile"}));
}

TEST_F(CompileAheadTest, AnImageThatTheDriverNeverLeavesIsRefused) {
  std::string image(4096, '\0');
  const image::FatbinHeader head{image::kFatbinMagic, 1, sizeof head, image.size() - sizeof head};
  std::memcpy(image.data(), &head, sizeof head);
  EXPECT_EQ(load_module(image), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(calls, Calls{});
}

TEST(CompileAhead, OfTheDriversCache) {
  using policies::cache_serves, policies::tells_of_cache;
  EXPECT_FALSE(tells_of_cache(500'000)) << "nothing was compiled";
  EXPECT_TRUE(tells_of_cache(6'400'000));
  EXPECT_TRUE(cache_serves(6'400'000, 30'000));
  EXPECT_FALSE(cache_serves(118'000'000, 120'000'000));
}

TEST(CompileAhead, WhatAGpuCompiles) {
  const auto compiled = [](const std::string& image) {
    return is_compiled(std::as_bytes(std::span(image)), 90);
  };
  using enum image::EntryKind;
  EXPECT_TRUE(compiled(kText));
  EXPECT_FALSE(compiled("no text of a program"));
  EXPECT_TRUE(compiled(image::fatbin_of({{kPtx, 70, kText}})));
  EXPECT_FALSE(compiled(image::fatbin_of({{kPtx, 100, kText}}))) << "of a later GPU";
  EXPECT_FALSE(compiled(image::fatbin_of({{kElf, 90, "code"}})));
  EXPECT_FALSE(compiled(image::fatbin_of({{kElf, 80, "code"}}))) << "which runs nowhere here";
}

}  // namespace
}  // namespace tube::proxy
