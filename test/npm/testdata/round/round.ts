// The operator's round of tasks, by a client that is generated from docs/openapi.json (api.d.ts). It ends with an error at
// the first answer that is not as it should be. It prints the steps that it has done.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { env: Record<string, string | undefined> };

const { ADMIN_URL: baseUrl = "", ADMIN_KEY: key = "", FILE: path = "", AGENT: agent = "" } = process.env;
const api = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

type Problem = components["schemas"]["Problem"];
type Outcome<T> = { data?: T; error?: Problem; response: Response };

// ok returns the answer to a request that must go well.
function ok<T>(what: string, { data, error, response }: Outcome<T>): T {
  if (data === undefined) throw new Error(`${what}: ${response.status} ${JSON.stringify(error)}`);
  console.log(what);
  return data;
}

// refused returns the problem of a request that must be refused with the status.
function refused(what: string, status: number, { error, response }: Outcome<unknown>): Problem {
  if (error === undefined || error.status !== status || response.status !== status) {
    throw new Error(`${what}: ${response.status} ${JSON.stringify(error)}, want ${status}`);
  }
  console.log(what);
  return error;
}

function check(condition: boolean, what: string, got: unknown): asserts condition {
  if (!condition) throw new Error(`${what}: ${JSON.stringify(got)}`);
}

function etagOf({ response }: { response: Response }): string {
  const etag = response.headers.get("ETag");
  check(etag !== null && /^"[0-9a-f]{64}"$/.test(etag), "no entity tag", etag);
  return etag;
}

const status = ok("status", await api.GET("/v1/status"));
check(status.servers.length === 1 && status.version !== "", "the status", status);

const list = ok("servers", await api.GET("/v1/servers", { params: { query: { limit: 1 } } }));
check(list.servers[0]?.id === "atlas" && list.next === undefined, "the servers", list);

const server = { path: { server: "atlas" } };
const once = { ...server, header: { "Idempotency-Key": crypto.randomUUID() } };
const off = ok("disable", await api.POST("/v1/servers/{server}/disable", { params: once, body: { reason: "it is moved" } }));
const offAgain = await api.POST("/v1/servers/{server}/disable", { params: once, body: { reason: "it is moved" } });
check(JSON.stringify(ok("repeat", offAgain)) === JSON.stringify(off) && offAgain.response.headers.get("Idempotency-Replayed") === "true", "the repeat", offAgain.data);
const otherwise = refused("another request with its key", 422, await api.POST("/v1/servers/{server}/disable", { params: once, body: { reason: "or not" } }));
check(otherwise.code === "SB-CAP-006", "the problem", otherwise);
check(off.server === "atlas" && off.state === "disabled", "the result", off);
const disabled = ok("disabled", await api.GET("/v1/servers/{server}", { params: server }));
check(disabled.health.state === "disabled" && disabled.health.last_failure?.message === "disabled by ops: it is moved", "the disabled server", disabled);
ok("enable", await api.POST("/v1/servers/{server}/enable", { params: server }));

// The server starts again meanwhile.
let decision = ok("explain", await api.GET("/v1/tenants/{tenant}/decision", { params: { path: { tenant: "acme" }, query: { task: "all", principal: agent } } }));
for (let i = 0; i < 600 && decision.tools.length === 0; i++) {
  await new Promise((done) => setTimeout(done, 100));
  const again: Outcome<components["schemas"]["Explanation"]> = await api.GET("/v1/tenants/{tenant}/decision", { params: { path: { tenant: "acme" }, query: { task: "all", principal: agent } } });
  check(again.data !== undefined, "the decision", again.error);
  decision = again.data;
}
check(decision.tools.some((t) => t.server === "atlas"), "the decision", decision);

const query = { path };
const read = await api.GET("/v1/configuration/file", { params: { query } });
const { text } = ok("file", read);
const before = etagOf(read);
const changed = text + "# by a client of others\n";

