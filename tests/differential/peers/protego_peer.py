"""Protego, asked line by line: see peers.rs."""

import json
import sys

from protego import Protego

for line in sys.stdin:
    subject = json.loads(line)
    robots = Protego.parse(subject["body"].removeprefix("\ufeff"))
    print(json.dumps([robots.can_fetch("https://a.test" + path, token) for token, path in subject["asks"]]))
