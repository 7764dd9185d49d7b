"""append_environment.py SCDOC PAGE.scd PRINTER OUT: a manual page with the generated ENVIRONMENT
section before SEE ALSO."""
import pathlib
import subprocess
import sys

scdoc, page, printer, out = sys.argv[1:]
roff = subprocess.run([scdoc], input=pathlib.Path(page).read_bytes(), capture_output=True,
                      check=True).stdout.decode()
section = subprocess.run([printer], capture_output=True, check=True, text=True).stdout
head, see_also, rest = roff.partition(".SH SEE ALSO")
pathlib.Path(out).write_text(head + section + see_also + rest)
