// A driver-API program whose kernels print, one scene per argument; printing_test.py runs several
// at once and says whose text must be where. It knows nothing of Tube.
#include "tests/programs/common.h"

namespace {

struct Speaker : Gpu {
  Module module{"printing.ptx"};
  CUfunction say = module.function("say");
  CUstream streams[2] = {};
  Speaker() {
    for (CUstream& stream : streams) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
};

// Launches far more often than it synchronises, so that other speakers come between; two streams,
// one after the other.
void speak(int number, int rounds) {
  Speaker speaker;
  for (int i = 0; i < rounds; ++i) {
    LAUNCH(speaker.say, {1}, {1}, 0, speaker.streams[i / 8 % 2], number * 1'000'000 + i);
    if (i % 8 == 7) CU(cuStreamSynchronize(speaker.streams[i / 8 % 2]));
  }
  CU(cuCtxSynchronize());
  printf("%d is done\n", number);
}

// Ends with text that nobody asked for.
void leave(int number, int rounds) {
  Speaker speaker;
  for (int i = 0; i < rounds; ++i)
    LAUNCH(speaker.say, {1}, {1}, 0, speaker.streams[0], number * 1'000'000 + i);
  _exit(0);
}

// Says that it is there, then asks for its context's state when it is told to.
void wait_for_a_line() {
  Speaker speaker;
  LAUNCH(speaker.say, {1}, {1}, 0, nullptr, 1);
  CU(cuCtxSynchronize());
  fflush(stdout);
  (void)getchar();
  printf("%s\n", code_name(cuCtxSynchronize()));
}

void assert_something() {
  Speaker speaker;
  LAUNCH(speaker.module.function("must_be_positive"), {1}, {1}, 0, nullptr, -1);
  printf("%s\n", code_name(cuCtxSynchronize()));
  fflush(stdout);
  _exit(0);
}

}  // namespace

int main(int count, char** words) {
  const std::string scene = count > 1 ? words[1] : "";
  const int number = count > 2 ? atoi(words[2]) : 0, rounds = count > 3 ? atoi(words[3]) : 0;
  if (scene == "speak") speak(number, rounds);
  else if (scene == "leave") leave(number, rounds);
  else if (scene == "wait") wait_for_a_line();
  else if (scene == "assert") assert_something();
  else return 2;
  return 0;
}
