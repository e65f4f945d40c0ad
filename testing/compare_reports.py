"""What differs between two files of adapter suite reports, a line of JSON each: pinned, then other. Exit 1 when a case no longer holds."""

import json
import sys


def cases(path):
    found = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            for case in json.loads(line)["cases"]:
                verdict = case["verdict"]
                word, why = (verdict, "") if isinstance(verdict, str) else next(iter(verdict.items()))
                found[case["name"]] = (word, why, case.get("note", ""))
    return found


pinned, other = cases(sys.argv[1]), cases(sys.argv[2])
worse = 0
for name in sorted(pinned.keys() | other.keys()):
    before, after = pinned.get(name, ("not run", "", "")), other.get(name, ("not run", "", ""))
    if before[0] != after[0]:
        worse += after[0] in ("failed", "not run")
        print(f"{name}\n    {before[0]}, now {after[0]}: {after[1]}")
    elif before[2] != after[2]:
        print(f"{name}\n    {before[0]}; it noted `{before[2]}`, now `{after[2]}`")
passed = sum(1 for verdict, *_ in other.values() if verdict == "passed")
print(f"{passed} of {len(other)} cases hold; {worse} no longer do")
sys.exit(1 if worse or not other else 0)
