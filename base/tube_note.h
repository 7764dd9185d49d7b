// An ELF note by which Tube's own libcuda.so.1 (the hook, the simulated GPU) is told from NVIDIA's:
// the names and the SONAME are the same on purpose, and the search for the real driver
// (driver_file.h) must never come back with one of ours. A note is found through the program
// headers, so that recognising a file reads two pages of it.
#pragma once

// Once, at file scope, in a source that is always part of the library.
#define TUBE_IDENTITY_NOTE()                                 \
  asm(".pushsection .note.tube, \"a\", @note\n"              \
      ".balign 4\n"                                          \
      ".long 5\n"          /* bytes of the name, with NUL */ \
      ".long 0\n"          /* no description */              \
      ".long 0x45425554\n" /* type: 'TUBE' */                \
      ".asciz \"Tube\"\n"                                    \
      ".balign 4\n"                                          \
      ".popsection\n")
