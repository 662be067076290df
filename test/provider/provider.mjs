// An authorization server for the tests of package provider, until stdin ends. Its argument is the JSON of provider.Options. It prints its issuer.
import { createServer } from 'node:http'
import Provider, { errors } from 'oidc-provider'

const options = JSON.parse(process.argv[2])
const server = createServer()
server.listen(options.Port, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`
  const scopes = options.Scopes.join(' ')
  const provider = new Provider(issuer, {
    clients: options.Clients.map((c) => ({
      client_id: c.ID,
      client_secret: c.Secret || undefined,
      jwks: c.Keys || undefined,
      token_endpoint_auth_method: c.Keys ? 'private_key_jwt' : c.Secret ? 'client_secret_basic' : 'none',
      id_token_signed_response_alg: 'RS256',
      redirect_uris: c.Redirect ? [c.Redirect] : [],
      response_types: c.Redirect ? ['code'] : [],
      grant_types: c.Redirect ? ['authorization_code', 'refresh_token'] : ['client_credentials'],
      application_type: c.Redirect?.startsWith('http:') ? 'native' : 'web',
    })),
    clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post', 'private_key_jwt'],
    scopes: ['openid', 'offline_access', ...options.Scopes],
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    cookies: { keys: ['a key of the test'] },
    pkce: { required: () => true },
    rotateRefreshToken: true,
    issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
    ttl: { AccessToken: options.Lifetime, ClientCredentials: options.Lifetime },
    features: {
      clientCredentials: { enabled: true },
      revocation: { enabled: true },
      registration: { enabled: options.Register },
      clientIdMetadataDocument: { enabled: options.Documents !== '', ack: 'draft-02' },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => [],
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => {
          if (!options.Resources.includes(resource)) throw new errors.InvalidTarget()
          return { scope: scopes, audience: resource, accessTokenFormat: 'jwt', accessTokenTTL: options.Lifetime }
        },
      },
    },
    // Clients' metadata documents: whatever their host is, the test serves them at one address.
    fetch: (url, init) => fetch(options.Documents + new URL(url).pathname, { method: 'GET', headers: init?.headers, redirect: 'manual' }),
  })
  server.on('request', provider.callback())
  console.log(issuer)
})
process.stdin.on('end', () => process.exit(0)).resume()
