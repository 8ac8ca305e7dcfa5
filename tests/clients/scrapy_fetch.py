import sys

import scrapy
from scrapy.crawler import CrawlerProcess

header, value = sys.argv[1].split(": ")


class Fetch(scrapy.Spider):
    name = "fetch"
    start_urls = sys.argv[2:]
    handle_httpstatus_list = [403]
    custom_settings = {"DEFAULT_REQUEST_HEADERS": {header: value}, "LOG_LEVEL": "WARNING", "TELNETCONSOLE_ENABLED": False}
    if header == "User-Agent":
        custom_settings["USER_AGENT"] = value

    def parse(self, response):
        if response.status == 403:
            self.logger.warning("%s: %s", response.url, response.text)
        else:
            sys.stdout.buffer.write(response.body)


process = CrawlerProcess()
process.crawl(Fetch)
process.start()
