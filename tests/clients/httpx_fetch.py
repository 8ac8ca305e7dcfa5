import sys

import httpx

name, value = sys.argv[1].split(": ")
with httpx.Client(headers={name: value}, follow_redirects=True) as client:
    for url in sys.argv[2:]:
        answer = client.get(url)
        try:
            answer.raise_for_status()
            sys.stdout.buffer.write(answer.content)
        except httpx.HTTPStatusError as error:
            print(error, error.response.text, sep="\n")
