import asyncio
import sys

import aiohttp


async def main(header, *urls):
    name, value = header.split(": ")
    async with aiohttp.ClientSession(headers={name: value}, trust_env=True) as session:
        for url in urls:
            async with session.get(url) as answer:
                body = await answer.read()
                try:
                    answer.raise_for_status()
                    sys.stdout.buffer.write(body)
                except aiohttp.ClientResponseError as error:
                    print(error, body.decode(), sep="\n")


asyncio.run(main(*sys.argv[1:]))
