"""The Python package `tube` as a wheel: its sources and libtube.so. Usage: wheel.py BUILD_FOLDER
DESTINATION_FOLDER VERSION"""
import base64
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

# The library needs glibc alone, as tools/dev/bundle.py checks for everything that is built so.
TAG = "py3-none-manylinux_2_35_x86_64"
METADATA = """Metadata-Version: 2.1
Name: tube-store
Version: {version}
Summary: Named arrays that all functions of a Tube workflow share, without a copy
License: Apache-2.0
Requires-Python: >=3.9
"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: tube\nRoot-Is-Purelib: false\nTag: {TAG}\n"


def main():
    build, folder, version = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    info = f"tube_store-{version}.dist-info"
    with tempfile.TemporaryDirectory() as scratch:
        library = pathlib.Path(scratch, "libtube.so.1")
        subprocess.run(["strip", "--strip-unneeded", "-o", library,
                        build / "libtube/libtube.so.1"], check=True)
        files = {f"tube/{p.name}": p.read_bytes() for p in sorted(pathlib.Path("python/tube").glob("*.py"))}
        files["tube/libtube.so.1"] = library.read_bytes()
    files[f"{info}/METADATA"] = METADATA.format(version=version).encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"tube_store-{version}-{TAG}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    print(path)


if __name__ == "__main__":
    main()
