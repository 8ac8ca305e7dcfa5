"""urllib.robotparser of this Python, asked line by line: see peers.rs."""

import json
import sys
from urllib.robotparser import RobotFileParser

for line in sys.stdin:
    subject = json.loads(line)
    robots = RobotFileParser()
    robots.parse(subject["body"].removeprefix("\ufeff").splitlines())
    print(json.dumps([robots.can_fetch(token, "https://a.test" + path) for token, path in subject["asks"]]))