const trial = ok("dry run", await api.PUT("/v1/configuration/file", { params: { query: { ...query, dry_run: true } }, body: { text: changed } }));
check(trial.change === undefined && trial.trial?.faults.length === 0 && trial.trial.diff.includes("+# by a client"), "the trial", trial);
const faulty = ok("dry run with a fault", await api.PUT("/v1/configuration/file", { params: { query: { ...query, dry_run: true } }, body: { text: text + "tasc: x\n" } }));
check((faulty.trial?.faults.length ?? 0) > 0, "the faults", faulty);
refused("without an entity tag", 428, await api.PUT("/v1/configuration/file", { params: { query }, body: { text: changed } }));

const put = await api.PUT("/v1/configuration/file", { params: { query, header: { "If-Match": before } }, body: { text: changed, reason: "a round" } });
const made = ok("change", put).change;
check(made !== undefined && made.reason === "a round" && etagOf(put) !== before, "the change", made);
const stale = refused("with the old entity tag", 412, await api.PUT("/v1/configuration/file", { params: { query, header: { "If-Match": before } }, body: { text } }));
check(stale.code === "SB-CONF-002" && stale.detail !== "", "the problem", stale);

const history = ok("history", await api.GET("/v1/configuration/changes"));
check(history.changes[0]?.id === made.id && history.changes[0].path === path, "the history", history);
const detail = ok("one change", await api.GET("/v1/configuration/changes/{change}", { params: { path: { change: made.id } } }));
check(detail.before === text && detail.after === changed && detail.diff.includes("+# by a client"), "the detail", detail);
const reverted = await api.POST("/v1/configuration/changes/{change}/revert", { params: { path: { change: made.id } }, body: { reason: "the round is over" } });
check(ok("revert", reverted).change?.reverts === made.id && etagOf(reverted) === before, "the revert", reverted.data);

const keys = ok("keys", await api.GET("/v1/keys", { params: { query: { tenant: "acme" } } }));
const row = keys.keys.find((k) => k.id === agent);
check(row !== undefined && row.state === "valid", "the keys", keys);
const revoked = ok("revoke", await api.POST("/v1/keys/{key}/revoke", { params: { path: { key: row.key } }, body: { reason: "lost" } }));
check(revoked.state === "revoked" && revoked.revoked?.reason === "lost", "the revoked key", revoked);

let found = ok("receipts", await api.GET("/v1/receipts", { params: { query: { kind: "admin", limit: 1 } } }));
check(found.receipts.length === 1, "the receipts", found);
const newest = found.receipts[0]?.id ?? "";
ok("one receipt", await api.GET("/v1/receipt", { params: { query: { id: newest } } }));
const ids = new Set([newest]);
for (let n = 0; n < 100 && found.next !== undefined && !found.complete; n++) {
  const next: Outcome<components["schemas"]["ReceiptPage"]> = await api.GET("/v1/receipts", { params: { query: { kind: "admin", limit: 1, after: found.next } } });
  check(next.data !== undefined, "the next receipts", next.error);
  found = next.data;
  for (const r of found.receipts) ids.add(r.id);
}
check(ids.size >= 4 && found.complete, "the receipts of the round", [...ids]);

const metrics = ok("metrics", await api.GET("/metrics", { parseAs: "text" }));
check(metrics.includes("\nswitchboard_"), "the metrics", metrics.slice(0, 200));

// What the document does not allow must not compile: so the types say something.
export async function mistakes() {
  // @ts-expect-error there is no such member of the status
  void status.nothing;
  // @ts-expect-error the path of the file is required
  await api.GET("/v1/configuration/file", { params: { query: {} } });
  // @ts-expect-error the text of the file is required
  await api.PUT("/v1/configuration/file", { params: { query }, body: {} });
  // @ts-expect-error a limit is a number
  await api.GET("/v1/servers", { params: { query: { limit: "many" } } });
  // @ts-expect-error there is no such route
  await api.DELETE("/v1/servers/{server}", { params: server });
}
