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

const { sentences, sentence } = new Function("location", "document", page
  + "\nreturn { sentences, sentence };")
  ({ search: "", href: "http://a/kvroute/", origin: "http://a" }, {});

const a = { name: "10.0.0.1:8000", state: "up" };
const b = { name: "10.0.0.2:8000", state: "unhealthy" };
const c = { name: "10.0.0.3:8000", state: "drained" };

const rejects = { code: "rejects", rejects: 6317, of: 7800, percent: 81 };
const every = "81% of requests rejected in the last minute (6317): every server "
  + "is at ";

const cases = [
  [{ code: "locked" }, "the list of servers is locked: if it stays so, a killed "
    + "process holds the lock, see the error log"],
  [{ code: "none_up", number: 2, of: 2, servers: [b, c] }, "none of 2 servers is "
    + "up: 10.0.0.2:8000 (unhealthy), 10.0.0.3:8000 (drained)"],
  [{ code: "not_up", number: 5, of: 8, servers: [b, b, b] }, "5 of 8 servers not "
    + "up: " + "10.0.0.2:8000 (unhealthy), ".repeat(2)
    + "10.0.0.2:8000 (unhealthy) and 2 more"],
  [{ code: "client_errors", requests: 25, percent: 100, percent_elsewhere: 1,
     status: "401", servers: [{ name: "a:1", state: "up" }] },
   "a:1 answers 401 to 100% of requests, others to 1%: is its API key another "
   + "one?"],
  [{ code: "client_errors", requests: 0, percent: 0, percent_elsewhere: 0,
     status: "400", servers: [{ name: "a:1", state: "ejected" }] },
   "a:1 answered 400: is it configured differently, or are these the requests "
   + "of one client?"],
  [{ code: "not_up", number: 1, of: 2, servers: [
     { name: "a:1", state: "ejected", reason: "401" }] },
   "1 of 2 servers not up: a:1 (ejected: 401)"],
  [{ code: "errors", requests: 25, of: 725, percent: 80, percent_of_all: 2,
     servers: [a] }, "10.0.0.1:8000 fails: 80% of its 25 requests in the last "
    + "minute, 2% of all requests"],
  [{ ...rejects, caps: { max_conns: 2 }, load: .0893 },
   every + "max_conns=2, load is 9%"],
  [{ ...rejects, caps: { target_ttft_ms: 1000, max_waiting: 0 } },
   every + "max_pending=500ms or max_waiting=0"],
  [{ ...rejects, caps: { max_pending: 262144 }, load: 1.2 },
   every + "max_pending=256 KB, load is 120%"],
  [{ ...rejects, caps: {} }, every + "its cap"],
  [{ code: "slow", ttft_ms: 1900, others_ms: 300, servers: [a] }, "10.0.0.1:8000 "
    + "is slow: first tokens after 1.90 s, elsewhere after 300 ms"],
  [{ code: "hot", active: 40, of: 60, servers: [a] }, "10.0.0.1:8000 is hot: 40 "
    + "of 60 requests in flight"],
  [{ code: "old_metrics", number: 1, of: 2, servers: [a] }, "old metrics, because "
    + "the probe fails: 10.0.0.1:8000"],
  [{ code: "not_sharing", seconds: 45 }, "nothing was shared with other hosts for "
    + "45 s: the error log has the reason, see kvroute_share"],
  [{ code: "drained", number: 1, of: 3, servers: [c] }, "1 of 3 servers drained "
    + "by the operator: 10.0.0.3:8000 (drained)"],
  [{ code: "no_counters", number: 1, of: 3, servers: [a] }, "1 of 3 servers "
    + "without counters, because the zone is full: 10.0.0.1:8000"],
  [{ code: "of_a_later_version" }, "of_a_later_version"]
];

for (const [w, text] of cases) assert.strictEqual(sentence(w), text);

for (const code of Object.keys(sentences)) {
  assert(cases.some(([w]) => w.code === code), `${code} has no case`);
  console.log(`${code}: ${sentence(cases.find(([w]) => w.code === code)[0])}`);
}
