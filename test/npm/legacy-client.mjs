// The TypeScript SDK's client of the legacy era, for scripts:
//
//   node legacy-client.mjs --url URL [NAME=VALUE ...]      over Streamable HTTP, with headers
//   node legacy-client.mjs -- PROGRAM [ARGUMENT ...]       over stdio
//
// It reads operations from standard input, each a line of JSON, does one after the
// other, and prints a line with the answer to each before it reads on:
//
//   {"op": "list"}                                  {"result": …, "raw": "…"}
//   {"op": "call", "name": …, "arguments": …}       {"error": {"code", "message", "data"}, "raw": "…"}
//   {"op": "ping"}
//
// result is what the SDK made of the answer, and raw is the answer's message as
// it came over the wire. The first line that it prints says what was agreed on. It
// ends with its input.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { createInterface } from 'node:readline';
import * as z from 'zod';

const seen = []; // messages that came, as they came
const reading = new Set(); // bodies that are still being read

// note takes whole messages out of an event stream or a JSON body.
function note(body, type) {
  if (type.startsWith('text/event-stream')) {
    for (const event of body.split(/\r?\n\r?\n/)) {
      const data = event.split(/\r?\n/).filter((l) => l.startsWith('data:')).map((l) => l.slice(5).replace(/^ /, ''));
      if (data.length > 0) seen.push(data.join('\n'));
    }
  } else if (body.trim() !== '') {
    seen.push(body);
  }
}

function overHTTP(url, headers) {
  return new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers },
    fetch: async (to, init) => {
      const response = await fetch(to, init);
      if (init?.method === 'POST' && response.body) {
        const read = response.clone().text().then((body) => note(body, response.headers.get('content-type') ?? ''));
        reading.add(read);
        read.finally(() => reading.delete(read)).catch(() => {});
      }
      return response;
    },
  });
}

function overStdio([command, ...args]) {
  const transport = new StdioClientTransport({ command, args, stderr: 'inherit' });
  const start = transport.start.bind(transport);
  transport.start = async () => {
    await start();
    let rest = '';
    const decoder = new TextDecoder();
    // The SDK has no place to listen at: its child process is private.
    transport._process.stdout.on('data', (chunk) => {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
      rest = lines.pop();
      seen.push(...lines.filter((l) => l.trim() !== ''));
    });
  };
  return transport;
}

const args = process.argv.slice(2);
const transport = args[0] === '--url'
  ? overHTTP(args[1], Object.fromEntries(args.slice(2).map((h) => [h.slice(0, h.indexOf('=')), h.slice(h.indexOf('=') + 1)])))
  : overStdio(args.slice(args.indexOf('--') + 1));

// The last id that was used tells which answer belongs to an operation.
let id;
const send = transport.send.bind(transport);
transport.send = (message, options) => {
  if (message.method !== undefined && message.id !== undefined) id = message.id;
  return send(message, options);
};

const methods = {
  list: () => ({ method: 'tools/list', params: {} }),
  call: (op) => ({ method: 'tools/call', params: { name: op.name, arguments: op.arguments ?? {} } }),
  ping: () => ({ method: 'ping' }),
};

const client = new Client({ name: 'legacy-client', version: '1.0.0' }, { capabilities: {} });
await client.connect(transport);
await Promise.all(reading);
const agreed = seen.map((m) => JSON.parse(m)).find((m) => m.result?.protocolVersion !== undefined);
console.log(JSON.stringify({ protocol: agreed.result.protocolVersion, server: client.getServerVersion(), session: transport.sessionId ?? null }));

for await (const line of createInterface({ input: process.stdin })) {
  const op = JSON.parse(line);
  const answer = {};
  try {
    answer.result = await client.request(methods[op.op](op), z.looseObject({}), { timeout: 60_000 });
  } catch (e) {
    if (e.code === undefined) throw e;
    answer.error = { code: e.code, message: e.message, data: e.data };
  }
  await Promise.all(reading);
  answer.raw = seen.findLast((m) => {
    const message = JSON.parse(m);
    return message.id === id && message.method === undefined;
  });
  console.log(JSON.stringify(answer));
}
await client.close();
