# SPDX-License-Identifier: Apache-2.0
"""Print what a wheel requires, without extras and without what is dropped: wheel_requirements.py FILE.whl [DROPPED..]

DROPPED is the name of a package, or a name with == to drop exact versions only.
"""
import re
import sys
import zipfile

wheel, dropped = zipfile.ZipFile(sys.argv[1]), sys.argv[2:]
metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
for line in wheel.read(metadata).decode().splitlines():
    if line.startswith("Requires-Dist: ") and "extra ==" not in line:
        requirement = line[len("Requires-Dist: "):].split(";")[0].strip()
        name, pinned = re.match(r"([A-Za-z0-9_.-]+)(?:\[.*?\])?\s*(==)?", requirement).groups()
        if name not in dropped and not (pinned and name + "==" in dropped):
            print(requirement)
