"""A program with more rights than its caller takes no TUBE_ variable from it.

secure_env_test.py PROGRAM. Root makes the program set-uid and calls it as another user; anybody else
makes it set-gid with another group that the user is in. Exit status 77: neither is possible here.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

OTHER_USER = 65534


def said(program, **user):
    return subprocess.run([program], env={"TUBE_LOG_FILE": "/tmp/named"}, capture_output=True,
                          text=True, timeout=60, **user).stdout


folder = pathlib.Path(tempfile.mkdtemp(prefix="tube-secure-"))
try:
    folder.chmod(0o755)
    program = pathlib.Path(shutil.copy(sys.argv[1], folder))
    groups = [group for group in os.getgroups() if group != os.getegid()]
    if said(program) != "0 /tmp/named\n":
        sys.exit("without more rights the variable is not read")
    if os.geteuid() == 0:
        program.chmod(0o4755)
        out = said(program, user=OTHER_USER, group=OTHER_USER, extra_groups=[])
    elif groups:
        os.chown(program, -1, groups[0])
        program.chmod(0o2755)
        out = said(program)
    else:
        print("SKIPPED: not root, and in no second group")
        sys.exit(77)
    if out == "0 /tmp/named\n":
        print(f"SKIPPED: {folder} is mounted nosuid")
        sys.exit(77)
    if out != "1 none\n":
        sys.exit(f"a program with more rights than its caller said: {out}")
finally:
    shutil.rmtree(folder)
