import got from 'got'
import { HttpProxyAgent, HttpsProxyAgent } from 'hpagent'

const agent = {
  http: new HttpProxyAgent({ proxy: process.env.http_proxy }),
  https: new HttpsProxyAgent({ proxy: process.env.https_proxy }),
}

const [header, ...urls] = process.argv.slice(2)
const [name, value] = header.split(': ')
for (const url of urls) {
  try {
    process.stdout.write(await got(url, { agent, headers: { [name]: value } }).text())
  } catch (error) {
    console.error(error.message, error.response?.body)
  }
}
