from urllib.parse import urlsplit

import scrapy


class Pages(scrapy.Spider):
    """Follows every link of a site, and yields address and title of its pages."""

    name = "pages"
    # Refusals of the proxy come here as well, instead of being dropped.
    handle_httpstatus_list = [403]

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]
        self.allowed_domains = [urlsplit(start).hostname]

    def parse(self, response):
        if response.status == 403:
            self.logger.info("refused: %s", response.css("h1 + p::text").get())
            return
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")
