// An OpenID provider with one account for each name that is typed, until stdin ends. It prints its issuer.
// Usage: node provider.mjs REDIRECT_URI
import { createServer } from 'node:http'
import Provider from 'oidc-provider'

const server = createServer()
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`
  const provider = new Provider(issuer, {
    clients: [{
      client_id: 'sb',
      client_secret: 'provider-secret-of-the-test',
      redirect_uris: [process.argv[2]],
      application_type: process.argv[2].startsWith('http:') ? 'native' : 'web',
    }],
    scopes: ['openid', 'groups'],
    claims: { openid: ['sub'], groups: ['groups'] },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: id === 'ann' ? ['platform', 'staff'] : ['staff'] }) }),
    cookies: { keys: ['a key of the test'] },
    pkce: { required: () => true },
  })
  server.on('request', provider.callback())
  console.log(issuer)
})
process.stdin.on('end', () => process.exit(0)).resume()
