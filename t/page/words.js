/*
 * The sentences of page_words.js, without a browser: each code of a cause with
 * numbers as the JSON has them, held against what an operator must read.
 *
 *     node t/page/words.js page_words.js page_base.js
 */

const fs = require("fs");
const assert = require("assert");

const page = process.argv.slice(2).map((f) => fs.readFileSync(f, "utf8"))
  .join("\n");

const { sentences, sentence, advise, sinceOf, faults, look, hung } = new Function("location", "document", page
  + "\nreturn { sentences, sentence, advise, sinceOf, faults, look, hung };")
  ({ search: "", href: "http://a/kvroute/", origin: "http://a" }, {});

const a = { name: "10.0.0.1:8000", state: "up" };
const b = { name: "10.0.0.2:8000", state: "unhealthy", reason: "refused" };
const c = { name: "10.0.0.3:8000", state: "drained" };

const rejects = { code: "rejects", rejects: 6317, of: 7800, percent: 81 };
const every = "81% of requests rejected in the last minute (6317): every server "
  + "is at ";

const known = (code) => ({ name: "a:1", state: "up", reason: code });

/* a cause, its sentence, and what to do */

const cases = [
  [{ code: "locked" }, "the list of servers is locked: requests hang",
   "if it lasts, reload nginx and kill the old workers that hang"],
  [{ code: "none_up", number: 2, of: 2, servers: [b, c] }, "none of 2 servers is "
    + "up: 10.0.0.2:8000 (unhealthy: connection refused), 10.0.0.3:8000 "
    + "(drained)", "start the engine"],
  [{ code: "none_up", number: 1, of: 1, servers: [{ name: "unix:/s",
     state: "placeholder" }] }, "none of 1 servers is up: unix:/s (placeholder)",
   "the ingress controller has no endpoints: start engines"],
  [{ code: "not_up", number: 5, of: 8, servers: [b, b, b] }, "5 of 8 servers not "
    + "up: " + "10.0.0.2:8000 (unhealthy: connection refused), ".repeat(2)
    + "10.0.0.2:8000 (unhealthy: connection refused) and 2 more",
   "start the engine"],
  [{ code: "not_up", number: 1, of: 2, servers: [
     { name: "a:1", state: "ejected", reason: "401" }] },
   "1 of 2 servers not up: a:1 (ejected: 401 key rejected)",
   "give it the same API key as the others"],
  [{ code: "not_up", number: 1, of: 2, servers: [
     { name: "a:1", state: "unhealthy", reason: "expired" }] },
   "1 of 2 servers not up: a:1 (unhealthy: certificate expired)",
   "renew its certificate"],
  [{ code: "not_up", number: 1, of: 2, servers: [
     { name: "a:1", state: "ejected", reason: "404" }] },
   "1 of 2 servers not up: a:1 (ejected: 404 model not found)",
   "serve the same model name there as at the others"],
  [{ code: "not_up", number: 1, of: 2, servers: [
     { name: "a:1", state: "unhealthy", reason: "404" }] },
   "1 of 2 servers not up: a:1 (unhealthy: 404 no such path)",
   "check the engine's log; it returns by itself once it answers"],
  [{ code: "old_metrics", number: 1, of: 2, servers: [known("404")] },
   "old metrics, because the probe fails: a:1 (404 no such path)",
   "check kvroute_probe: url=, key, TLS"],
  [{ code: "not_up", number: 1, of: 2, servers: [
     { name: "a:1", state: "ejected", reason: "slow" }] },
   "1 of 2 servers not up: a:1 (ejected: slow first tokens)", look],
  [{ code: "not_up", number: 1, of: 2, servers: [
     { name: "a:1", state: "ejected", reason: "5xx" }] },
   "1 of 2 servers not up: a:1 (ejected: 5xx)",
   "check the engine's log; it returns by itself once it answers"],
  [{ code: "client_errors", requests: 25, percent: 100, percent_elsewhere: 1,
     status: "401", servers: [known("401")] },
   "a:1 answers 401 to 100% of requests, others to 1%",
   "give it the same API key as the others"],
  [{ code: "client_errors", requests: 0, percent: 0, percent_elsewhere: 0,
     status: "400", servers: [known("400")] }, "a:1 answered 400",
   "compare its configuration with the others', or find the client"],
  [{ code: "errors", requests: 25, of: 725, percent: 80, percent_of_all: 2,
     servers: [a] }, "10.0.0.1:8000 fails: 80% of its 25 requests in the last "
    + "minute, 2% of all requests",
   "check the engine's log; drain it if it lasts"],
  [{ code: "errors", requests: 25, of: 725, percent: 80, percent_of_all: 2,
     servers: [{ name: "a:1", state: "probed", reason: "5xx" }] }, "a:1 fails "
    + "(5xx): 80% of its 25 requests in the last minute, 2% of all requests",
   "check the engine's log; it returns by itself once it answers"],
  [{ code: "errors", requests: 25, of: 725, percent: 80, percent_of_all: 2,
     servers: [known("timeout")] }, "a:1 fails (timed out): 80% of its 25 "
    + "requests in the last minute, 2% of all requests",
   "check whether the engine hangs or is overloaded"],
  [{ ...rejects, caps: { max_conns: 2 }, load: .0893 },
   every + "max_conns=2, load is 9%", "raise this cap: the engines have room"],
  [{ ...rejects, caps: { target_ttft_ms: 1000, max_waiting: 0 } },
   every + "max_pending=500ms or max_waiting=0",
   "add engines; raise this cap only if they have room"],
  [{ ...rejects, caps: { max_pending: 262144 }, load: 1.2 },
   every + "max_pending=256 KB, load is 120%",
   "add engines; raise this cap only if they have room"],
  [{ ...rejects, caps: {} }, every + "its cap",
   "add engines; raise this cap only if they have room"],
  [{ code: "silent", seconds: 95, active: 1, servers: [known("silent")] }, "a:1 "
    + "does not respond: 1 in flight, and nothing has come", hung],
  [{ code: "silent", seconds: 95, active: 0, servers: [known("silent")] }, "a:1 "
    + "did not respond to its last request", hung],
  [{ code: "not_up", number: 1, of: 2, servers: [
     { name: "a:1", state: "probed", reason: "silent" }] },
   "1 of 2 servers not up: a:1 (ejected: no response)", hung],
  [{ code: "slow", ttft_ms: 1900, others_ms: 300, servers: [a] }, "10.0.0.1:8000 "
    + "is slow: first tokens after 1.90 s, elsewhere after 300 ms", look],
  [{ code: "starved", requests: 3, share: 125, ttft_ms: 587, others_ms: 33,
     servers: [a] }, "10.0.0.1:8000 gets 3 requests in the last minute, its "
    + "share is 125: first tokens after 587 ms, elsewhere after 33 ms", look],
  [{ code: "starved", requests: 0, share: 125, ttft_ms: 0, others_ms: 33,
     servers: [a] }, "10.0.0.1:8000 gets 0 requests in the last minute, its "
    + "share is 125", look],
  [{ code: "hot", active: 40, of: 60, servers: [a] }, "10.0.0.1:8000 is hot: 40 "
    + "of 60 requests in flight",
   "nothing, unless it lasts: then set max_pending=auto"],
  [{ code: "old_metrics", number: 1, of: 2, servers: [known("timeout")] },
   "old metrics, because the probe fails: a:1 (timed out)",
   "check kvroute_probe: url=, key, TLS"],
  [{ code: "not_sharing", seconds: 45 }, "nothing is shared with other hosts",
   "start the store, or check server= of kvroute_share"],
  [{ code: "not_sharing", seconds: 45, reason: "refused" }, "nothing is shared "
    + "with other hosts: connection refused at the store",
   "start the store, or check server= of kvroute_share"],
  [{ code: "not_sharing", seconds: 45, reason: "password" }, "nothing is shared "
    + "with other hosts: password rejected at the store",
   "check password_file= and the store's ACL"],
  [{ code: "drained", number: 1, of: 3, servers: [c] }, "1 of 3 servers drained "
    + "by the operator: 10.0.0.3:8000 (drained)",
   "undrain it when the work is done"],
  [{ code: "drained", number: 2, of: 3, servers: [c, c] }, "2 of 3 servers "
    + "drained by the operator: 10.0.0.3:8000 (drained), 10.0.0.3:8000 (drained)",
   "undrain them when the work is done"],
  [{ code: "no_counters", number: 1, of: 3, servers: [a] }, "1 of 3 servers "
    + "without counters, because all slots are taken: 10.0.0.1:8000",
   "raise max_peers= of kvroute_zone, and restart nginx"],
  [{ code: "of_a_later_version" }, "of_a_later_version", ""]
];

for (const [w, text, todo] of cases) {
  assert.strictEqual(sentence(w), text);
  assert.strictEqual(advise(w), todo);
}

/* since when: the time, and the age in a unit that fits */

const now = Date.parse("2026-01-02T03:04:05Z");

for (const [seconds, age] of [[0, "0 s"], [119, "119 s"], [120, "2 min"],
                              [7199, "120 min"], [7200, "2 h"],
                              [200000, "2 days"]]) {
  const since = new Date(now - 1000 * seconds).toISOString();
  assert.strictEqual(sinceOf({ since }, now),
                     `since ${since.slice(11, 19)} UTC, ${age}`);
}

assert.strictEqual(sinceOf({}, now), "");

/* each reason of the C code has words, or is its own */

for (const reason of process.env.REASONS ? process.env.REASONS.split(" ") : [])
  assert(faults[reason] || /^[45](xx|\d\d)$/.test(reason), reason);

for (const code of Object.keys(sentences)) {
  assert(cases.some(([w]) => w.code === code), `${code} has no case`);
  console.log(`${code}: ${sentence(cases.find(([w]) => w.code === code)[0])}`);
}
