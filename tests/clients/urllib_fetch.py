import sys
import urllib.error
import urllib.request

name, value = sys.argv[1].split(": ")
for url in sys.argv[2:]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={name: value})) as answer:
            sys.stdout.buffer.write(answer.read())
    except urllib.error.HTTPError as error:
        print(error, error.read().decode(), sep="\n")
