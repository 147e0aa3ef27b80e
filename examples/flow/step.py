"""Runs one node of the flow: the payload is on standard input, the result on standard output."""

import json
import os
import sys

payload = json.load(sys.stdin)
inputs = payload.get("inputs") or {}


def half():
    numbers = inputs["load"]
    middle = len(numbers) // 2
    return sum(numbers[:middle] if payload["first"] else numbers[middle:])


steps = {
    "load": lambda: list(range(payload["numbers"])),
    "half": half,
    "sum": lambda: sum(inputs.values()),
    "report": lambda: payload["batch"],
}
print(json.dumps(steps[os.environ["DISPATCHERD_TYPE"]]()))
