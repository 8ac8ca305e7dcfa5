import axios from 'axios'

const [header, ...urls] = process.argv.slice(2)
const [name, value] = header.split(': ')
for (const url of urls) {
  try {
    const answer = await axios.get(url, { headers: { [name]: value } })
    process.stdout.write(answer.data)
  } catch (error) {
    console.error(error.message, error.response?.statusText, error.response?.data)
  }
}
