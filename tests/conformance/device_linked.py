"""device_linked.py NVCC SM PTX OUT IN: a fat binary of a kernel file that calls the device runtime.

Machine code for sm_SM, linked with the toolkit's device runtime, and PTX for compute_PTX as it is,
which only the simulated GPU can load: a real driver would have to link it first.
"""
import pathlib
import subprocess
import sys
import tempfile


def main(nvcc, sm, ptx, out, source):
    tools = pathlib.Path(nvcc).parent
    libraries = [
        f"-L{tools.parent / folder}" for folder in ("lib", "lib64")
        if (tools.parent / folder).is_dir()
    ]
    with tempfile.TemporaryDirectory() as folder:
        part, linked, text = (
            str(pathlib.Path(folder) / name) for name in ("part.cubin", "linked.cubin", "text.ptx"))
        subprocess.run([nvcc, f"-arch=sm_{sm}", "-rdc=true", "-cubin", source, "-o", part],
                       check=True)
        subprocess.run(
            [tools / "nvlink", f"-arch=sm_{sm}", part, *libraries, "-lcudadevrt", "-o", linked],
            check=True)
        subprocess.run([nvcc, "-ptx", "-rdc=true", f"-arch=compute_{ptx}", source, "-o", text],
                       check=True)
        subprocess.run([
            tools / "fatbinary", f"--create={out}", "--64",
            f"--image3=kind=elf,sm={sm},file={linked}", f"--image3=kind=ptx,sm={ptx},file={text}"
        ], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
