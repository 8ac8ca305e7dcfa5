require "open-uri"

name, value = ARGV.shift.split(": ")
ARGV.each do |url|
  $stdout.write URI.open(url, name => value).read
rescue OpenURI::HTTPError => error
  warn error.message, error.io.read
end
