// robots-parser, asked line by line: see peers.rs.
const readline = require("node:readline");
const robotsParser = require("robots-parser");

readline.createInterface({ input: process.stdin, crlfDelay: Infinity }).on("line", (line) => {
  const { body, asks } = JSON.parse(line);
  const robots = robotsParser("https://a.test/robots.txt", body);
  const answers = asks.map(([token, path]) => robots.isAllowed("https://a.test" + path, token) !== false);
  console.log(JSON.stringify(answers));
});
