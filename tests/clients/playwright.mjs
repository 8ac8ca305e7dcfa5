import { chromium } from 'playwright-core'

const proxy = new URL(process.env.https_proxy)
const [header, ...urls] = process.argv.slice(2)
const [name, value] = header.split(': ')

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--disable-gpu', '--disable-quic', '--disable-sync'],
  proxy: { server: proxy.origin, username: proxy.username || undefined, password: proxy.password || undefined },
})
const page = await browser.newPage({ extraHTTPHeaders: { [name]: value } })
for (const url of urls) {
  const answer = await page.goto(url)
  const text = await page.innerText('body')
  if (answer.ok()) process.stdout.write(text)
  else console.error(answer.status(), text)
}
await browser.close()
