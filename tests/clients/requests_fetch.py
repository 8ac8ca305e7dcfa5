import sys

import requests

name, value = sys.argv[1].split(": ")
session = requests.Session()
session.headers[name] = value
for url in sys.argv[2:]:
    answer = session.get(url)
    try:
        answer.raise_for_status()
        sys.stdout.buffer.write(answer.content)
    except requests.HTTPError as error:
        print(error, error.response.text, sep="\n")
