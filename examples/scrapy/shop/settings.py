BOT_NAME = "shop"
SPIDER_MODULES = ["shop.spiders"]

# The name that robots.txt knows the bot by, and where its owner can be reached.
USER_AGENT = "NimbuBot/1.0 (+https://www.example.com/nimbubot)"

# The proxy reads robots.txt and keeps the pace, for all spiders and all processes together. Scrapy finds it in http_proxy and https_proxy.
ROBOTSTXT_OBEY = False
DOWNLOAD_DELAY = 0
# A request waits in the proxy for its turn, up to pace.max_wait (2 min), and is answered then.
DOWNLOAD_TIMEOUT = 300
# With CONCURRENT_REQUESTS_PER_DOMAIN times Crawl-delay below that, no request is turned away with 429.
CONCURRENT_REQUESTS_PER_DOMAIN = 4

LOG_LEVEL = "INFO"
TELNETCONSOLE_ENABLED = False
